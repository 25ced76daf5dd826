package grammar

import (
	"slices"
	"sync/atomic"
)

// A table is what follows a state, by groups of bytes that no stack of it tells apart: in a string there
// are about ten, although the names of an object make classes of nearly all letters.
type table struct {
	group [256]uint8
	bytes []byte                  // [group] one of each
	next  []atomic.Pointer[State] // [group]
	cost  []atomic.Uint32         // [group] what it took to find next, in cells that were expanded, once it is known
	kinds []alphabet              // [group] of its ASCII characters
}

// forget takes back what is known to follow.
func (t *table) forget() {
	for i := range t.next {
		t.next[i].Store(nil)
	}
}

// cost is what a step from s takes that was made, in cells that are expanded: to come to one again is a quarter.
func (s *State) cost(c byte) int {
	t := s.table.Load()
	return int(t.cost[t.group[c]].Load())
}

// size is about how many bytes a table takes.
func (t *table) size() int { return 448 + 15*len(t.next) }

// maxApart bounds the stacks, other than those of texts, by which the bytes of a state are told apart. Where
// there are more, each class of the grammar is a group.
const maxApart = 32

// A parting divides the classes of a grammar into groups.
type parting struct {
	of    []uint8 // [class] its group
	count int
	keys  [512]uint64 // an open hash table, emptied by raising now
	ids   [512]uint8
	used  [512]uint32
	now   uint32
}

// refine keeps two classes of a group in one only if key gives both the same.
func (p *parting) refine(key func(class int) uint32) {
	p.now++
	p.count = 0
	for class, g := range p.of {
		k := uint64(g)<<32 | uint64(key(class))
		at := k * 0x9E3779B97F4A7C15 >> 55
		for p.used[at] == p.now && p.keys[at] != k {
			at = (at + 1) % uint64(len(p.keys))
		}
		if p.used[at] != p.now {
			p.used[at], p.keys[at], p.ids[at] = p.now, k, uint8(p.count)
			p.count++
		}
		p.of[class] = p.ids[at]
	}
}

// table returns that of a state, which it makes if need be. The machine is locked.
func (m *machine) table(s *State) *table {
	if t := s.table.Load(); t != nil {
		return t
	}
	g := m.g
	p := &m.parting
	p.of = append(p.of[:0], make([]uint8, len(g.members))...)
	p.count = 1
	apart := 0
	for _, c := range s.stacks {
		if g.nodes[c.expr].kind != kindText {
			apart++
		}
	}
	if apart > maxApart {
		p.count = len(g.members)
		for class := range p.of {
			p.of[class] = uint8(class)
		}
	} else {
		m.part(s)
	}
	t := &table{
		bytes: make([]byte, p.count), kinds: make([]alphabet, p.count),
		next: make([]atomic.Pointer[State], p.count), cost: make([]atomic.Uint32, p.count),
	}
	for c := range 256 {
		id := p.of[g.class[c]]
		t.group[c], t.bytes[id] = id, byte(c)
		if c < len(alphabets) {
			t.kinds[id] |= alphabets[c]
		}
	}
	s.table.Store(t)
	m.size += t.size()
	return t
}

// part divides the classes by what the stacks of s do with them.
func (m *machine) part(s *State) {
	g, p := m.g, &m.parting
	var letters ByteSet // that texts go on with
	for _, c := range s.stacks {
		n := &g.nodes[c.expr]
		switch n.kind {
		case kindText:
			letters.Add(n.text[c.at])
		case kindBytes:
			p.refine(func(class int) uint32 {
				if n.set.Has(g.members[class]) {
					return 1
				}
				return 0
			})
		case kindDFA:
			if n.count != nil {
				p.refine(func(class int) uint32 { return uint32(n.step(c.at, g.members[class])) })
				break
			}
			row := n.dfa.next[int(c.at)*n.dfa.classes:][:n.dfa.classes]
			p.refine(func(class int) uint32 { return uint32(row[n.dfa.class[g.members[class]]]) })
		}
	}
	// Each of these letters is a class by itself, and becomes a group by itself.
	for c := range 256 {
		if letters.Has(byte(c)) {
			if class := int(g.class[c]); slices.Index(p.of, p.of[class]) != class || slices.Contains(p.of[class+1:], p.of[class]) {
				p.of[class] = uint8(p.count)
				p.count++
			}
		}
	}
}
