package grammar

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"talf/internal/limits"
)

// Where all characters may follow but one, which is first or last of those with a byte or length in common,
// tokens with that one are not in the mask; where all may, those beyond ASCII are allowed at once.
func TestTheFirstAndLastCharactersOfUTF8ArePartOfIt(t *testing.T) {
	edges := []rune{
		0x80, 0x7FF, 0x800, 0xFFF, 0x1000, 0xCFFF, 0xD000, 0xD7FF, 0xE000, 0xFFFF,
		0x10000, 0x3FFFF, 0x40000, 0xFFFFF, 0x100000, utf8.MaxRune,
	}
	var tokens []string
	for _, r := range edges {
		tokens = append(tokens, string(r), "a"+string(r))
	}
	v := words(t, tokens)
	for _, without := range append(edges, 0) {
		b := NewBuilder()
		g, err := b.Compile(b.Repeat(b.Runes(Invert([]Range{{without, without}})), 0, Unbounded))
		if err != nil {
			t.Fatal(err)
		}
		a, err := NewAutomaton(g, v)
		if err != nil {
			t.Fatal(err)
		}
		mask, err := a.Mask(a.Start())
		if err != nil {
			t.Fatal(err)
		}
		for id, text := range tokens {
			if want := !strings.ContainsRune(text, without); mask.Has(int32(id)) != want {
				t.Errorf("without %U: token %+q is allowed: %v, want %v", without, text, !want, want)
			}
		}
		w := walk{a: a, t: a.trie(a.Start())}
		if all := w.free(a.Start()).of&beyond != 0; all != (without == 0) {
			t.Errorf("without %U: every character beyond ASCII may follow: %v", without, all)
		}
	}
}

// Finding out what may follow freely ends where a mask may take no more work, and the mask fails.
func TestFreeCharactersAreFoundWithinTheWorkOfAMask(t *testing.T) {
	b := NewBuilder()
	g, err := b.Compile(b.Repeat(b.Runes(AnyRune()), 0, Unbounded))
	if err != nil {
		t.Fatal(err)
	}
	a, err := NewAutomaton(g, words(t, []string{"a", "é"}))
	if err != nil {
		t.Fatal(err)
	}
	s := a.Start()
	w := walk{a: a, t: a.trie(s), out: make(Mask, 1)}
	if w.free(s).of != plain {
		t.Error("not all characters may follow")
	}
	took := w.work
	if w.work = limits.GrammarWork - took; w.free(s).of != plain {
		t.Error("not all characters may follow, with enough work left")
	}
	w.work = limits.GrammarWork - took/2
	if got := w.free(s).of; got != 0 || w.work > limits.GrammarWork+took/2 {
		t.Errorf("found %b after work %d, the limit is %d", got, w.work, limits.GrammarWork)
	}
	if err := w.whole(s); !errors.Is(err, errAmbiguous) {
		t.Errorf("%v, want %v", err, errAmbiguous)
	}
}

// Where texts go on for ever, but what may follow depends on what they were, as with names of which some are
// taken, tokens with quotes are judged by all of their characters.
func TestTokensAreJudgedByTheNamesBeforeTheirQuotes(t *testing.T) {
	var tokens []string
	for _, name := range []string{"", "a", "ab", "abc", "b", "é", "abé"} {
		for _, end := range []string{"", `"`, `":`, `"x`} {
			if name+end != "" {
				tokens = append(tokens, name+end)
			}
		}
	}
	for i := range 200 { // so that many tokens are below one letter
		tokens = append(tokens, "a"+string(rune('a'+i%26))+string(rune('a'+i/26))+`"`)
	}
	b := NewBuilder()
	taken, err := b.Words([]string{"ab", "abc", "é"})
	if err != nil {
		t.Fatal(err)
	}
	all, err := b.DFA(b.Repeat(b.Runes(Invert([]Range{{0, 0x1F}, {'"', '"'}, {'\\', '\\'}})), 0, Unbounded))
	if err != nil {
		t.Fatal(err)
	}
	free, err := b.Without(all, taken)
	if err != nil {
		t.Fatal(err)
	}
	g, err := b.Compile(b.Seq(b.Automaton(free), b.Text(`":`)))
	if err != nil {
		t.Fatal(err)
	}
	a, err := NewAutomaton(g, words(t, tokens))
	if err != nil {
		t.Fatal(err)
	}
	for _, before := range []string{"", "a", "ab", "x", "é"} {
		s := a.Read(a.Start(), []byte(before))
		mask, err := a.Mask(s)
		if err != nil {
			t.Fatal(err)
		}
		for id, text := range tokens {
			if want := a.Read(s, []byte(text)) != nil; mask.Has(int32(id)) != want {
				t.Errorf("after %q token %q is allowed: %v, want %v", before, text, !want, want)
			}
		}
	}
}
