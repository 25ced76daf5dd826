package lookup_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"talf/infer/lookup"
)

// after returns the position after the latest occurrence of key that ends at or before most, or
// -1, by searching everywhere: the definition.
func after(tokens, key []int32, most int) int {
	for end := most; end >= len(key); end-- {
		if slices.Equal(tokens[end-len(key):end], key) {
			return end
		}
	}
	return -1
}

func TestAnIndexFindsWhatASearchFinds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lo := rapid.IntRange(1, 3).Draw(t, "lo")
		hi := lo + rapid.IntRange(0, 3).Draw(t, "more")
		vocab := rapid.Int32Range(1, 4).Draw(t, "vocab")
		token := rapid.Int32Range(0, vocab)
		c := lookup.NewContext(lo, hi)
		var want []int32
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			switch rapid.IntRange(0, 9).Draw(t, "op") {
			case 0:
				c.Reset()
				want = want[:0]
			case 1, 2:
				n := rapid.IntRange(0, len(want)+2).Draw(t, "left")
				c.Truncate(n)
				want = want[:min(n, len(want))]
			default:
				more := rapid.SliceOfN(token, 1, 60).Draw(t, "more")
				c.Append(more...)
				want = append(want, more...)
			}
			if !slices.Equal(c.Tokens(), want) {
				t.Fatalf("tokens %v, want %v", c.Tokens(), want)
			}
			for n := lo; n <= hi; n++ {
				for end := 1; end <= len(want); end++ {
					w := -1
					if end >= n {
						w = after(want, want[end-n:end], end-1)
					}
					if got := c.Earlier(n, end); got != w {
						t.Fatalf("%v: before the %d tokens before %d: %d, want %d", want, n, end, got, w)
					}
				}
				key := rapid.SliceOfN(token, n, n).Draw(t, "key")
				if got, w := c.Find(key), after(want, key, len(want)); got != w {
					t.Fatalf("%v: after %v: %d, want %d", want, key, got, w)
				}
			}
			checkMatch(t, c, want, lo, hi)
		}
	})
}

// first returns the position after the first occurrence of the last n tokens.
func first(tokens []int32, n int) int {
	for end := n; ; end++ {
		if slices.Equal(tokens[end-n:end], tokens[len(tokens)-n:]) {
			return end
		}
	}
}

func checkMatch(t *rapid.T, c *lookup.Context, tokens []int32, lo, hi int) {
	var next []int // of the lengths that occurred, longest first
	longest := 0
	for n := min(hi, len(tokens)); n >= lo; n-- {
		if at := after(tokens, tokens[len(tokens)-n:], len(tokens)-1); at >= 0 {
			longest = max(longest, n)
			next = append(next, at)
		}
	}
	m, ok := c.Match()
	if ok != (len(next) > 0) {
		t.Fatalf("%v: match %v, %v of the lengths occurred", tokens, m, next)
	}
	if !ok {
		return
	}
	agree := false
	for i, a := range next {
		for _, b := range next[:i] {
			agree = agree || tokens[a] == tokens[b]
		}
	}
	if want := (lookup.Match{N: longest, Next: next[0], Agree: agree}); m != want {
		t.Fatalf("%v: match %+v, want %+v", tokens, m, want)
	}
	if f, ok := c.MatchFirst(); !ok || f.N != longest || f.Next != first(tokens, longest) {
		t.Fatalf("%v: first match %+v, want one of %d tokens before %d", tokens, f, longest, first(tokens, longest))
	}
	length := 0
	for length < m.Next && tokens[m.Next-1-length] == tokens[len(tokens)-1-length] {
		length++
	}
	if got := c.Length(m.Next, 1000); got != length || c.Length(m.Next, 2) != min(2, length) {
		t.Fatalf("%v: length of %+v is %d, want %d", tokens, m, got, length)
	}
}

func TestAContinuationRepeatsItself(t *testing.T) {
	c := lookup.NewContext(3, 5)
	c.Append(9, 1, 2, 3, 8, 7, 1, 2, 3)
	for _, want := range [][]int32{{}, {8}, {8, 7, 1, 2, 3}, {8, 7, 1, 2, 3, 8, 7, 1, 2, 3, 8, 7}} {
		m, _ := c.Match()
		if got := c.Continue([]int32{5}, m.Next, len(want)); !slices.Equal(got, append([]int32{5}, want...)) {
			t.Errorf("%d tokens from %d on: %v, want 5 and %v", len(want), m.Next, got, want)
		}
	}
}

// A long context that grows and shrinks allocates nothing once it has reached its largest length.
func TestContextsStopAllocating(t *testing.T) {
	c := lookup.NewContext(3, 5)
	r := rand.New(rand.NewPCG(1, 2))
	text := make([]int32, 5000)
	for i := range text {
		text[i] = r.Int32N(50)
	}
	c.Append(text...)
	var dst []int32
	if n := testing.AllocsPerRun(20, func() {
		c.Truncate(4000)
		c.Append(text[4000:]...)
		m, ok := c.Match()
		if ok {
			dst = c.Continue(dst[:0], m.Next, 20)
		}
		c.Reset()
		c.Append(text...)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkContext(b *testing.B) {
	c := lookup.NewContext(3, 5)
	r := rand.New(rand.NewPCG(1, 2))
	text := make([]int32, 1<<16)
	for i := range text {
		text[i] = r.Int32N(1000)
	}
	c.Append(text...)
	dst := make([]int32, 0, 20)
	b.Run("append", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			if c.Len() == 1<<17 {
				c.Truncate(1 << 16)
			}
			c.Append(text[i&(1<<16-1)])
		}
	})
	b.Run("match", func(b *testing.B) {
		for b.Loop() {
			if m, ok := c.Match(); ok {
				dst = c.Continue(dst[:0], m.Next, 20)
			}
		}
	})
}
