package prefix_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"talf/infer/prefix"
)

// A naive cache is a list, the least recently used first.
type naive struct {
	limit prefix.Limit
	all   []held
	gone  []int
}

type held struct {
	tokens []int32
	id     int
}

func common(a, b []int32) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

func (x *naive) match(tokens []int32) (at, n int) {
	at = -1
	for i, h := range x.all {
		if m := common(h.tokens, tokens); m > 0 && m >= n {
			at, n = i, m
		}
	}
	return at, n
}

func (x *naive) use(i int) {
	h := x.all[i]
	x.all = append(slices.Delete(x.all, i, i+1), h)
}

func (x *naive) tokens() int {
	seen := map[string]bool{}
	for _, h := range x.all {
		for n := range h.tokens {
			seen[fmt.Sprint(h.tokens[:n+1])] = true
		}
	}
	return len(seen)
}

func (x *naive) evict() bool {
	if len(x.all) == 0 {
		return false
	}
	x.gone = append(x.gone, x.all[0].id)
	x.all = x.all[1:]
	return true
}

func (x *naive) shrink() {
	for len(x.all) > x.limit.Entries || x.limit.Bytes > 0 && int64(x.tokens())*x.limit.PerToken > x.limit.Bytes {
		x.evict()
	}
}

func (x *naive) put(tokens []int32, id int) {
	if i, n := x.match(tokens); n == len(tokens) {
		if i >= 0 {
			x.use(i)
		}
		x.gone = append(x.gone, id)
		return
	}
	if x.limit.Entries < 1 || x.limit.Bytes > 0 && int64(len(tokens))*x.limit.PerToken > x.limit.Bytes {
		x.gone = append(x.gone, id)
		return
	}
	for i := 0; i < len(x.all); i++ {
		if h := x.all[i]; common(h.tokens, tokens) == len(h.tokens) {
			x.gone = append(x.gone, h.id)
			x.all = slices.Delete(x.all, i, i+1)
			i--
		}
	}
	x.all = append(x.all, held{slices.Clone(tokens), id})
	x.shrink()
}

// Whatever is put, found, bounded and evicted, the tree behaves like a list: it matches as many
// tokens, finds the same sequence, stores as many tokens and drops the same values, in the same
// order and once each.
func TestTheTreeIsAListThatIsFaster(t *testing.T) {
	for range 60 { // histories are short and cheap, and rapid makes few of them under -short
		rapid.Check(t, likeAList)
	}
}

func likeAList(t *rapid.T) {
	limits := rapid.Custom(func(t *rapid.T) prefix.Limit {
		return prefix.Limit{
			Entries: rapid.IntRange(0, 9).Draw(t, "entries"), PerToken: 3,
			Bytes: int64(rapid.SampledFrom([]int{0, 0, 1, 9, 30, 40, 90}).Draw(t, "bytes")),
		}
	})
	// Three tokens, and sequences that continue others: prefixes are often shared.
	var known [][]int32
	sequences := rapid.Custom(func(t *rapid.T) []int32 {
		tail := rapid.SliceOfN(rapid.Int32Range(0, 2), 0, 6).Draw(t, "tail")
		if len(known) == 0 || rapid.Bool().Draw(t, "fresh") {
			return tail
		}
		head := rapid.SampledFrom(known).Draw(t, "head")
		return slices.Concat(head[:rapid.IntRange(0, len(head)).Draw(t, "of it")], tail)
	})
	want := &naive{limit: limits.Draw(t, "limit")}
	var gone []int
	got := prefix.New(want.limit, func(id int) { gone = append(gone, id) })
	t.Repeat(map[string]func(*rapid.T){
		"put": func(t *rapid.T) {
			s := sequences.Draw(t, "tokens")
			known = append(known, slices.Clone(s))
			id := len(known)
			want.put(s, id)
			got.Put(s, id)
			clear(s) // it was copied
		},
		"find": func(t *rapid.T) {
			s := sequences.Draw(t, "tokens")
			i, n := want.match(s)
			if m := got.Match(s); m != n {
				t.Fatalf("%v matches %d tokens, want %d", s, m, n)
			}
			id, m := got.Find(s)
			if m != n || n > 0 && id != want.all[i].id {
				t.Fatalf("%v: %d tokens of sequence %d, want %d of %v", s, m, id, n, want.all[i])
			}
			if n > 0 {
				want.use(i)
			}
		},
		"evict": func(t *rapid.T) {
			if a, b := got.Evict(), want.evict(); a != b {
				t.Fatalf("evicted %v, want %v", a, b)
			}
		},
		"bound": func(t *rapid.T) {
			want.limit = limits.Draw(t, "limit")
			want.shrink()
			got.Bound(want.limit)
		},
		"": func(t *rapid.T) {
			if !slices.Equal(gone, want.gone) {
				t.Fatalf("let go %v, want %v", gone, want.gone)
			}
			if got.Len() != len(want.all) || got.Tokens() != want.tokens() {
				t.Fatalf("%d sequences of %d tokens, want %d of %d", got.Len(), got.Tokens(), len(want.all), want.tokens())
			}
		},
	})
}

// A sequence that is larger than the limit does not push out those that fit.
func TestASequenceThatDoesNotFitLeavesTheOthers(t *testing.T) {
	var gone []string
	c := prefix.New(prefix.Limit{Entries: 9, Bytes: 40, PerToken: 10}, func(s string) { gone = append(gone, s) })
	c.Put([]int32{1, 2}, "short")
	c.Put([]int32{3, 4}, "another")
	c.Put([]int32{1, 2, 3, 4, 5}, "long")
	if want := []string{"long"}; !slices.Equal(gone, want) || c.Len() != 2 || c.Match([]int32{1, 2, 3}) != 2 {
		t.Errorf("let go %v, want %v; %d sequences are left", gone, want, c.Len())
	}
}

// Among several that share as much, the one used last is found, even after others are gone.
func TestTheLastUsedIsFound(t *testing.T) {
	for first := range 20 { // the tree's maps are in any order
		c := prefix.New(prefix.Limit{Entries: 9}, func(int32) {})
		for i := range int32(6) {
			c.Put([]int32{1, i}, i)
		}
		last, _ := c.Find([]int32{1, int32(1 + first%5)})
		c.Evict()
		if got, n := c.Find([]int32{1, 9}); got != last || n != 1 {
			t.Fatalf("found sequence %d by %d tokens, want %d by 1", got, n, last)
		}
	}
}

func TestAConversationIsOneSequence(t *testing.T) {
	var gone []string
	c := prefix.New(prefix.Limit{Entries: 2}, func(s string) { gone = append(gone, s) })
	c.Put([]int32{1, 2}, "one turn")
	c.Put([]int32{9}, "another conversation")
	c.Put([]int32{1, 2, 3}, "two turns")
	c.Put([]int32{1, 2, 3, 4}, "three turns")
	if want := []string{"one turn", "two turns"}; !slices.Equal(gone, want) || c.Len() != 2 || c.Tokens() != 5 {
		t.Errorf("let go %v, want %v; %d sequences of %d tokens, want 2 of 5", gone, want, c.Len(), c.Tokens())
	}
}

// A look-up costs as much as matches, not as much as is stored.
func BenchmarkFind(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 1))
	system := make([]int32, 2000)
	for i := range system {
		system[i] = rng.Int32N(32000)
	}
	for _, n := range []int{10, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			c := prefix.New(prefix.Limit{Entries: n}, func(int) {})
			var last []int32
			for i := range n {
				last = slices.Clone(system)
				for range 200 {
					last = append(last, rng.Int32N(32000))
				}
				c.Put(last, i)
			}
			for b.Loop() {
				if _, m := c.Find(last); m != len(last) {
					b.Fatal(m)
				}
			}
		})
	}
}
