package grammar

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"sync"

	"talf/internal/limits"
)

// Most masks that take long to compute, those inside strings, agree in nearly all tokens, wherever
// the string stands: what a token does before it reaches the end of the string depends on the
// string alone. So a state is divided into what all its stacks have in common, which stands for
// where the string is, and a head, the stacks above that. The tokens that stay within a head are found
// once for each head of a vocabulary; only what reads beyond the end of a head is looked at in each
// state (Dong et al., "XGrammar", 2024, section 3.1, divides tokens likewise, for the top of one stack).

// A head is what tokens do before they read beyond the end of what the head's stacks match.
type head struct {
	bits  Mask    // tokens that stay within; nil: the head is of no use, since many tokens leave it
	t     *trie   // what was walked through
	leave []int32 // its nodes at which the end may first be reached
	depth int32   // of the deepest stack
	work  int     // that finding this took
	err   error
}

func (h *head) size() int { return 256 + 8*len(h.bits) + 4*len(h.leave) }

// A headKey says what the stacks of a head match, and with which trie it is crossed.
type headKey struct {
	first bool // token of a text
	whole bool // nothing comes after it
	sum   [sha256.Size]byte
}

// heads are those that a vocabulary keeps, within limits.GrammarHeads.
type heads struct {
	mu   sync.Mutex
	kept map[headKey]*head
	size int
}

func (h *heads) find(k headKey) *head {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.kept[k]
}

func (h *heads) keep(k headKey, x *head) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.kept == nil || h.size+x.size() > limits.GrammarHeads {
		h.kept, h.size = map[headKey]*head{}, 0
	}
	h.kept[k] = x
	h.size += x.size()
}

// base is the topmost cell that all stacks of s have below their tops and what repeats these; nil: they
// have nothing in common.
func (a *Automaton) base(s *State) *cell {
	var x *cell
	for i, c := range s.stacks {
		c = c.below
		if i == 0 {
			x = c
			for x != nil && a.m.g.nodes[x.expr].kind == kindRepeat { // which goes on with the same
				x = x.below
			}
			continue
		}
		for c != x {
			switch {
			case c == nil || x == nil:
				return nil
			case c.depth > x.depth:
				c = c.below
			case c.depth < x.depth:
				x = x.below
			default:
				c, x = c.below, x.below
			}
		}
	}
	return x
}

// headOf returns the stacks of s above base as a state of their own, which accepts where base goes
// on; nil if there are too many.
func (m *machine) headOf(s *State, base *cell) *State {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.begin()
	var over func(c *cell) *cell
	over = func(c *cell) *cell {
		if c == base {
			return nil
		}
		return m.push(c.expr, c.at, over(c.below))
	}
	for _, c := range s.stacks {
		m.todo = append(m.todo, over(c))
	}
	if to := m.expand(); to != m.dead {
		return to
	}
	return nil
}

// A spread says how much of the trie begins with bytes that may follow a state.
type spread struct {
	nodes int    // of the trie
	most  *State // the one that the most of these lead to; nil: it does not stand out
	same  bool   // it is the state itself
	work  int    // that finding this takes
}

// maxTargets bounds the states that are looked at to find the one that stands out.
const maxTargets = 64

// spread returns that of a state.
func (a *Automaton) spread(s *State) spread {
	a.m.step(s, 0) // which makes the table
	t, of := a.trie(s), s.table.Load()
	var nodes [256]int
	for c, g := range of.group {
		nodes[g] += int(t.nodes[c])
	}
	var targets [maxTargets]*State
	var below [maxTargets]int
	var out spread
	n := 0
	for g, c := range of.bytes {
		if nodes[g] == 0 {
			continue
		}
		to := a.m.step(s, c)
		out.work += s.work(c)
		if to == nil {
			continue
		}
		out.nodes += nodes[g]
		i := slices.Index(targets[:n], to)
		if i < 0 {
			if n == maxTargets {
				continue
			}
			i, targets[n] = n, to
			n++
		}
		below[i] += nodes[g]
	}
	least := out.nodes / 4
	for i, to := range targets[:n] {
		if below[i] > least {
			out.most, out.same, least = to, to == s, below[i]
		}
	}
	return out
}

// rich reports whether it is a large part.
func (x spread) rich(t *trie) bool { return x.nodes > len(t.chars)/64 }

// settled returns the state to which most texts lead from s, and which they do not leave then; nil if there is none or s is it. After
// the quote before a name it is that of names which are none of the named properties. The work is added to x's.
func (a *Automaton) settled(s *State, x *spread) *State {
	if x.most == nil || x.same || s.first {
		return nil
	}
	y := a.spread(x.most)
	if x.work += y.work; !y.same {
		return nil
	}
	return x.most
}

// head returns what tokens do within the stacks of s above base, nil if that is of no use, and the work
// that finding it takes.
func (a *Automaton) head(s *State, base *cell) (*head, int) {
	k, ok := a.key(s, base)
	if !ok {
		return nil, 0
	}
	h := a.v.heads.find(k)
	if h == nil {
		from := a.m.headOf(s, base)
		if from == nil {
			return nil, 0
		}
		h = &head{}
		if !from.accept || base == nil { // otherwise everything leaves it
			a.fill(h, a.trie(s), from, base != nil)
		}
		a.v.heads.keep(k, h)
	}
	if h.bits == nil || base != nil && max(h.depth, base.depth) > limits.GrammarDepth/4 {
		return nil, h.work
	}
	return h, h.work
}

// fill sets h to what tokens do from a state on, within it or to the end of the grammar.
func (a *Automaton) fill(h *head, t *trie, from *State, within bool) {
	w := walk{a: a, t: t, out: make(Mask, (a.v.size+63)/64), within: within}
	h.err = w.whole(from)
	h.work = w.work
	beyond := 0 // nodes at which it is left and below
	for _, n := range w.leave {
		beyond += int(w.t.skip[n] - n)
	}
	if beyond <= len(t.chars)/16 {
		h.bits, h.t, h.leave, h.depth = w.out, w.t, w.leave, w.depth
	}
}

// shared computes the tokens of s by a head or, unless it is alone, from those of another state; false if that is of no use.
func (a *Automaton) shared(s *State, alone bool) (*mask, bool) {
	x := a.spread(s)
	if !x.rich(a.trie(s)) {
		return nil, false
	}
	if !alone {
		if to := a.settled(s, &x); to != nil {
			// A machine that has forgotten its states leads from this one to another, and from that to a third.
			return a.beside(s, a.find(to, true), to), true
		}
	}
	if m := a.direct(s); m != nil {
		return m, true
	}
	// What may end after any byte, such as what a pattern allows, has the rest of its string above the base, too.
	base := a.base(s)
	h, work := a.head(s, base)
	for try := 0; h == nil && base != nil && try < maxTries && work < maxWasted; try++ {
		base = base.below
		var more int
		h, more = a.head(s, base)
		work += more
	}
	if h == nil {
		return nil, false
	}
	if h.err != nil {
		return &mask{err: h.err}, true
	}
	t := h.t
	w := walk{a: a, t: t, out: slices.Clone(h.bits), work: h.work}
	for _, n := range h.leave {
		text := t.text[t.ids[t.from[n]]][:t.depth[n]+1]
		w.work += len(text)
		to := a.Read(s, text)
		if to == nil { // of too many stacks
			continue
		}
		w.take(n)
		if err := w.below(to, int(t.depth[n])+1, n+1, t.skip[n]); err != nil {
			return &mask{err: err}, true
		}
	}
	return &mask{bits: w.out, work: w.work}, true
}

// beside computes the tokens of s from those of another state, f: most texts lead from both to the same state, from
// where on what they do is known, so that only the nodes before that are visited.
func (a *Automaton) beside(s *State, m *mask, f *State) *mask {
	if m.err != nil {
		return m
	}
	t := a.trie(s)
	w := walk{a: a, t: t, out: slices.Clone(m.bits), work: m.work}
	if len(a.pairs) <= t.deep {
		a.pairs = make([][2]*State, t.deep+1)
	}
	at := a.pairs // [depth] of nodes that are open: after s and after f
	at[0] = [2]*State{s, f}
	for n, end := int32(0), int32(len(t.chars)); n < end; {
		d, c := t.depth[n], t.chars[n]
		from := at[d]
		x, y := a.m.step(from[0], c), a.m.step(from[1], c)
		w.charge(from[0], c)
		if w.charge(from[1], c); w.work > limits.GrammarWork {
			return &mask{err: fmt.Errorf("grammar: %w", errAmbiguous)}
		}
		switch {
		case x == y:
		case x == nil:
			for _, id := range t.ids[t.from[n]:t.from[t.skip[n]]] {
				w.out[id>>6] &^= 1 << (uint(id) & 63)
			}
		case y == nil:
			w.take(n)
			if err := w.below(x, int(d)+1, n+1, t.skip[n]); err != nil {
				return &mask{err: err}
			}
		default:
			at[d+1] = [2]*State{x, y}
			n++
			continue
		}
		n = t.skip[n]
	}
	return &mask{bits: w.out, work: w.work}
}

// direct computes the tokens of s where all plain texts go on in few states; nil if they do not.
func (a *Automaton) direct(s *State) *mask {
	t := a.trie(s)
	w := walk{a: a, t: t, out: make(Mask, (a.v.size+63)/64)}
	e := w.ending(s)
	if e.of != plain {
		return nil
	}
	w.use(known{of: plain, upto: most})
	if e.same {
		if tails := w.tails(s, e, w.t); tails != nil {
			for i, id := range w.t.ids {
				if tails.Has(int32(i)) {
					w.out[id>>6] |= 1 << (uint(id) & 63)
				}
			}
			return &mask{bits: w.out, work: w.work}
		}
	}
	if err := w.below(s, 0, 0, int32(len(w.t.chars))); err != nil {
		return &mask{err: err}
	}
	return &mask{bits: w.out, work: w.work}
}

// After so many heads that are of no use, or after so much work for them, no other is tried for a state.
const (
	maxTries  = 3
	maxWasted = limits.GrammarWork / 8
)

// maxHead bounds the cells of a head. Strings have below a hundred.
const maxHead = 1 << 11

// key returns what the head of s is found by, and false if it is large.
func (a *Automaton) key(s *State, base *cell) (headKey, bool) {
	k := headKey{first: s.first, whole: base == nil}
	sums := make([][sha256.Size]byte, 0, len(s.stacks))
	cells := 0
	var text []byte
	for _, c := range s.stacks {
		text = text[:0]
		for ; c != base; c = c.below {
			if cells++; cells > maxHead {
				return k, false
			}
			sum := a.sums.rest(c.expr, c.at, a.trie(s).deep+1)
			text = append(text, sum[:]...)
		}
		sums = append(sums, sha256.Sum256(text))
	}
	slices.SortFunc(sums, func(a, b [sha256.Size]byte) int { return slices.Compare(a[:], b[:]) })
	text = text[:0]
	for _, sum := range sums {
		text = append(text, sum[:]...)
	}
	k.sum = sha256.Sum256(text)
	return k, true
}

// sums say what expressions match, so that those of different grammars can be compared: equal ones
// match the same. Those that contain themselves are equal to nothing in another grammar.
type sums struct {
	g     *Grammar
	exprs map[Expr][sha256.Size]byte
	rests map[rest][sha256.Size]byte
	busy  map[Expr]bool
}

// A rest is what is left of an expression.
type rest struct {
	expr   Expr
	at     int32
	lo, hi int32 // of a repeat
}

func newSums(g *Grammar) *sums {
	return &sums{g: g, exprs: map[Expr][sha256.Size]byte{}, rests: map[rest][sha256.Size]byte{}, busy: map[Expr]bool{}}
}

// maxNested bounds the nesting of expressions that are compared between grammars.
const maxNested = 200

// own is a sum that no other grammar has.
func (s *sums) own(e Expr, at int32) [sha256.Size]byte {
	return sha256.Sum256(fmt.Appendf(nil, "grammar %d, expression %d after %d", s.g.id, e, at))
}

// expr is the sum of a whole expression.
func (s *sums) expr(e Expr) (sum [sha256.Size]byte) {
	if sum, ok := s.exprs[e]; ok {
		return sum
	}
	if s.busy[e] || len(s.busy) > maxNested {
		return s.own(e, 0)
	}
	s.busy[e] = true
	if n := &s.g.nodes[e]; n.count != nil {
		sum = s.make(e, 0, n.count.Lo, n.count.Hi)
	} else {
		sum = s.make(e, 0, 0, 0)
	}
	delete(s.busy, e)
	s.exprs[e] = sum
	return sum
}

// rest is the sum of what is left of an expression of which at parts are done. Counts of repetitions
// that no token reaches, since it has fewer than far bytes, are equal.
func (s *sums) rest(e Expr, at int32, far int) [sha256.Size]byte {
	r := rest{expr: e, at: at}
	if n := &s.g.nodes[e]; n.kind == kindRepeat {
		r.at, r.lo, r.hi = 0, max(n.min-at, 0), n.max
		if r.hi != Unbounded {
			r.hi -= at
		}
		if !n.loose {
			r.lo, r.hi = min(r.lo, int32(far)), min(r.hi, int32(far))
		}
	}
	if n := &s.g.nodes[e]; n.count != nil {
		r.at, r.lo, r.hi = n.rest(at, far)
	}
	sum, ok := s.rests[r]
	if !ok {
		if len(s.rests) > maxRests {
			clear(s.rests)
		}
		sum = s.make(e, r.at, r.lo, r.hi)
		s.rests[r] = sum
	}
	return sum
}

// maxRests bounds what is remembered of a grammar, to below a megabyte.
const maxRests = 1 << 12

func (s *sums) make(e Expr, at, lo, hi int32) [sha256.Size]byte {
	n := &s.g.nodes[e]
	text := []byte{byte(n.kind)}
	switch n.kind {
	case kindBytes:
		for _, w := range n.set {
			text = binary.LittleEndian.AppendUint64(text, w)
		}
	case kindText:
		text = append(text, n.text[at:]...)
	case kindDFA:
		if n.count != nil {
			return sha256.Sum256(fmt.Appendf(nil, "grammar %d, expression %d after state %d with %d to %d to come", s.g.id, e, at, lo, hi))
		}
		d := n.dfa.from(at)
		if d == nil {
			return s.own(e, at)
		}
		text = d.append(text)
	case kindRepeat:
		if s.busy[e] { // as a whole
			lo, hi = n.min, n.max
		}
		text = binary.LittleEndian.AppendUint32(text, uint32(lo))
		text = binary.LittleEndian.AppendUint32(text, uint32(hi))
		if n.loose {
			text = append(text, 1)
		}
	}
	for i, k := range n.kids {
		if i >= int(at) {
			sum := s.expr(k)
			text = append(text, sum[:]...)
		}
	}
	return sha256.Sum256(text)
}

// maxCompared bounds the states of automata that are compared between grammars.
const maxCompared = 256

// from returns the automaton of what d accepts from a state on, numbered by what it accepts: classes
// by their first byte, states in the order in which those lead to them; nil if it is large.
func (d *DFA) from(at int32) *DFA {
	d = d.reached(at)
	if d == nil {
		return nil
	}
	return d.merged().reached(0)
}

// reached returns the automaton of the states that one reaches, in that order; nil if there are many.
func (d *DFA) reached(at int32) *DFA {
	id := map[int32]int32{at: 0}
	states := []int32{at}
	out := &DFA{class: d.class, classes: d.classes}
	for i := 0; i < len(states); i++ {
		out.accept = append(out.accept, d.accept[states[i]])
		for _, to := range d.next[int(states[i])*d.classes:][:d.classes] {
			n := int32(-1)
			if to >= 0 {
				var ok bool
				if n, ok = id[to]; !ok {
					n = int32(len(states))
					id[to] = n
					states = append(states, to)
				}
			}
			out.next = append(out.next, n)
		}
		if len(states) > maxCompared {
			return nil
		}
	}
	return out
}

// append spells d.
func (d *DFA) append(text []byte) []byte {
	text = append(text, d.class[:]...)
	for _, a := range d.accept {
		if a {
			text = append(text, 1)
		} else {
			text = append(text, 0)
		}
	}
	for _, to := range d.next {
		text = binary.LittleEndian.AppendUint32(text, uint32(to))
	}
	return text
}
