package makehead

import (
	_ "embed"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"
	"sync"
)

//go:embed asking.txt
var asking string

// A grammar writes prompts.
type grammar struct {
	slots   map[string][]string
	prompts []string // each as often as it is drawn
}

// written is the grammar of asking.txt, which says what its lines mean.
var written = sync.OnceValue(func() *grammar {
	g := &grammar{slots: map[string][]string{}}
	for line := range strings.Lines(asking) {
		line = strings.TrimSpace(line)
		if name, values, ok := strings.Cut(line, " = "); ok && !strings.ContainsAny(name, " #") {
			g.slots[name] = strings.Split(values, " | ")
		} else if share, prompt, ok := strings.Cut(line, " "); ok && share != "#" {
			n, err := strconv.Atoi(share)
			if err != nil {
				panic(fmt.Sprintf("makehead: asking.txt: %q has no share", line))
			}
			for range n {
				g.prompts = append(g.prompts, strings.ReplaceAll(prompt, `\n`, "\n"))
			}
		}
	}
	return g
})

// slot is a {name}, a {name#1} or a {2..9}.
var slot = regexp.MustCompile(`\{(?:([a-z]+)(#1)?|(\d+)\.\.(\d+))\}`)

// ask writes n prompts, of which the first are the same for any n.
func (g *grammar) ask(n int, seed uint64) []string {
	rng := rand.New(rand.NewPCG(seed, 1))
	all := make([]string, 0, n)
	for seen := map[string]bool{}; len(all) < n; {
		text := g.write(rng)
		if !seen[text] {
			seen[text] = true
			all = append(all, text)
		}
	}
	return all
}

func (g *grammar) write(rng *rand.Rand) string {
	first, used := map[string]string{}, map[string]bool{}
	return slot.ReplaceAllStringFunc(g.prompts[rng.IntN(len(g.prompts))], func(s string) string {
		m := slot.FindStringSubmatch(s)
		switch name := m[1]; {
		case m[2] != "":
			return first[name]
		case name != "":
			value := g.slots[name][rng.IntN(len(g.slots[name]))]
			for used[name+value] {
				value = g.slots[name][rng.IntN(len(g.slots[name]))]
			}
			used[name+value] = true
			if first[name] == "" {
				first[name] = value
			}
			return value
		}
		low, _ := strconv.Atoi(m[3]) // digits
		high, _ := strconv.Atoi(m[4])
		return strconv.Itoa(low + rng.IntN(high-low+1))
	})
}
