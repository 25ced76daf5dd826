package grammar

import (
	"fmt"
	"math"

	"talf/internal/limits"
	"talf/text/grammar/internal/count"
)

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
	if err := b.charge((lo + 3) * len(d.next)); err != nil {
		return 0, err
	}
	c := count.New(d.raw(), unit.raw(), lo, hi)
	if !c.Viable(0, 0) {
		return b.Alt(), nil
	}
	return b.add(node{kind: kindDFA, dfa: d, count: c}), nil
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
	return n.dfa.accept[state] && (n.count == nil || count >= n.count.Lo)
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
	if n.count.Ends[state] && (n.count.Hi != Unbounded || count < n.count.Lo) {
		count++
	}
	if !n.count.Viable(count, state) {
		return -1
	}
	return count*int32(n.dfa.Len()) + state
}

// rest is what is left of the counts at a place, as far as tokens of fewer than far bytes tell.
func (n *node) rest(at int32, far int) (state, lo, hi int32) {
	count, state := n.split(at)
	lo, hi = max(n.count.Lo-count, 0), Unbounded
	if n.count.Hi != Unbounded {
		hi = min(n.count.Hi-count, int32(far)+n.count.Most)
		if lo > 0 {
			hi = n.count.Hi - count // the way to lo depends on it
		}
	}
	return state, lo, hi
}
