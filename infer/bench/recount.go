package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"talf/internal/jsonl"
)

// ReadLog reads a log of measurements of any run, to show it. Of measurements with the same key the
// last counts.
func ReadLog(r io.Reader) (got []Measurement, settings *Settings, err error) {
	var all []Measurement
	c := logConfig(new(Settings), &all)
	c.Accept = func(h jsonl.Header) error {
		var s Settings
		if json.Unmarshal([]byte(h.Settings), &s) == nil && s.Function != nil {
			settings = &s
		}
		return nil
	}
	if _, err := c.Read(r); err != nil {
		return nil, nil, err
	}
	at := map[string]int{}
	for _, m := range all {
		if i, ok := at[m.Key]; ok {
			got[i] = m
			continue
		}
		at[m.Key] = len(got)
		got = append(got, m)
	}
	return got, settings, nil
}

// The most methods, temperatures, seeds and sets of a log that is summed up, and tokens of a prompt.
const (
	mostKinds  = 1000
	mostPrompt = 1 << 20
)

// Recount sums up the measurements of a log without the models, prompts and files of its run. The
// number of warm-up prompts, which logs do not have, is unknown and 0.
func Recount(got []Measurement) (*Report, error) {
	c := Config{Repeat: 1}
	whole := map[promptKey]bool{}
	zeros := make([]int32, mostPrompt) // of prompts only the lengths are known
	for i := range got {
		x := &got[i]
		m, err := methodOf(x)
		if err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(c.Methods, func(o Method) bool { return o.Label == m.Label }) {
			c.Methods = append(c.Methods, m)
		}
		if !slices.Contains(c.Temperatures, x.Temperature) {
			c.Temperatures = append(c.Temperatures, x.Temperature)
		}
		if !slices.Contains(c.Seeds, x.Seed) {
			c.Seeds = append(c.Seeds, x.Seed)
		}
		c.Repeat = max(c.Repeat, x.Repeat+1)
		c.MaxTokens = max(c.MaxTokens, m.MaxTokens)
		s := slices.IndexFunc(c.Sets, func(s Set) bool { return s.Name == x.Set })
		if s < 0 {
			s = len(c.Sets)
			c.Sets = append(c.Sets, Set{Name: x.Set})
		}
		if !whole[byPrompt(x)] {
			whole[byPrompt(x)] = true
			c.Sets[s].Prompts = append(c.Sets[s].Prompts, Prompt{Name: x.Prompt, Tokens: zeros[:min(max(x.Stats.Prompt, 0), mostPrompt)]})
		}
		if max(len(c.Methods), len(c.Temperatures), len(c.Seeds), len(c.Sets)) > mostKinds {
			return nil, fmt.Errorf("more than %d methods, temperatures, seeds or sets", mostKinds)
		}
	}
	slices.Sort(c.Temperatures)
	slices.Sort(c.Seeds)
	for i := range c.Methods {
		if !slices.ContainsFunc(c.Methods, func(o Method) bool { return o.isPlain(&c.Methods[i]) }) {
			return nil, fmt.Errorf("%s: no measurement of the plain decoding that it is compared with", c.Methods[i].Label)
		}
	}
	return c.report(c.Methods, got), nil
}

// methodOf reads a method from the key of its measurement.
func methodOf(x *Measurement) (Method, error) {
	f := strings.Split(x.Key, "|")
	if len(f) < 11 {
		return Method{}, fmt.Errorf("the key %q has %d parts, want at least 11", x.Key, len(f))
	}
	m := Method{Label: x.Method, Verify: f[1], SourceName: f[2]}
	m.Spec, m.files, _ = strings.Cut(f[0], "#")
	for _, s := range f[11:] {
		m.Cold, m.Unforced = m.Cold || s == "cold", m.Unforced || s == unforcedKey
		m.Held = m.Held || strings.HasPrefix(s, heldKey)
	}
	for i, n := range []*int{&m.Budget, &m.MaxTokens, &m.PromptChars} {
		var err error
		if *n, err = strconv.Atoi(strings.TrimSuffix(f[3+i], "c")); err != nil {
			return Method{}, fmt.Errorf("part %d of the key %q: %w", 4+i, x.Key, err)
		}
	}
	return m, nil
}
