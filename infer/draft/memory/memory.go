// Package memory has the state of drafters without a draft model.
package memory

import (
	"math"
	"slices"
	"sync"

	"talf/infer"
	"talf/infer/lookup"
)

// A Memory holds the tokens of the sequence and, if there is a table, the tokens that the target
// considered likely at the nodes it scored. Embedded, it is most of a drafter: only Grow and
// Traits are missing.
type Memory struct {
	Context *lookup.Context
	Table   *Table // nil learns nothing
	Harvest Harvest
	prompt  int // tokens
	next    []lookup.Successor
	ids     []int32
}

// A Table is a set of transitions that several drafters may share.
type Table struct {
	sync.Mutex
	*lookup.Transitions
	Keep   bool // what was learned from one request serves the next
	Ranked bool // successors have no scores: their order is enough
}

// A Harvest says which of the target's rows a table learns from.
type Harvest uint8

// The ways.
const (
	All      Harvest = iota // those of every node scored, and of the prompt
	Verified                // those of accepted nodes, and of the prompt
	Rounds                  // those of every node scored
)

// Start begins a sequence.
func (m *Memory) Start(prompt []int32) error {
	m.Context.Reset()
	m.Context.Append(prompt...)
	m.prompt = len(prompt)
	if m.Table != nil && !m.Table.Keep {
		m.Table.Reset()
	}
	return nil
}

// Bytes returns the memory of the sequence's own table and index. A table that outlives the sequence is not its own.
func (m *Memory) Bytes() int {
	n := m.Context.Bytes()
	if m.Table != nil && !m.Table.Keep {
		n += m.Table.Bytes()
	}
	return n
}

// Traits asks for the rows of the prompt if the table learns from them, and for those of a kept
// prefix too unless the table outlives the sequence.
func (m *Memory) Traits(origin func(n int) int, origins ...string) infer.Traits {
	t := infer.Traits{Origins: infer.Origins{Names: origins, Of: origin}}
	switch {
	case m.Table == nil || m.Harvest == Rounds:
	case m.Table.Keep:
		t.Harvest = infer.Once
	default:
		t.Harvest = infer.Anew
	}
	return t
}

// Prefill reports whether a root at sequence position pos belongs to the prompt and is not its
// last token.
func (m *Memory) Prefill(pos int) bool { return pos < m.prompt-1 }

// Observe learns from what was scored and appends what was kept. In rounds in which no draft was
// asked for, learning would take time from others for nothing: many requests run, and drafts do not
// pay.
func (m *Memory) Observe(p infer.Proposal, v infer.Verdict, s infer.Scores) error {
	prefill := m.Prefill(p.Pos)
	skip := !prefill && p.MaxDepth == 0 || prefill && m.Harvest == Rounds
	if m.Table != nil && !skip {
		m.learn(&p, v, s)
	}
	if prefill {
		return nil // the prompt is known from the start
	}
	m.Follow(p, v)
	return nil
}

// Follow appends what was kept of a round.
func (m *Memory) Follow(p infer.Proposal, v infer.Verdict) {
	m.Context.Truncate(p.Pos + 1)
	for _, n := range v.Path[1:] {
		m.Context.Append(p.Tree.Token(n))
	}
	m.Context.Append(v.Next)
}

func (m *Memory) learn(p *infer.Proposal, v infer.Verdict, s infer.Scores) {
	m.Table.Lock()
	defer m.Table.Unlock()
	if m.Harvest == Verified {
		for _, n := range v.Path {
			m.learnRow(p, n, s)
		}
		return
	}
	for n := range p.Tree.Len() {
		m.learnRow(p, n, s)
	}
}

func (m *Memory) learnRow(p *infer.Proposal, n int, s infer.Scores) {
	m.next = m.next[:0]
	if m.Table.Ranked {
		m.ids = s.Rank(m.ids[:0], n, m.Table.Width())
		for _, t := range m.ids {
			m.next = append(m.next, lookup.Successor{Token: t})
		}
	} else {
		for _, c := range s.TopK(n, m.Table.Width()) {
			if !(c.LogProb > float32(math.Inf(-1))) {
				break // no mass or NaN, like all that follow
			}
			m.next = append(m.next, lookup.Successor{Token: c.Token, Score: float32(math.Exp(float64(c.LogProb)))})
		}
	}
	if len(m.next) == 0 {
		return // a replay lacks the row, or the row is empty: keep what is known
	}
	m.Table.Learn(m.Before(p, n), p.Tree.Token(n), m.next)
}

// Before returns the token before node n, -1 if there is none.
func (m *Memory) Before(p *infer.Proposal, n int) int32 {
	if n > 0 {
		return p.Tree.Token(p.Tree.Parent(n))
	}
	if p.Pos > 0 {
		return m.Context.Tokens()[p.Pos-1]
	}
	return -1
}

// May reports whether a token may follow node n of p's tree.
func May(p *infer.Proposal, n int, token int32) bool { return p.May == nil || p.May(p.Tree, n, token) }

// After returns the successors of node n that may follow it, best first. The table is locked.
func (m *Memory) After(p *infer.Proposal, n int) []lookup.Successor {
	next := m.Table.Next(m.Before(p, n), p.Tree.Token(n))
	never := func(x lookup.Successor) bool { return !May(p, n, x.Token) }
	if !slices.ContainsFunc(next, never) {
		return next
	}
	return slices.DeleteFunc(slices.Clone(next), never)
}
