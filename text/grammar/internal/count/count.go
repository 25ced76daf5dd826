// Package count says which counts of units the texts of an automaton can still reach.
package count

import "math"

// unbounded is no bound.
const unbounded = -1

// An Automaton over bytes, as package grammar has them.
type Automaton struct {
	Step    func(at int32, c byte) int32
	Next    []int32 // [state][class]; −1: none
	Classes int
	Accept  []bool
}

// A Counter bounds how many units, such as characters, the texts of an automaton have. The count stands beside the state, so
// that no state is made for each: place count·states + state of the expression is after so many units.
type Counter struct {
	Ends   []bool     // [state] a unit has just ended, or nothing has begun
	Lo, Hi int32      // Hi unbounded: any number, and counts end at lo
	left   []int32    // [state] units that end at least on the way to where the text may end
	Most   int32      // of these
	early  [][]uint64 // [count below lo] the states after which the text can still be long enough, and not too long, as bits
}

// New returns the counter of an automaton each of whose states is always within a unit or always between two, as unit tells.
func New(d, unit Automaton, lo, hi int) *Counter {
	n := len(d.Accept)
	c := &Counter{Ends: make([]bool, n), Lo: int32(lo), Hi: int32(hi)}
	c.mark(d, unit)
	before := make([][]int32, n)
	for at := range n {
		last := int32(-1)
		for _, to := range d.Next[at*d.Classes:][:d.Classes] {
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
	return c
}

// mark finds the states between units by reading both automata side by side.
func (c *Counter) mark(d, unit Automaton) {
	of := make([]int32, len(d.Accept)) // the state of unit, plus one
	of[0] = 1
	c.Ends[0] = true
	todo := []int32{0}
	for len(todo) > 0 {
		at := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for by := range 256 {
			to := d.Step(at, byte(by))
			if to < 0 || of[to] != 0 {
				continue
			}
			u := unit.Step(of[at]-1, byte(by))
			of[to] = u + 1
			c.Ends[to] = unit.Accept[u]
			todo = append(todo, to)
		}
	}
}

// reach finds how many units end at least on the way from each state to where d accepts.
func (c *Counter) reach(d Automaton, before [][]int32) {
	c.left = make([]int32, len(d.Accept))
	var now, next []int32 // states at this distance, and one unit farther
	for at := range c.left {
		if c.left[at] = math.MaxInt32; d.Accept[at] {
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
			c.left[at], c.Most = far, far
			if c.Ends[at] {
				next = append(next, before[at]...)
			} else {
				now = append(now, before[at]...)
			}
		}
		now, next = next, now
	}
}

// layer finds after which states a text of so many units, fewer than lo, can go on.
func (c *Counter) layer(count int32, d Automaton, before [][]int32) []uint64 {
	out := make([]uint64, (len(d.Accept)+63)/64)
	var todo []int32
	add := func(at int32) {
		if out[at>>6]>>(at&63)&1 == 0 {
			out[at>>6] |= 1 << (at & 63)
			todo = append(todo, at)
		}
	}
	for to := range int32(len(d.Accept)) { // which ends a unit
		if c.Ends[to] && c.Viable(count+1, to) {
			for _, at := range before[to] {
				add(at)
			}
		}
	}
	for len(todo) > 0 {
		to := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if !c.Ends[to] {
			for _, at := range before[to] {
				add(at)
			}
		}
	}
	return out
}

// Viable reports whether a text goes on or ends after a state and so many units.
func (c *Counter) Viable(count, at int32) bool {
	if count < c.Lo {
		return c.early[count][at>>6]>>(at&63)&1 != 0
	}
	return c.Hi == unbounded || int64(count)+int64(c.left[at]) <= int64(c.Hi)
}

// Longest returns how many bytes the longest text has that d accepts, −1 if there is none that is longest.
func Longest(d Automaton) int {
	if len(d.Accept) == 0 {
		return 0
	}
	const (
		open   = -2 // on the way to it
		cyclic = -1
	)
	memo := make(map[int32]int, len(d.Accept))
	var from func(at int32) int
	from = func(at int32) int {
		if n, ok := memo[at]; ok {
			return max(n, cyclic) // where the way comes back, it has no end
		}
		memo[at] = open
		n := 0
		for _, to := range d.Next[int(at)*d.Classes:][:d.Classes] {
			if to < 0 {
				continue
			}
			k := from(to)
			if k == cyclic {
				n = cyclic
				break
			}
			n = max(n, k+1)
		}
		memo[at] = n
		return n
	}
	return from(0)
}
