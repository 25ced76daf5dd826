package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"talf/infer/draft"
)

// makers are those of one method at one temperature. A method that learns has one for each seed
// and repetition, so that no answer is drafted from another answer to the same prompt.
type makers struct {
	first  *draft.Maker // of a method that learns or is cold: unused, it says what the method is
	seeds  map[uint64]*draft.Maker
	repeat int // of seeds
}

// warm reports whether m goes on with what it learnt from earlier prompts.
func (m *Method) warm() bool { return m.learns && !m.Cold }

// decode decodes a prompt with method n at temperature t of the run's.
func (r *runner) decode(ctx context.Context, n, t int, prompt []int32, x *Measurement) (err error) {
	m, mk := &r.methods[n], r.makers[t][n]
	use := mk.first
	open := func() (*draft.Maker, error) { return r.c.Open(m, x.Temperature, r.engine.Target.Shape().Vocab) }
	switch {
	case m.Cold:
		if use, err = open(); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, use.Close()) }()
	case m.learns:
		if use, err = mk.at(x.Seed, x.Repeat, open); err != nil {
			return err
		}
	}
	return decodePrompt(ctx, r.engine, r.c, m, use, prompt, x, &r.tape)
}

// at returns the maker of a seed in a repetition, which come in order.
func (k *makers) at(seed uint64, repeat int, open func() (*draft.Maker, error)) (*draft.Maker, error) {
	if k.seeds == nil || repeat != k.repeat {
		k.forget()
		k.seeds, k.repeat = map[uint64]*draft.Maker{}, repeat
	}
	if k.seeds[seed] == nil {
		mk, err := open()
		if err != nil {
			return nil, err
		}
		k.seeds[seed] = mk
	}
	return k.seeds[seed], nil
}

func (k *makers) forget() {
	for _, mk := range k.seeds {
		_ = mk.Close() // nothing was written
	}
}

func (k *makers) close() {
	k.forget()
	_ = k.first.Close() // nothing was written
}

// complete reports whether all answers of a method that learns from one to the next are known.
func (r *runner) complete(m *Method, temperature float64, seed uint64, repeat int) bool {
	for _, s := range r.c.Sets {
		for _, p := range s.Prompts[r.c.Warmup:] {
			x := Measurement{Set: s.Name, Temperature: temperature, Seed: seed, Repeat: repeat}
			if r.known[r.c.key(m, p.Tokens, &x)] == nil {
				return false
			}
		}
	}
	return true
}

// AddCold adds, behind every method that learns from one request to the next, the same method
// that begins every answer anew. It fails if a method cannot be opened.
func (c *Config) AddCold() error {
	for i := 0; i < len(c.Methods); i++ {
		m := c.Methods[i]
		at := slices.IndexFunc(c.Temperatures, m.RunsAt)
		if m.Cold || at < 0 {
			continue
		}
		mk, err := c.Open(&m, c.Temperatures[at], 0)
		if err != nil {
			return fmt.Errorf("bench: %s: %w", m.Title(), err)
		}
		_ = mk.Close() // nothing was written
		if !mk.Learns {
			continue
		}
		if m.Cold = true; m.Label != "" {
			m.Label += ", cold"
		}
		i++
		c.Methods = slices.Insert(c.Methods, i, m)
	}
	return nil
}
