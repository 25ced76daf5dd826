package grammar

import (
	"fmt"
	"math"

	"talf/internal/limits"
)

// A counter bounds how many units, such as characters, the texts of an automaton have. The count stands beside the state, so
// that no state is made for each: place count·states + state of the expression is after so many units.
type counter struct {
	ends   []bool     // [state] a unit has just ended, or nothing has begun
	lo, hi int32      // hi Unbounded: any number, and counts end at lo
	left   []int32    // [state] units that end at least on the way to where the text may end
	most   int32      // of these
	early  [][]uint64 // [count below lo] the states after which the text can still be long enough, and not too long, as bits
}

// Counted matches the texts that d accepts and that consist of lo to hi units; unit accepts texts of whole units, as all are that
// d accepts. hi may be Unbounded.
func (b *Builder) Counted(d, unit *DFA, lo, hi int) (Expr, error) {
	d, err := b.And(d, unit) // so that each state is always within a unit or always between two
	if err != nil || d.Empty() {
		return b.Alt(), err
	}
	if hi != Unbounded && (hi < lo || hi < 0) {
		return b.Alt(), nil
	}
	n, most := d.Len(), max(lo, hi)
	if lo < 0 || most > limits.GrammarCount || (int64(most)+1)*int64(n) > math.MaxInt32 {
		return 0, fmt.Errorf("a count of %d to %d in an automaton of %d states: %w", lo, hi, n, limits.ErrTooLarge)
	}
	c := &counter{ends: make([]bool, n), lo: int32(lo), hi: int32(hi)}
	if err := b.charge((lo + 3) * len(d.next)); err != nil {
		return 0, err
	}
	c.mark(d, unit)
	before := make([][]int32, n)
	for at := range n {
		last := int32(-1)
		for _, to := range d.next[at*d.classes:][:d.classes] {
			if to >= 0 && to != last {
				before[to] = append(before[to], int32(at))
				last = to
			}
		}
	}
	c.reach(d, before)
	c.early = make([][]uint64, lo)
	for count := lo - 1; count >= 0; count-- {
		c.early[count] = c.layer(int32(count), d, before)
	}
	if !c.viable(0, 0) {
		return b.Alt(), nil
	}
	return b.add(node{kind: kindDFA, dfa: d, count: c}), nil
}

// mark finds the states between units by reading both automata side by side.
func (c *counter) mark(d, unit *DFA) {
	of := make([]int32, d.Len()) // the state of unit, plus one
	of[0] = 1
	c.ends[0] = true
	todo := []int32{0}
	for len(todo) > 0 {
		at := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for by := range 256 {
			to := d.step(at, byte(by))
			if to < 0 || of[to] != 0 {
				continue
			}
			u := unit.step(of[at]-1, byte(by))
			of[to] = u + 1
			c.ends[to] = unit.accept[u]
			todo = append(todo, to)
		}
	}
}

// reach finds how many units end at least on the way from each state to where d accepts.
func (c *counter) reach(d *DFA, before [][]int32) {
	c.left = make([]int32, d.Len())
	var now, next []int32 // states at this distance, and one unit farther
	for at := range c.left {
		if c.left[at] = math.MaxInt32; d.accept[at] {
			now = append(now, int32(at))
		}
	}
	for far := int32(0); len(now) > 0; far++ {
		next = next[:0]
		for len(now) > 0 {
			at := now[len(now)-1]
			now = now[:len(now)-1]
			if c.left[at] <= far {
				continue
			}
			c.left[at], c.most = far, far
			if c.ends[at] {
				next = append(next, before[at]...)
			} else {
				now = append(now, before[at]...)
			}
		}
		now, next = next, now
	}
}

// layer finds after which states a text of so many units, fewer than lo, can go on.
func (c *counter) layer(count int32, d *DFA, before [][]int32) []uint64 {
	out := make([]uint64, (d.Len()+63)/64)
	var todo []int32
	add := func(at int32) {
		if out[at>>6]>>(at&63)&1 == 0 {
			out[at>>6] |= 1 << (at & 63)
			todo = append(todo, at)
		}
	}
	for to := range int32(d.Len()) { // which ends a unit
		if c.ends[to] && c.viable(count+1, to) {
			for _, at := range before[to] {
				add(at)
			}
		}
	}
	for len(todo) > 0 {
		to := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if !c.ends[to] {
			for _, at := range before[to] {
				add(at)
			}
		}
	}
	return out
}

// viable reports whether a text goes on or ends after a state and so many units.
func (c *counter) viable(count, at int32) bool {
	if count < c.lo {
		return c.early[count][at>>6]>>(at&63)&1 != 0
	}
	return c.hi == Unbounded || int64(count)+int64(c.left[at]) <= int64(c.hi)
}

// split returns the count and the state of a place.
func (n *node) split(at int32) (count, state int32) {
	if n.count == nil {
		return 0, at
	}
	return at / int32(n.dfa.Len()), at % int32(n.dfa.Len())
}

// accepts reports whether an automaton accepts at a place.
func (n *node) accepts(at int32) bool {
	count, state := n.split(at)
	return n.dfa.accept[state] && (n.count == nil || count >= n.count.lo)
}

// final reports whether nothing follows a place of an automaton.
func (n *node) final(at int32) bool {
	if n.count == nil {
		return n.dfa.final(at)
	}
	count, state := n.split(at)
	for _, to := range n.dfa.next[int(state)*n.dfa.classes:][:n.dfa.classes] {
		if n.after(count, to) >= 0 {
			return false
		}
	}
	return true
}

// step returns the place of an automaton after a byte, −1 if there is none.
func (n *node) step(at int32, c byte) int32 {
	if n.count == nil {
		return n.dfa.step(at, c)
	}
	count, state := n.split(at)
	return n.after(count, n.dfa.step(state, c))
}

// after is the place of a state that is come to after so many units, which it may end; −1 if the text cannot end in time.
func (n *node) after(count, state int32) int32 {
	if state < 0 {
		return -1
	}
	if n.count.ends[state] && (n.count.hi != Unbounded || count < n.count.lo) {
		count++
	}
	if !n.count.viable(count, state) {
		return -1
	}
	return count*int32(n.dfa.Len()) + state
}

// rest is what is left of the counts at a place, as far as tokens of fewer than far bytes tell.
func (n *node) rest(at int32, far int) (state, lo, hi int32) {
	count, state := n.split(at)
	lo, hi = max(n.count.lo-count, 0), Unbounded
	if n.count.hi != Unbounded {
		hi = min(n.count.hi-count, int32(far)+n.count.most)
		if lo > 0 {
			hi = n.count.hi - count // the way to lo depends on it
		}
	}
	return state, lo, hi
}
