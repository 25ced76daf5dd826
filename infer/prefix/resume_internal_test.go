package prefix

import (
	"slices"
	"testing"
)

// Of sequences that can be continued in few places, the one is found that can be continued furthest, and is found
// again by the tokens that it has.
func TestASequenceIsContinuedWhereItCanBe(t *testing.T) {
	c := New[int](Limit{Entries: 4}, func(int) {})
	c.resume = func(every, n int) int { return n / every * every }
	tokens := make([]int32, 100)
	other := append(slices.Clone(tokens[:70]), slices.Repeat([]int32{1}, 30)...)
	c.Put(tokens, 32)
	c.Put(other, 50) // used last
	if n := c.Match(tokens); n != 96 {
		t.Errorf("%d tokens are shared, want 96, where the first goes on", n)
	}
	if n := c.Match(tokens[:68]); n != 64 {
		t.Errorf("of 68, %d tokens are shared, want 64", n)
	}
	if v, n := c.Find(tokens[:64]); v != 32 || n != 64 {
		t.Errorf("found is sequence %d with %d tokens, want that of 32 with 64", v, n)
	}
	if v, n := c.Find(tokens[:50]); v != 50 || n != 50 {
		t.Errorf("found is sequence %d with %d tokens, want that of 50 with 50", v, n)
	}
	if n := c.Match(tokens[:20]); n != 0 {
		t.Errorf("%d of 20 tokens are shared, where none goes on", n)
	}
	if _, n := c.Find(tokens[:20]); n != 0 {
		t.Errorf("%d of 20 tokens are found, where none goes on", n)
	}
}
