package grammar_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"talf/internal/leak"
	"talf/internal/limits"
	"talf/text/grammar"
	"talf/text/grammar/gbnf"
	"talf/text/grammar/grammartest"
	"talf/text/grammar/schema"
)

func TestMain(m *testing.M) { os.Exit(leak.Main(m.Run)) }

func compile(t testing.TB, rules string) *grammar.Grammar {
	t.Helper()
	b := grammar.NewBuilder()
	e, err := gbnf.Compile(b, rules)
	if err != nil {
		t.Fatal(err)
	}
	g, err := b.Compile(e)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func anyJSON(t testing.TB) *grammar.Grammar {
	t.Helper()
	b := grammar.NewBuilder()
	g, err := b.Compile(schema.Config{Blanks: true}.Any(b))
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// pieces are tokens that end inside characters, reach over several parts of JSON, repeat each
// other, or are never text.
var pieces = []string{
	"{", "}", "[", "]", ",", ":", `"`, `\`, `{"`, `":`, `": "`, `"}`, `"]}`, `],[`, "true", "tr", "ue", "false", "null", "nul", "-", "0", "1", "12", "1.5", "e+", "E", ".",
	" ", "\n", "\n  ", "\t", "a", "b", "ab", "é", "\xc3", "\xa9", "\xe2\x82", "\xac", "\xf0\x9f", "\x98\x80", `\u`, "d8", "3d", "00", `\n`, `\ud83d\ude00`, "a", "",
	"\xff", `""`, `{}`, `[{"a":`,
}

// walk follows random tokens that are allowed, and checks every mask on the way against what the
// bytes of each token do.
func walk(t *testing.T, a *grammar.Automaton, tokens []string, r *rand.Rand, steps int) (text string, end *grammar.State) {
	t.Helper()
	s := a.Start()
	for range steps {
		mask, err := a.Mask(s)
		if err != nil {
			t.Fatal(err)
		}
		var may []int32
		for id, tok := range tokens {
			to := a.Read(s, []byte(tok))
			if want := to != nil && tok != ""; mask.Has(int32(id)) != want {
				t.Fatalf("after %q: token %q is allowed: %v, want %v", text, tok, !want, want)
			}
			if mask.Has(int32(id)) {
				may = append(may, int32(id))
			}
		}
		if len(may) != mask.Count() || (len(may) > 0) != mask.Any() {
			t.Fatalf("%d tokens in a mask, want %d", mask.Count(), len(may))
		}
		if len(may) == 0 {
			break
		}
		id := may[r.IntN(len(may))]
		if s.Accepting() && r.IntN(4) == 0 {
			break
		}
		s = a.Next(s, id)
		text += tokens[id]
	}
	return text, s
}

func TestMasksAreWhatTheBytesAllow(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, g := range []*grammar.Grammar{
		anyJSON(t),
		compile(t, `root ::= "[" root "]" root | "a"{0,5} | "é" . | ""`),
		compile(t, `root ::= ("a" | "ab" | "b"){3,9} ("]" | "}" root)?`),
	} {
		a, err := grammar.NewAutomaton(g, grammartest.Words(pieces...))
		if err != nil {
			t.Fatal(err)
		}
		for range 60 {
			walk(t, a, pieces, r, 60)
		}
	}
}

// What ends is JSON, and what has not ended is the beginning of some JSON.
func TestAnyValueIsJSON(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	a, err := grammar.NewAutomaton(anyJSON(t), grammartest.Words(pieces...))
	if err != nil {
		t.Fatal(err)
	}
	ended := 0
	for range 400 {
		text, s := walk(t, a, pieces, r, 40)
		if s.Accepting() {
			ended++
		}
		if got := json.Valid([]byte(text)); got != s.Accepting() || s.Accepting() && !utf8.ValidString(text) {
			t.Fatalf("%q: may end here: %v, JSON: %v", text, s.Accepting(), got)
		}
	}
	if ended < 100 {
		t.Errorf("%d of 400 texts ended", ended)
	}
}

// Every value that encoding/json writes is reached, indented or not.
func TestWhatIsJSONIsAllowed(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	var value func(depth int) any
	value = func(depth int) any {
		switch n := r.IntN(9); {
		case n == 0:
			return nil
		case n == 1:
			return r.IntN(2) == 0
		case n == 2:
			return r.NormFloat64() * 1e9
		case n == 3:
			return r.IntN(1000) - 500
		case n < 6 || depth == 0:
			runes := []rune("a\"\\/\n\x01é€😀\u2028<")
			s := ""
			for range r.IntN(5) {
				s += string(runes[r.IntN(len(runes))])
			}
			return s
		case n == 6:
			list := []any{}
			for range r.IntN(4) {
				list = append(list, value(depth-1))
			}
			return list
		}
		m := map[string]any{}
		for range r.IntN(4) {
			m[fmt.Sprint(r.IntN(100))] = value(depth - 1)
		}
		return m
	}
	a, err := grammar.NewAutomaton(anyJSON(t), grammartest.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	for range 500 {
		v := value(4)
		for _, indent := range []string{"", "  ", "\t"} {
			raw, err := json.MarshalIndent(v, "", indent)
			if indent == "" {
				raw, err = json.Marshal(v)
			}
			if err != nil {
				t.Fatal(err)
			}
			if s := a.Read(a.Start(), raw); s == nil || !s.Accepting() {
				t.Fatalf("%s is refused", raw)
			}
		}
	}
	for _, bad := range []string{`"\ud800"`, `"\udc00x"`, `"\ud83dx"`, "01", "1.", "+1", ".5", "[1,]", `{"a":1,}`, "'a'", "\"\n\"", "nul", "[1 2]", "\xff", "\"\xc0\x80\"", "\"\xed\xa0\x80\""} {
		if s := a.Read(a.Start(), []byte(bad)); s != nil && s.Accepting() {
			t.Errorf("%q is allowed", bad)
		}
	}
	deep := strings.Repeat("[", 1000) + strings.Repeat("]", 1000)
	if s := a.Read(a.Start(), []byte(deep)); s == nil || !s.Complete() {
		t.Error("a thousand nested lists are refused")
	}
}

// The first token of a text may read differently; added tokens are no text at any place.
func TestFirstTokensAndAddedTokens(t *testing.T) {
	tokens := []string{" a", "a", "b", "<s>"}
	v, err := grammar.NewVocabulary(grammar.Speller{
		Size:  70, // more rows than tokens
		Bytes: func(id int32) ([]byte, bool) { return []byte(tokens[min(id, 3)]), id < 3 },
		First: func(id int32) ([]byte, bool) { return []byte(strings.TrimPrefix(tokens[min(id, 3)], " ")), id < 3 },
	})
	if err != nil {
		t.Fatal(err)
	}
	a, err := grammar.NewAutomaton(compile(t, `root ::= "a" " a" ("b" | "<s>")`), v)
	if err != nil {
		t.Fatal(err)
	}
	s := a.Start()
	for i, want := range [][]int32{{0, 1}, {0}, {2}} {
		mask, err := a.Mask(s)
		if err != nil {
			t.Fatal(err)
		}
		for id := range int32(80) {
			if mask.Has(id) != slices.Contains(want, id) {
				t.Errorf("token %d of the text: %d is allowed: %v", i, id, mask.Has(id))
			}
		}
		s = a.Next(s, want[0])
	}
	if !s.Complete() || a.Next(s, 2) != nil || a.Next(s, 3) != nil || a.Next(s, -1) != nil || a.Next(s, 99) != nil {
		t.Error("the text goes on after its end")
	}
}

func TestForcedSpansAreWhatHasToFollow(t *testing.T) {
	a, err := grammar.NewAutomaton(compile(t, `root ::= "{\"name\": " ("\"x" | "\"y") [z] ("!" | "")`), grammartest.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	for before, want := range map[string]string{"": `{"name": "`, `{"na`: `me": "`, `{"name": "x`: "z", `{"name": "xz`: "", `{"name": "xz!`: ""} {
		if got := string(a.Forced(a.Read(a.Start(), []byte(before)), 100)); got != want {
			t.Errorf("after %q follows %q, want %q", before, got, want)
		}
	}
	if got := string(a.Forced(a.Start(), 3)); got != `{"n` {
		t.Errorf("three bytes of what follows are %q", got)
	}
}

// Answers do not depend on what an automaton remembers, nor on who else asks.
func TestStatesAreForkedAndShared(t *testing.T) {
	v := grammartest.Words(pieces...)
	a, err := grammar.NewAutomaton(anyJSON(t), v)
	if err != nil {
		t.Fatal(err)
	}
	var wait sync.WaitGroup
	for range 4 {
		wait.Go(func() {
			r := rand.New(rand.NewPCG(9, 9))
			for range 20 {
				walk(t, a, pieces, r, 30)
			}
		})
	}
	wait.Wait()
	if n := a.Computed(); n == 0 || n > 4*20*30/2 {
		t.Errorf("%d masks were computed for %d questions", n, 4*20*30)
	}
}

func TestHostileGrammarsEndAtALimit(t *testing.T) {
	// The states of this one are sets of counts that double with every letter.
	a, err := grammar.NewAutomaton(compile(t, `root ::= ("a" | "aa" | "aaa" | "b"){0,16000000} "c"`), grammartest.Words("a", strings.Repeat("a", 4000), "b", "c"))
	if err != nil {
		t.Fatal(err)
	}
	s := a.Start()
	for range 4 {
		mask, err := a.Mask(s)
		if err != nil || !mask.Has(0) || !mask.Has(3) {
			t.Fatalf("%v, %v", mask, err)
		}
		s = a.Next(s, 0)
	}
	if s := a.Read(a.Start(), []byte(strings.Repeat("a", 1<<14))); s != nil {
		t.Error("more ways to go on than the limit are kept")
	}
	b := grammar.NewBuilder()
	var all []grammar.Expr
	for i := range limits.GrammarStacks + 2 {
		all = append(all, b.Text(fmt.Sprint("x", i)))
	}
	g, err := b.Compile(b.Alt(all...))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := grammar.NewAutomaton(g, grammartest.Bytes()); !errors.Is(err, limits.ErrTooLarge) {
		t.Errorf("too many alternatives: %v", err)
	}
	b = grammar.NewBuilder()
	x := b.Text("x")
	for range limits.GrammarSize {
		x = b.Seq(x, x)
	}
	if _, err := b.Compile(x); !errors.Is(err, limits.ErrTooLarge) {
		t.Errorf("too many expressions: %v", err)
	}
}

func TestAutomataOfSeveralPatterns(t *testing.T) {
	dfa := func(rules string) *grammar.DFA {
		b := grammar.NewBuilder()
		e, err := gbnf.Compile(b, rules)
		if err != nil {
			t.Fatal(err)
		}
		d, err := b.DFA(e)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	texts := func(d *grammar.DFA, err error) []string {
		if err != nil {
			t.Fatal(err)
		}
		b := grammar.NewBuilder()
		g, err := b.Compile(b.Automaton(d))
		if errors.Is(err, grammar.ErrNothing) {
			return nil
		}
		if err != nil {
			t.Fatal(err)
		}
		out, err := grammartest.Texts(g, 4)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range out {
			if !d.Match(s) {
				t.Errorf("%q is reached and does not match", s)
			}
		}
		return out
	}
	b := grammar.NewBuilder()
	ab := dfa(`root ::= [ab]{0,3}`)
	endsInB := dfa(`root ::= .* "b"`)
	if got, want := texts(b.And(ab, endsInB)), []string{"aab", "ab", "abb", "b", "bab", "bb", "bbb"}; !slices.Equal(got, want) {
		t.Errorf("and: %q, want %q", got, want)
	}
	if got, want := texts(b.Without(ab, endsInB)), []string{"", "a", "aa", "aaa", "aba", "ba", "baa", "bba"}; !slices.Equal(got, want) {
		t.Errorf("without: %q, want %q", got, want)
	}
	if got, want := texts(b.Or(dfa(`root ::= "a" "b"?`), dfa(`root ::= "c" | "a"`))), []string{"a", "ab", "c"}; !slices.Equal(got, want) {
		t.Errorf("or: %q, want %q", got, want)
	}
	if d, err := b.And(ab, dfa(`root ::= "c"`)); err != nil || !d.Empty() || d.Match("") {
		t.Errorf("nothing in common: %v, %v", d, err)
	}
	// The automaton of the last letters is exponential in their number.
	b = grammar.NewBuilder()
	e, err := gbnf.Compile(b, `root ::= [ab]* "a" [ab]{30}`)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.DFA(e); !errors.Is(err, limits.ErrTooLarge) {
		t.Errorf("an automaton of 2^31 states: %v", err)
	}
}
