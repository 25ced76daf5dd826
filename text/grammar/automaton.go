package grammar

import (
	"fmt"
	"math/bits"
	"sync"
	"sync/atomic"

	"talf/internal/limits"
	"talf/text/grammar/internal/index"
)

// An Automaton is a grammar over the tokens of a vocabulary. It is safe for concurrent use, and
// keeps the states and masks that were asked for, within limits.GrammarStates and
// limits.GrammarMasks. What it answers does not depend on what it keeps.
type Automaton struct {
	m     *machine
	v     *Vocabulary
	start *State

	mu   sync.Mutex // of what follows, and of the computation of masks
	sums *sums
	kept []*State // those that have a mask
	// What computations use one after the other.
	seen   index.Scratch[place, visit]
	layers [3][]place
	steps  []move
	opens  [2][]open
	pairs  [][2]*State
	room   int // bytes of masks that may still be kept

	computed atomic.Int64
}

// A Mask is a set of tokens: bit i%64 of word i/64 is token i's. It is read-only.
type Mask []uint64

// Has reports whether a token is in the set.
func (m Mask) Has(id int32) bool {
	return id >= 0 && int(id>>6) < len(m) && m[id>>6]>>(uint(id)&63)&1 != 0
}

// Any reports whether the set has a token.
func (m Mask) Any() bool {
	for _, w := range m {
		if w != 0 {
			return true
		}
	}
	return false
}

// Count returns the number of tokens in the set.
func (m Mask) Count() (n int) {
	for _, w := range m {
		n += bits.OnesCount64(w)
	}
	return n
}

// mask is what is known of the tokens that a state allows.
type mask struct {
	bits Mask
	err  error
	work int // that finding it takes
}

// NewAutomaton crosses a grammar with a vocabulary. Masks are computed when they are asked for.
func NewAutomaton(g *Grammar, v *Vocabulary) (*Automaton, error) {
	m, err := newMachine(g)
	if err != nil {
		return nil, fmt.Errorf("grammar: %w", err)
	}
	a := &Automaton{m: m, v: v, sums: newSums(g), room: limits.GrammarMasks}
	// The first token may read differently, so the start is a state of its own.
	s := m.start
	m.ids++
	a.start = &State{id: m.ids, stacks: s.stacks, accept: s.accept}
	a.start.first = true
	m.roots = append(m.roots, a.start)
	return a, nil
}

// Vocabulary returns the vocabulary.
func (a *Automaton) Vocabulary() *Vocabulary { return a.v }

// Start returns the state of the empty text.
func (a *Automaton) Start() *State { return a.start }

// Next returns the state after a token, nil if no text of the grammar goes on with it.
func (a *Automaton) Next(s *State, id int32) *State {
	t := a.trie(s)
	if id < 0 || int(id) >= len(t.text) || t.text[id] == nil {
		return nil
	}
	return a.Read(s, t.text[id])
}

// Read returns the state after bytes, nil if no text of the grammar goes on with them.
func (a *Automaton) Read(s *State, text []byte) *State {
	for _, c := range text {
		if s = a.m.step(s, c); s == nil {
			return nil
		}
	}
	return s
}

// Forced returns the bytes that have to come next, in every text of the grammar: most at the most.
func (a *Automaton) Forced(s *State, most int) []byte {
	var out []byte
	for len(out) < most && !s.accept {
		var next *State
		var by byte
		for class, c := range a.m.g.members {
			to := a.m.step(s, c)
			if to == nil {
				continue
			}
			if next != nil || a.m.g.count[class] > 1 {
				return out
			}
			next, by = to, c
		}
		if next == nil {
			return out
		}
		out, s = append(out, by), next
	}
	return out
}

func (a *Automaton) trie(s *State) *trie {
	if s.first {
		return &a.v.first
	}
	return &a.v.inner
}

// Mask returns the tokens after which some text of the grammar goes on or ends. It fails if the
// grammar is so ambiguous here that finding them takes more than limits.GrammarWork, whatever is
// kept.
func (a *Automaton) Mask(s *State) (Mask, error) {
	if m := s.mask.Load(); m != nil {
		return m.bits, m.err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	m := a.find(s, false)
	return m.bits, m.err
}

// find returns what is known of the tokens of s, which is computed (see shared) and kept if need be. a is locked.
func (a *Automaton) find(s *State, alone bool) *mask {
	if m := s.mask.Load(); m != nil {
		return m
	}
	m := a.compute(s, alone)
	size := 8*len(m.bits) + s.size()
	if a.room -= size; a.room < 0 {
		for _, k := range a.kept {
			k.mask.Store(nil)
		}
		a.kept, a.room = a.kept[:0], limits.GrammarMasks-size
	}
	s.mask.Store(m)
	a.kept = append(a.kept, s)
	return m
}

// Computed returns the number of masks that were computed so far.
func (a *Automaton) Computed() int64 { return a.computed.Load() }

// common bounds the stacks that a step of common grammars replaces: a string of JSON takes twenty.
const common = 64

func (a *Automaton) compute(s *State, alone bool) *mask {
	a.computed.Add(1)
	if m, ok := a.shared(s, alone); ok {
		return m
	}
	return a.plain(s)
}

// plain computes the tokens of s by the whole trie.
func (a *Automaton) plain(s *State) *mask {
	t := a.trie(s)
	w := walk{a: a, t: t, out: make(Mask, (a.v.size+63)/64)}
	if err := w.whole(s); err != nil {
		return &mask{err: err}
	}
	return &mask{bits: w.out, work: w.work}
}

// A walk goes through nodes of a trie: a node's state is that of the node above it after its byte,
// and what is below a node without a state is skipped.
type walk struct {
	a      *Automaton
	t      *trie
	out    Mask
	work   int
	within bool    // stop where a state accepts
	leave  []int32 // nodes where that was
	depth  int32   // of the deepest stack, if within
	known  known   // of tokens, which are in out
	single bool    // nodes are looked at one by one
}

// opens returns room for the nodes that are open in t, by their depth. Walks that look at nodes one by one stand within others.
func (w *walk) opens(t *trie) []open {
	room := &w.a.opens[0]
	if w.single {
		room = &w.a.opens[1]
	}
	if len(*room) <= t.deep {
		*room = make([]open, t.deep+1)
	}
	return *room
}

// An open node is one below which the walk is.
type open struct {
	s  *State
	of alphabet // of which every text goes on from s
}

// crowd is from how many nodes on it is worth it to find out what goes on from their state in any case.
const crowd = 64

// take adds the tokens that end at a node.
func (w *walk) take(n int32) {
	for _, id := range w.t.ids[w.t.from[n]:w.t.from[n+1]] {
		w.out[id>>6] |= 1 << (uint(id) & 63)
	}
}

// charge adds the work of a step.
func (w *walk) charge(from *State, c byte) { w.work += from.work(c) }

// work is that of a step from s that was made, which depends on the state alone, not on which transitions are known.
func (s *State) work(c byte) int {
	cost := s.cost(c)
	if cost <= common {
		cost /= 4 // most steps of this kind are known already
	}
	return 1 + len(s.stacks) + cost
}

// note takes note of a state that a token comes to.
func (w *walk) note(s *State) {
	for _, c := range s.stacks {
		w.depth = max(w.depth, c.depth)
	}
}

// below visits the nodes from n to end, which are below one at some depth with the state s.
func (w *walk) below(s *State, depth int, n, end int32) error {
	a, t := w.a, w.t
	at := w.opens(t)
	at[depth] = open{s: s}
	if !w.single && end-n > crowd && t.rest != nil && depth > 0 {
		at[depth].of = w.ending(s).of
	}
	for n < end {
		made := t.made[n]
		if made&^w.known.of == 0 && (w.known.none || int(t.long[n]) <= w.known.upto) {
			n = t.skip[n]
			continue
		}
		d := t.depth[n]
		from := at[d]
		if made&^from.of == 0 { // whatever they are
			for _, id := range t.ids[t.from[n]:t.from[t.skip[n]]] {
				w.out[id>>6] |= 1 << (uint(id) & 63)
			}
			n = t.skip[n]
			continue
		}
		to := a.m.step(from.s, t.chars[n])
		w.charge(from.s, t.chars[n])
		if w.work > limits.GrammarWork {
			return fmt.Errorf("grammar: %w", errAmbiguous)
		}
		if to == nil {
			n = t.skip[n]
			continue
		}
		if w.within {
			if to.accept {
				w.leave = append(w.leave, n)
				n = t.skip[n]
				continue
			}
			w.note(to)
		}
		next := open{s: to}
		if !w.single && t.skip[n]-n > crowd {
			e := w.ending(to)
			next.of = e.of
			if e.same && e.of == plain && t.begun != nil && t.begun[n] && !w.within {
				if tails := w.tails(to, e, t); tails != nil {
					for i := t.from[n]; i < t.from[t.skip[n]]; i++ {
						if tails.Has(i) {
							id := t.ids[i]
							w.out[id>>6] |= 1 << (uint(id) & 63)
						}
					}
					n = t.skip[n]
					continue
				}
			}
		}
		w.take(n)
		at[d+1] = next
		n++
	}
	return nil
}
