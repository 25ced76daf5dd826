package grammar_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"talf/internal/limits"
	"talf/text/grammar"
	"talf/text/grammar/grammartest"
	"talf/text/grammar/regex"
)

// What is counted beside an automaton is what an automaton with a state for each count accepts, and no text gets stuck: with
// characters of one and two bytes, lengths with gaps, and bounds that cannot be kept.
func TestCountedTextsAreThoseOfTheProduct(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 20))
	some, none := 0, 0
	for _, expr := range []string{"^(ab)*$", "^(abc|éé)*$", "^(aa)*(é|bbbbb)?$", "^a?é?$", "^(a|b(cde)*)$", "^[ab]*$", "^(a{3}){1,2}$"} {
		for range 12 {
			lo, hi := r.IntN(6), r.IntN(8)
			if r.IntN(3) == 0 {
				hi = grammar.Unbounded
			}
			b := grammar.NewBuilder()
			letters := []grammar.Range{{Lo: 'a', Hi: 'e'}, {Lo: 'é', Hi: 'é'}}
			dfa := func(e grammar.Expr) *grammar.DFA {
				d, err := b.DFA(e)
				if err != nil {
					t.Fatal(err)
				}
				return d
			}
			unit := dfa(b.Repeat(b.Runes(letters), 0, grammar.Unbounded))
			e, err := regex.Compile(b, expr, regex.Config{Rune: b.Runes, Search: true})
			if err != nil {
				t.Fatal(err)
			}
			d, err := b.And(dfa(e), unit)
			if err != nil {
				t.Fatal(err)
			}
			got, err := b.Counted(d, unit, lo, hi)
			if err != nil {
				t.Fatal(err)
			}
			var want []string
			if hi == grammar.Unbounded || lo <= hi {
				if d, err = b.And(d, dfa(b.Repeat(b.Runes(letters), lo, hi))); err != nil {
					t.Fatal(err)
				}
				want = texts(t, b, b.Automaton(d))
			}
			name := fmt.Sprintf("%s, %d to %d", expr, lo, hi)
			if found := texts(t, b, got); !slices.Equal(found, want) {
				t.Errorf("%s: %q, want %q", name, found, want)
			}
			// within others, whose counts are compared
			both := b.Repeat(b.Seq(b.Text("<"), got, b.Text(">")), 0, 2)
			var pairs []string
			short := slices.DeleteFunc(slices.Clone(want), func(s string) bool { return len(s) > 4 })
			for _, x := range short {
				pairs = append(pairs, "<"+x+">")
				for _, y := range short {
					if len(x)+len(y) <= 2 {
						pairs = append(pairs, "<"+x+"><"+y+">")
					}
				}
			}
			pairs = append(pairs, "")
			slices.Sort(pairs)
			if found := texts(t, b, both); !slices.Equal(found, pairs) {
				t.Errorf("%s, twice: %q, want %q", name, found, pairs)
			}
			if len(want) == 0 {
				none++
			} else {
				some++
			}
		}
	}
	if t.Logf("%d with texts, %d without", some, none); some < 30 || none < 10 {
		t.Error("that tests too little")
	}
}

// texts are those of an expression with up to six bytes.
func texts(t *testing.T, b *grammar.Builder, e grammar.Expr) []string {
	g, err := b.Compile(e)
	if errors.Is(err, grammar.ErrNothing) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	out, err := grammartest.Texts(g, 6)
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(out)
	return out
}

// Counts have a limit, and cost little below it.
func TestCountsHaveALimit(t *testing.T) {
	b := grammar.NewBuilder()
	d, err := b.DFA(b.Repeat(b.Text("ab"), 0, grammar.Unbounded))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Counted(d, d, 0, 1<<24); err != nil {
		t.Error(err)
	}
	if _, err := b.Counted(d, d, 1<<24, 1<<24); !errors.Is(err, limits.ErrTooLarge) {
		t.Errorf("a least count of millions: %v", err)
	}
	if _, err := b.Counted(d, d, 0, 1<<25); !errors.Is(err, limits.ErrTooLarge) {
		t.Errorf("a count beyond the limit: %v", err)
	}
}
