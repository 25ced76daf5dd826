package grammar

import (
	"errors"
	"fmt"
	"slices"

	"talf/internal/limits"
	"talf/text/grammar/internal/count"
)

var errAmbiguous = fmt.Errorf("too many ways to go on at one place: %w", limits.ErrTooLarge)

// A DFA is a deterministic automaton over bytes, from each of whose states it can accept: what
// cannot be said with a Builder, such as that two patterns match, is made of these. It is
// immutable. State 0 is the start.
type DFA struct {
	class   [256]uint8
	classes int
	next    []int32 // [state][class]; -1: none
	accept  []bool
}

// Len returns the number of states.
func (d *DFA) Len() int { return len(d.accept) }

// Empty reports whether d accepts nothing.
func (d *DFA) Empty() bool { return len(d.accept) == 0 }

// Match reports whether d accepts a text.
func (d *DFA) Match(text string) bool {
	if d.Empty() {
		return false
	}
	at := int32(0)
	for i := range len(text) {
		if at = d.step(at, text[i]); at < 0 {
			return false
		}
	}
	return d.accept[at]
}

// Longest returns how many bytes the longest text has that d accepts, −1 if there is none that is longest.
func (d *DFA) Longest() int { return count.Longest(d.raw()) }

func (d *DFA) raw() count.Automaton {
	return count.Automaton{Step: d.step, Next: d.next, Classes: d.classes, Accept: d.accept}
}

func (d *DFA) step(at int32, c byte) int32 { return d.next[int(at)*d.classes+int(d.class[c])] }

// final reports whether nothing follows a state.
func (d *DFA) final(at int32) bool {
	for _, to := range d.next[int(at)*d.classes:][:d.classes] {
		if to >= 0 {
			return false
		}
	}
	return true
}

// DFA returns the automaton of an expression without recursion. One of more than
// limits.GrammarDFA states is refused.
func (b *Builder) DFA(e Expr) (*DFA, error) {
	g, err := b.Compile(e)
	if errors.Is(err, ErrNothing) {
		return new(DFA), nil
	}
	if err != nil {
		return nil, err
	}
	m, err := newMachine(g)
	if err != nil {
		return nil, err
	}
	d := &DFA{class: g.class, classes: len(g.members)}
	index := map[*State]int32{m.start: 0}
	states := []*State{m.start}
	forgets := m.forgets
	for i := 0; i < len(states); i++ {
		if i > limits.GrammarDFA {
			return nil, errDFA
		}
		d.accept = append(d.accept, states[i].accept)
		for _, c := range g.members {
			to := int32(-1)
			if s := m.step(states[i], c); s != nil {
				var ok bool
				if to, ok = index[s]; !ok {
					to = int32(len(states))
					index[s] = to
					states = append(states, s)
				}
			}
			d.next = append(d.next, to)
			if err := b.charge(1 + len(states[i].stacks) + states[i].cost(c)); err != nil {
				return nil, err
			}
		}
		if m.forgets > forgets { // states would be found again as new ones
			return nil, errAmbiguous
		}
	}
	return d.reduced(), nil
}

// charge fails if making automata takes n more steps than limits.GrammarCompile allows.
func (b *Builder) charge(n int) error {
	if b.work += n; b.work > limits.GrammarCompile {
		return fmt.Errorf("automata of more than %d steps: %w", limits.GrammarCompile, limits.ErrTooLarge)
	}
	return nil
}

var errDFA = fmt.Errorf("an automaton of more than %d states: %w", limits.GrammarDFA, limits.ErrTooLarge)

// And returns the automaton of what both accept.
func (b *Builder) And(d, o *DFA) (*DFA, error) {
	return b.product(d, o, func(a, b bool) bool { return a && b }, false)
}

// Without returns the automaton of what d accepts and o does not.
func (b *Builder) Without(d, o *DFA) (*DFA, error) {
	return b.product(d, o, func(a, b bool) bool { return a && !b }, true)
}

// Or returns the automaton of what one of them accepts.
func (b *Builder) Or(d, o *DFA) (*DFA, error) {
	all := universe()
	a, err := b.Without(all, d)
	if err != nil {
		return nil, err
	}
	if a, err = b.Without(a, o); err != nil {
		return nil, err
	}
	return b.Without(all, a)
}

// universe returns the automaton of all bytes.
func universe() *DFA {
	return &DFA{classes: 1, next: []int32{0}, accept: []bool{true}}
}

// product runs both automata side by side; alone lets d go on where o cannot.
func (b *Builder) product(d, o *DFA, accept func(a, b bool) bool, alone bool) (*DFA, error) {
	if d.Empty() || o.Empty() {
		if alone {
			return d, nil
		}
		return new(DFA), nil
	}
	p := &DFA{}
	var members [][2]uint8
	ids := map[[2]uint8]uint8{}
	for c := range 256 {
		key := [2]uint8{d.class[c], o.class[c]}
		id, ok := ids[key]
		if !ok {
			id = uint8(len(members))
			ids[key] = id
			members = append(members, key)
		}
		p.class[c] = id
	}
	p.classes = len(members)
	index := map[[2]int32]int32{{0, 0}: 0}
	pairs := [][2]int32{{0, 0}}
	for i := 0; i < len(pairs); i++ {
		if i > limits.GrammarDFA {
			return nil, errDFA
		}
		if err := b.charge(1 + len(members)); err != nil {
			return nil, err
		}
		x, y := pairs[i][0], pairs[i][1]
		p.accept = append(p.accept, accept(d.accept[x], y >= 0 && o.accept[y]))
		for _, k := range members {
			to := [2]int32{d.next[int(x)*d.classes+int(k[0])], -1}
			if y >= 0 {
				to[1] = o.next[int(y)*o.classes+int(k[1])]
			}
			id := int32(-1)
			if to[0] >= 0 && (to[1] >= 0 || alone) {
				var ok bool
				if id, ok = index[to]; !ok {
					id = int32(len(pairs))
					index[to] = id
					pairs = append(pairs, to)
				}
			}
			p.next = append(p.next, id)
		}
	}
	return p.reduced(), nil
}

// reduced returns d without the states from which it cannot accept.
func (d *DFA) reduced() *DFA {
	n := d.Len()
	before := make([][]int32, n)
	id := make([]int32, n) // of each state in the result; -1: none yet
	var todo []int32
	for s := range n {
		for _, to := range d.next[s*d.classes:][:d.classes] {
			if to >= 0 {
				before[to] = append(before[to], int32(s))
			}
		}
		if id[s] = -1; d.accept[s] {
			id[s] = 0
			todo = append(todo, int32(s))
		}
	}
	for len(todo) > 0 {
		s := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for _, p := range before[s] {
			if id[p] < 0 {
				id[p] = 0
				todo = append(todo, p)
			}
		}
	}
	if n == 0 || id[0] < 0 {
		return new(DFA)
	}
	count := int32(0)
	for s := range id {
		if id[s] >= 0 {
			id[s] = count
			count++
		}
	}
	r := &DFA{class: d.class, classes: d.classes}
	for s := range n {
		if id[s] < 0 {
			continue
		}
		r.accept = append(r.accept, d.accept[s])
		for _, to := range d.next[s*d.classes:][:d.classes] {
			if to >= 0 {
				to = id[to]
			}
			r.next = append(r.next, to)
		}
	}
	return r
}

// Explore returns the automaton whose states are those that step reaches from start: step returns
// false for a byte that does not continue.
func Explore[S comparable](b *Builder, start S, step func(s S, c byte) (S, bool), accept func(s S) bool) (*DFA, error) {
	d := &DFA{classes: 256}
	for c := range 256 {
		d.class[c] = uint8(c)
	}
	index := map[S]int32{start: 0}
	states := []S{start}
	for i := 0; i < len(states); i++ {
		if i > limits.GrammarDFA {
			return nil, errDFA
		}
		if err := b.charge(256); err != nil {
			return nil, err
		}
		d.accept = append(d.accept, accept(states[i]))
		for c := range 256 {
			id := int32(-1)
			if to, ok := step(states[i], byte(c)); ok {
				if id, ok = index[to]; !ok {
					id = int32(len(states))
					index[to] = id
					states = append(states, to)
				}
			}
			d.next = append(d.next, id)
		}
	}
	return d.merged().reduced(), nil
}

// merged returns d with one class for all bytes that it does not tell apart, in the order of the first of each.
func (d *DFA) merged() *DFA {
	m := &DFA{accept: d.accept}
	column := make([]uint64, d.classes) // a sum of where each class leads, to compare few of them
	for s := range d.accept {
		for c, to := range d.next[s*d.classes:][:d.classes] {
			column[c] = (column[c] ^ uint64(uint32(to))) * 0x100000001B3
		}
	}
	same := func(a, b int) bool {
		if column[a] != column[b] {
			return false
		}
		for at := 0; at < len(d.next); at += d.classes {
			if d.next[at+a] != d.next[at+b] {
				return false
			}
		}
		return true
	}
	id := make([]int, d.classes) // of each class in m, plus one
	var first []int              // a class of d for each of m
	for c := range 256 {
		of := int(d.class[c])
		if id[of] == 0 {
			k := slices.IndexFunc(first, func(f int) bool { return same(f, of) })
			if k < 0 {
				k, first = len(first), append(first, of)
			}
			id[of] = k + 1
		}
		m.class[c] = uint8(id[of] - 1)
	}
	m.classes = len(first)
	for s := range d.accept {
		for _, c := range first {
			m.next = append(m.next, d.next[s*d.classes+c])
		}
	}
	return m
}

// Words returns the automaton of some texts.
func (b *Builder) Words(texts []string) (*DFA, error) {
	texts = slices.Compact(slices.Sorted(slices.Values(texts)))
	if len(texts) == 0 {
		return new(DFA), nil
	}
	d := &DFA{}
	var used [256]bool
	for _, t := range texts {
		for i := range len(t) {
			used[t[i]] = true
		}
	}
	for c := range used {
		if used[c] {
			d.class[c] = uint8(d.classes)
			d.classes++
		}
	}
	if d.classes < len(used) { // one more for the bytes in no text
		for c := range used {
			if !used[c] {
				d.class[c] = uint8(d.classes)
			}
		}
		d.classes++
	}
	state := func() (int32, error) {
		if len(d.accept) > limits.GrammarDFA {
			return 0, errDFA
		}
		d.accept = append(d.accept, false)
		for range d.classes {
			d.next = append(d.next, -1)
		}
		return int32(len(d.accept) - 1), b.charge(d.classes)
	}
	if _, err := state(); err != nil {
		return nil, err
	}
	for _, t := range texts {
		at := int32(0)
		for i := range len(t) {
			k := int(at)*d.classes + int(d.class[t[i]])
			if d.next[k] < 0 {
				to, err := state()
				if err != nil {
					return nil, err
				}
				d.next[k] = to
			}
			at = d.next[k]
		}
		d.accept[at] = true
	}
	return d, nil
}
