package bench

import (
	"fmt"
	"hash/fnv"
	"slices"

	"talf/infer"
)

// Rows says which rows a method has besides its own, and what they say of loops, for help and documents.
const Rows = `A method that learns from one answer to the next has two rows. The first goes on with what
it learnt from the earlier prompts of the same repetition and seed, never from the prompt
itself; "cold" begins every answer anew. What passes cost, salf, beam and optimal keep.

With a format of the answers, every method has the same rows again with answers held to it,
which are compared with plain decoding that is held to it, too. In rows that are "unforced"
what the format alone allows, such as the names of required properties, is not drafted
without asking the method.

The column loops is the share of outputs in which, over at least 24 tokens, a block of at
most 32 tokens repeats three times or more. Every method drafts such loops well, and weak
models write them.`

// What rows of answers in a format are called, and their measurements.
const (
	held        = ", in the format"
	unforced    = ", unforced"
	heldKey     = "format="
	unforcedKey = "unforced"
)

// AddHeld adds, behind every method, the same method with answers in the run's format, if it has one:
// with what the format alone allows drafted without asking the method, and if that makes a
// difference also without. It fails if a method cannot be opened.
func (c *Config) AddHeld() error {
	if c.Constraint == nil {
		return nil
	}
	for i := 0; i < len(c.Methods); i++ {
		m := c.Methods[i]
		at := slices.IndexFunc(c.Temperatures, m.RunsAt)
		if m.Held || at < 0 {
			continue
		}
		mk, err := c.Open(&m, c.Temperatures[at], 0)
		if err != nil {
			return fmt.Errorf("bench: %s: %w", m.Title(), err)
		}
		forces := mk.Draw == infer.Chosen && m.Spec != Baseline
		_ = mk.Close() // nothing was written
		add := func() {
			x := m
			if x.Label != "" {
				x.Label += held
				if x.Unforced {
					x.Label += unforced
				}
			}
			i++
			c.Methods = slices.Insert(c.Methods, i, x)
		}
		m.Held = true
		add()
		if m.Unforced = true; forces {
			add()
		}
	}
	return nil
}

// formatKey is what the key of a measurement says of the format.
func (c *Config) formatKey(m *Method) string {
	if !m.Held {
		return ""
	}
	h := fnv.New64a()
	_, _ = fmt.Fprintf(h, "%s\n%s", c.Format.Kind, c.Format.Text) // never fails
	key := fmt.Sprintf("|%s%x", heldKey, h.Sum64())
	if m.Unforced {
		key += "|" + unforcedKey
	}
	return key
}

// isPlain reports whether m is the plain decoding that o is compared with.
func (m *Method) isPlain(o *Method) bool {
	b := o.Plain()
	return m.Spec == Baseline && m.Verify == "" && m.group() == b.group()
}
