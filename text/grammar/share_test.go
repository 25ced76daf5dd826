package grammar

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"talf/internal/limits/costtest"
)

// words returns a vocabulary of texts; the first token of a text drops a space.
func words(t testing.TB, tokens []string) *Vocabulary {
	text := func(id int32) ([]byte, bool) {
		if int(id) >= len(tokens) {
			return nil, false
		}
		return []byte(tokens[id]), true
	}
	first := func(id int32) ([]byte, bool) {
		b, ok := text(id)
		if ok && len(b) > 1 && b[0] == ' ' {
			b = b[1:]
		}
		return b, ok
	}
	v, err := NewVocabulary(Speller{Size: len(tokens) + 3, Bytes: text, First: first})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// anything draws an expression in which strings, counts and automata stand in many contexts.
func anything(b *Builder, r *rand.Rand, depth int, rule Expr) Expr {
	var set ByteSet
	set.AddRange('a', 'h')
	wide := b.Runes([]Range{{' ', '!'}, {'#', '~'}, {0xA0, 0x2FF}})
	str := func(lo, hi int) Expr { return b.Seq(b.Text(`"`), b.Repeat(wide, lo, hi), b.Text(`"`)) }
	if depth == 0 {
		switch r.IntN(8) {
		case 0:
			return str(0, Unbounded)
		case 6: // properties with a name, and others
			named := []string{"ab", "é", "a", "x:b", "ba"}[:1+r.IntN(5)]
			out := []Expr{}
			for i, n := range named {
				out = append(out, b.Seq(b.Text(`"`+n+`"`), b.Text(":"), []Expr{b.Text("[]"), str(0, Unbounded), rule}[i%3]))
			}
			all, err := b.DFA(b.Repeat(wide, 0, Unbounded))
			if err != nil {
				panic(err)
			}
			taken, err := b.Words(named)
			if err == nil {
				all, err = b.Without(all, taken)
			}
			if err != nil {
				panic(err)
			}
			return b.Alt(append(out, b.Seq(b.Text(`"`), b.Automaton(all), b.Text(`":`), b.Bytes(set)))...)
		case 7: // what is counted beside an automaton
			unit, err := b.DFA(b.Repeat(wide, 0, Unbounded))
			if err != nil {
				panic(err)
			}
			d, err := b.DFA(b.Repeat([]Expr{wide, b.Alt(b.Text("ab"), b.Text("é"), b.Bytes(set)), b.Text("xé")}[r.IntN(3)], 0, Unbounded))
			if err != nil {
				panic(err)
			}
			lo := r.IntN(2) * r.IntN(20)
			hi := lo + r.IntN(200)
			if r.IntN(4) == 0 {
				hi = Unbounded
			}
			e, err := b.Counted(d, unit, lo, hi)
			if err != nil {
				panic(err)
			}
			return b.Seq(b.Text(`"`), e, b.Text(`"`))
		case 1:
			lo := r.IntN(4)
			return str(lo, lo+1+r.IntN(40))
		case 2:
			d, err := b.DFA(b.Repeat(wide, r.IntN(3), Unbounded))
			if err != nil {
				panic(err)
			}
			return b.Seq(b.Text(`"`), b.Automaton(d), b.Text(`"`))
		case 3:
			return b.Repeat(wide, 1, Unbounded)
		case 4:
			return b.Seq(b.Text("ab"), b.Bytes(set))
		}
		return b.Seq(b.Text("["), rule, b.Text("]"))
	}
	sub := func() Expr { return anything(b, r, depth-1, rule) }
	switch r.IntN(4) {
	case 0:
		return b.Alt(sub(), sub())
	case 1:
		return b.Repeat(b.Seq(sub(), b.Text(",")), 0, 1+r.IntN(3))
	case 2:
		return b.Optional(sub())
	}
	return b.Seq(sub(), b.Text(":"), sub())
}

// Masks that are computed by what grammars have in common are those of the whole trie, in any order
// of grammars and states, and Next agrees with them.
func TestSharedMasksAreThoseOfTheTrie(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 8))
	var tokens []string
	for c := range 256 {
		tokens = append(tokens, string([]byte{byte(c)}))
	}
	letters := []string{"a", "b", `"`, `",`, ":", "[", "]", " ", "é", "\xc3", "\xa9", "x", `":"`, "ab"}
	for range 600 {
		text := ""
		for range 1 + r.IntN(5) {
			text += letters[r.IntN(len(letters))]
		}
		tokens = append(tokens, text)
	}
	for range 500 { // words of one kind of characters or several, up to some that are longer than most
		kinds := []string{"abh", "AZ", "07", "-", "_ ", "./", "é¡ʯ", "~!"}
		r.Shuffle(len(kinds), func(i, j int) { kinds[i], kinds[j] = kinds[j], kinds[i] })
		from := []rune(strings.Join(kinds[:1+r.IntN(3)], ""))
		text := ""
		for range 1 + r.IntN(1+r.IntN(36)) {
			text += string(from[r.IntN(len(from))])
		}
		tokens = append(tokens, text)
	}
	v := words(t, tokens)
	used, again, free, beside := 0, 0, 0, 0
	for trial := range 120 {
		b := NewBuilder()
		rule := b.Rule("r")
		b.Define(rule, anything(b, r, 2, rule))
		g, err := b.Compile(rule)
		if err != nil {
			continue
		}
		a, err := NewAutomaton(g, v)
		if err != nil {
			t.Fatal(err)
		}
		for range 4 {
			s := a.Start()
			for range 12 {
				a.mu.Lock()
				heads := len(v.heads.kept)
				m, ok := a.shared(s, false)
				if x := a.spread(s); x.rich(a.trie(s)) && a.settled(s, &x) != nil {
					beside++
				}
				added := len(v.heads.kept) - heads
				own, can := a.shared(s, true)
				plain, known := a.plain(s), walk{a: a, t: a.trie(s)}
				if known.free(s).of != 0 {
					free++
				}
				each := walk{a: a, t: a.trie(s), out: make(Mask, (v.size+63)/64)}
				if err := each.each(s); err != nil {
					t.Fatal(err)
				}
				a.mu.Unlock()
				if !slices.Equal(plain.bits, each.out) {
					t.Fatalf("trial %d: %d tokens, each by itself gives %d", trial, plain.bits.Count(), each.out.Count())
				}
				if can && !slices.Equal(own.bits, plain.bits) {
					t.Fatalf("trial %d: %d tokens alone, the whole trie gives %d", trial, own.bits.Count(), plain.bits.Count())
				}
				if ok {
					used++
					if added == 0 {
						again++
					}
					if !slices.Equal(m.bits, plain.bits) || fmt.Sprint(m.err) != fmt.Sprint(plain.err) {
						t.Fatalf("trial %d: %d tokens, the whole trie gives %d", trial, m.bits.Count(), plain.bits.Count())
					}
				}
				if plain.bits.Count() == 0 {
					break
				}
				id := r.Int32N(int32(len(tokens)))
				for !plain.bits.Has(id) {
					id = (id + 1) % int32(len(tokens))
				}
				if s = a.Next(s, id); s == nil {
					t.Fatalf("trial %d: token %q is allowed and leads nowhere", trial, tokens[id])
				}
			}
		}
	}
	if t.Logf("%d masks by %d heads, %d of them by heads that were known; %d with free characters, %d beside those of another state", used, len(v.heads.kept), again, free, beside); used < 1000 || again < used/2 || free < 1000 || beside < 30 {
		t.Error("that tests too little")
	}
}

// A head of no use keeps no mask, and after one that took long no other is tried.
func TestHeadsOfNoUseAreFew(t *testing.T) {
	var tokens []string
	for last := []string{""}; len(last[0]) < 4; {
		var next []string
		for _, w := range last {
			for c := range 8 {
				next = append(next, w+string(rune('a'+c)))
			}
		}
		tokens, last = append(tokens, next...), next
	}
	for _, long := range []bool{false, true} {
		v := words(t, tokens)
		b := NewBuilder()
		var leave, stay ByteSet
		leave.AddRange('a', 'd')
		stay.AddRange('e', 'h')
		part := b.Bytes(stay)
		if long { // to go on
			var empty []Expr
			for range 15_000 {
				empty = append(empty, b.Seq())
			}
			part = b.Seq(part, b.Alt(empty...))
		}
		e := b.Alt(b.Bytes(leave), b.Repeat(part, 500, 500))
		for range 4 {
			e = b.Seq(e, b.Bytes(leave))
		}
		g, err := b.Compile(e)
		if err != nil {
			t.Fatal(err)
		}
		a, err := NewAutomaton(g, v)
		if err != nil {
			t.Fatal(err)
		}
		a.mu.Lock()
		m, ok := a.shared(a.start, false)
		plain := a.plain(a.start)
		a.mu.Unlock()
		if ok == long || ok && !slices.Equal(m.bits, plain.bits) {
			t.Errorf("long: %v, and a head is of use: %v", long, ok)
		}
		none := 0
		for _, h := range v.heads.kept {
			if h.bits == nil && h.leave == nil && h.work > 0 {
				none++
			}
		}
		want := []int{4, 3}
		if long {
			want = []int{1, 1}
		}
		if got := []int{len(v.heads.kept), none}; !slices.Equal(got, want) {
			t.Errorf("long: %v: heads, and those of no use: %d, want %d", long, got, want)
		}
	}
}

// Finding out where most bytes lead costs what it takes, where many states lead each to another one: otherwise masks
// of hostile grammars would have no bound.
func TestWhatStandsOutIsCharged(t *testing.T) {
	const dear = 10_000 // expressions that each step expands
	var tokens []string
	for c := range 256 {
		tokens = append(tokens, string([]byte{byte(c)}))
	}
	v := words(t, append(tokens, strings.Repeat("b", 100)))
	b := NewBuilder()
	var empty, bytes []Expr
	for range dear {
		empty = append(empty, b.Seq())
	}
	for c := byte('!'); c < 'a'; c++ {
		var one ByteSet
		one.Add(c)
		bytes = append(bytes, b.Bytes(one))
	}
	any := b.Seq(b.Alt(bytes...), b.Alt(empty...))
	g, err := b.Compile(b.Seq(b.Text("ab"), any, b.Repeat(any, 0, Unbounded), b.Text("ab")))
	if err != nil {
		t.Fatal(err)
	}
	a, err := NewAutomaton(g, v)
	if err != nil {
		t.Fatal(err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.Read(a.Start(), []byte("ab"))
	x := a.spread(s)
	if a.settled(s, &x) == nil {
		t.Fatal("no state stands out, so that tests nothing")
	}
	w := walk{a: a, t: a.trie(s)}
	if w.ending(s); w.work < 2*len(bytes)*dear {
		t.Errorf("%d steps, of which each expands %d, count as %d", 2*len(bytes), dear, w.work)
	}
	again := walk{a: a, t: a.trie(s)}
	if again.ending(s); again.work != w.work {
		t.Errorf("what is known counts as %d, what was not as %d", again.work, w.work)
	}
}

// What a machine forgets while it finds out where most bytes lead is found as another state each time: masks must not be
// made from those of ever more states.
func TestMasksBesideForgottenStatesEnd(t *testing.T) {
	b := NewBuilder()
	var parts []Expr
	letters := func(from, to byte) {
		for c := from; c <= to; c++ {
			var one ByteSet
			one.Add(c)
			kids := []Expr{b.Bytes(one)}
			for range 7_500 {
				kids = append(kids, b.Empty())
			}
			parts = append(parts, b.Seq(kids...))
		}
	}
	letters('A', 'P') // half of what may be kept
	parts = append(parts, b.Text("ab"))
	letters('h', 'l')
	any := b.Alt(parts...)
	g, err := b.Compile(b.Seq(b.Text("<"), any, b.Repeat(any, 0, Unbounded), b.Text(">")))
	if err != nil {
		t.Fatal(err)
	}
	var tokens []string
	for c := range 256 {
		tokens = append(tokens, string([]byte{byte(c)}))
	}
	costtest.Check(t, "forgotten", costtest.Default, func(context.Context) {
		a, err := NewAutomaton(g, words(t, tokens))
		if err != nil {
			t.Error(err)
			return
		}
		m, err := a.Mask(a.Read(a.Start(), []byte("<")))
		if err != nil || m.Count() != 22 {
			t.Errorf("%d tokens (%v), want 22", m.Count(), err)
		}
		if a.Computed() != 2 || a.m.forgets < 3 { // beginning with one
			t.Errorf("%d masks were computed, and states forgotten %d times: that tests nothing", a.Computed(), a.m.forgets)
		}
	})
}
