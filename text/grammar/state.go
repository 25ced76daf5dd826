package grammar

import (
	"slices"
	"sync"
	"sync/atomic"

	"talf/internal/limits"
	"talf/text/grammar/internal/index"
)

// A cell is the top of a stack: an expression of which at parts are done, and what follows it.
// Equal stacks are one cell, as long as the machine remembers them.
type cell struct {
	expr  Expr
	at    int32
	below *cell
	id    uint64
	depth int32
	seen  uint64 // the last closure that expanded it
	fresh uint64 // the last closure that repeated something with it below
}

// A State is where a text is in a grammar. It is immutable, and safe for concurrent use.
type State struct {
	id     uint64  // no other state's of the machine
	stacks []*cell // each has an expression of bytes on top, ordered by id
	accept bool
	first  bool // no token has been read, and first tokens read differently
	table  atomic.Pointer[table]
	ending atomic.Pointer[ending]
	mask   atomic.Pointer[mask]
}

// Accepting reports whether the text may end here.
func (s *State) Accepting() bool { return s.accept }

// Complete reports whether the text has to end here.
func (s *State) Complete() bool { return s.accept && len(s.stacks) == 0 }

// size is about how many bytes a state takes, without its cells, its table and its mask.
func (s *State) size() int { return 160 + 16*len(s.stacks) }

// forget takes back what is known of what follows s.
func (s *State) forget() {
	s.ending.Store(nil)
	if t := s.table.Load(); t != nil {
		t.forget()
	}
}

// cellSize is about how many bytes a cell takes, with its entry in a map.
const cellSize = 128

// A machine makes the states of a grammar when they are asked for.
type machine struct {
	g *Grammar

	mu      sync.Mutex
	cells   index.Index[cell]
	states  index.Index[State]
	ids     uint64
	closure uint64
	dead    *State
	start   *State
	roots   []*State // that are kept for ever
	size    int      // about how many bytes cells and states take
	forgets int      // how often reset was called
	steps   int      // cells that the last expand replaced
	again   int      // how often it came to one of them again

	todo []*cell
	out  []*cell
	acc  bool

	parting parting
}

// newMachine returns a machine at the start of g. It fails if more stacks are possible there than
// limits.GrammarStacks.
func newMachine(g *Grammar) (*machine, error) {
	m := &machine{g: g, dead: &State{}}
	m.reset()
	m.begin()
	m.todo = append(m.todo, m.push(g.start, 0, nil))
	m.start = m.expand()
	if m.start == m.dead {
		return nil, errAmbiguous
	}
	m.roots = append(m.roots, m.start)
	return m, nil
}

// reset forgets all cells and states. Those in use stay, and are found again as new ones; that they
// know of none that follows lets go of the others.
func (m *machine) reset() {
	m.states.All((*State).forget)
	for _, s := range m.roots {
		s.forget()
	}
	m.size = 0
	m.forgets++
	m.cells, m.states = index.Index[cell]{}, index.Index[State]{}
}

// push returns the stack with an expression on below.
func (m *machine) push(e Expr, at int32, below *cell) *cell {
	hash := uint64(uint32(e))<<32 | uint64(uint32(at))
	if below != nil {
		hash = index.Mix(below.id, hash)
	} else {
		hash = index.Mix(0, hash)
	}
	c := m.cells.Find(hash, func(c *cell) bool { return c.expr == e && c.at == at && c.below == below })
	if c == nil {
		m.ids++
		c = &cell{expr: e, at: at, below: below, id: m.ids, depth: 1}
		if below != nil {
			c.depth = below.depth + 1
		}
		m.cells.Add(hash, c)
		m.size += cellSize
	}
	return c
}

func (m *machine) begin() {
	m.closure++
	m.todo, m.out, m.acc = m.todo[:0], m.out[:0], false
}

// pop goes on with what follows a part that has ended.
func (m *machine) pop(below *cell) {
	switch {
	case below == nil:
		m.acc = true
	case below.fresh == m.closure && m.g.nodes[below.expr].loose:
		// Repeated without a byte in between: the stack that repeats it, which is in this state
		// too, allows at least as much.
	default:
		m.todo = append(m.todo, below)
	}
}

// expand returns the state of the stacks in todo, whose tops are replaced by what they begin with
// until these are bytes; the dead state if there are too many.
func (m *machine) expand() *State {
	m.steps, m.again = 0, 0
	for len(m.todo) > 0 {
		c := m.todo[len(m.todo)-1]
		m.todo = m.todo[:len(m.todo)-1]
		if c.seen == m.closure {
			m.again++
			continue
		}
		c.seen = m.closure
		if m.steps++; m.steps > limits.GrammarExpand || len(m.out) > limits.GrammarStacks || c.depth > limits.GrammarDepth {
			return m.dead
		}
		n := &m.g.nodes[c.expr]
		switch n.kind {
		case kindBytes, kindText:
			m.out = append(m.out, c)
		case kindDFA:
			if n.accepts(c.at) {
				m.pop(c.below)
			}
			if !n.final(c.at) {
				m.out = append(m.out, c)
			}
		case kindSeq:
			if int(c.at) == len(n.kids) { // the empty text
				m.pop(c.below)
				break
			}
			below := c.below
			if int(c.at)+1 < len(n.kids) {
				below = m.push(c.expr, c.at+1, c.below)
			}
			m.todo = append(m.todo, m.push(n.kids[c.at], 0, below))
		case kindAlt, kindRule:
			if m.again+len(n.kids) > 8*limits.GrammarExpand { // most of which are the same, or end alike
				return m.dead
			}
			for _, k := range slices.Backward(n.kids) {
				m.todo = append(m.todo, m.push(k, 0, c.below))
			}
		case kindRepeat:
			if c.at >= n.min {
				m.pop(c.below)
			}
			below, next := c.below, c.at+1
			if n.max == Unbounded {
				next = min(next, n.min)
			}
			if next != n.max {
				below = m.push(c.expr, next, c.below)
				below.fresh = m.closure
			}
			m.todo = append(m.todo, m.push(n.kids[0], 0, below))
		}
	}
	return m.intern()
}

// takes notes that what is known of a state takes some bytes.
func (m *machine) takes(size int) {
	m.mu.Lock()
	m.size += size
	m.mu.Unlock()
}

// intern returns the state of the stacks in out.
func (m *machine) intern() *State {
	if len(m.out) == 0 && !m.acc {
		return m.dead
	}
	slices.SortFunc(m.out, func(a, b *cell) int {
		if a.id < b.id {
			return -1
		}
		return 1
	})
	hash := uint64(0)
	if m.acc {
		hash = 1
	}
	for _, c := range m.out {
		hash = index.Mix(hash, c.id)
	}
	s := m.states.Find(hash, func(s *State) bool { return s.accept == m.acc && slices.Equal(s.stacks, m.out) })
	if s == nil {
		if m.states.Len >= limits.GrammarStates || m.size > limits.GrammarMemory {
			m.reset()
		}
		m.ids++
		s = &State{id: m.ids, stacks: slices.Clone(m.out), accept: m.acc}
		m.states.Add(hash, s)
		m.size += s.size() + 8*len(m.out)
	}
	return s
}

// step returns the state after a byte, nil if no text of the grammar goes on with it.
func (m *machine) step(s *State, c byte) *State {
	if t := s.table.Load(); t != nil {
		if next := t.next[t.group[c]].Load(); next != nil {
			if next == m.dead {
				return nil
			}
			return next
		}
	}
	return m.compute(s, c)
}

func (m *machine) compute(s *State, c byte) *State {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := m.table(s)
	m.begin()
	for _, top := range s.stacks {
		n := &m.g.nodes[top.expr]
		switch n.kind {
		case kindBytes:
			if n.set.Has(c) {
				m.pop(top.below)
			}
		case kindText:
			if n.text[top.at] == c {
				if int(top.at)+1 == len(n.text) {
					m.pop(top.below)
				} else {
					m.todo = append(m.todo, m.push(top.expr, top.at+1, top.below))
				}
			}
		case kindDFA:
			if to := n.step(top.at, c); to >= 0 {
				m.todo = append(m.todo, m.push(top.expr, to, top.below))
			}
		}
	}
	next := m.expand()
	t.cost[t.group[c]].Store(uint32(m.steps + m.again/4))
	t.next[t.group[c]].Store(next)
	if next == m.dead {
		return nil
	}
	return next
}
