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

// slot is a {name}, a {name#1} or a {2..9}, with the article before it if there is one.
var slot = regexp.MustCompile(`(?:\b([Aa]) )?\{(?:([a-z]+)(#1)?|(\d+)\.\.(\d+))\}`)

// Words that are spoken with a vowel first, whatever their letter, and those with a vowel's letter that are not.
var (
	vowel     = regexp.MustCompile(`^(?i:[aeiou]|hour|honest|hono|heir|8|1[18]$)`)
	consonant = regexp.MustCompile(`^(?i:eu|ewe|one\b|once\b|uni[^mn]|us[aeu]|ut[ei])`)
)

// withArticle puts the article a before a word, if there is one.
func withArticle(a, word string) string {
	switch {
	case a == "":
		return word
	case vowel.MatchString(word) && !consonant.MatchString(word):
		a += "n"
	}
	return a + " " + word
}

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
		switch name := m[2]; {
		case m[3] != "":
			return withArticle(m[1], first[name])
		case name != "":
			value := g.slots[name][rng.IntN(len(g.slots[name]))]
			for used[name+value] {
				value = g.slots[name][rng.IntN(len(g.slots[name]))]
			}
			used[name+value] = true
			if first[name] == "" {
				first[name] = value
			}
			return withArticle(m[1], value)
		}
		low, _ := strconv.Atoi(m[4]) // digits
		high, _ := strconv.Atoi(m[5])
		return withArticle(m[1], strconv.Itoa(low+rng.IntN(high-low+1)))
	})
}
