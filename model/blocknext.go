package model

import (
	"context"
	"fmt"

	"talf/compute"
	"talf/internal/detmath"
	"talf/internal/slab"
	"talf/model/arch"
)

// A BlockState keeps on the device what a block's rows say, while a draft is made of it.
type BlockState struct {
	hidden compute.Buffer // [Drafts][Hidden]
	logits compute.Buffer // [Drafts][Outputs] of a head without a selector, which needs none
}

// NewBlockState returns room for what a block of m, a block drafter, says.
func (m *Model) NewBlockState() (*BlockState, error) {
	s, d := &BlockState{}, m.spec.Block.Drafts()
	var err error
	if s.hidden, err = m.dev.Alloc(compute.F32, d, m.spec.Hidden); err == nil && m.spec.Block.SelectorRank == 0 {
		s.logits, err = m.dev.Alloc(compute.F32, d, m.Outputs())
	}
	if err != nil {
		return nil, fmt.Errorf("keep what a block says: %w", err)
	}
	return s, nil
}

// Keep copies what the block of a segment says. It is there for what is queued later.
func (o *Output) Keep(seg int, s *BlockState) {
	m, g := o.m, &o.seg[seg]
	m.act.count(o.rows)
	m.q.Gather(s.hidden, 0, 0, o.Hidden, m.act.iota[g.row:g.row+g.n])
	if s.logits != nil {
		m.q.Gather(s.logits, 0, 0, o.Logits, m.act.iota[g.logit:g.logit+g.n])
	}
}

// An After asks what may follow a token of a draft; see arch.Block.
type After struct {
	Block *BlockState
	Depth int   // of the token; 0: the anchor
	Token int32 //
	// Before is the state of a recurrent Markov head before the token, nil before the anchor, and State, [Rank], takes that
	// after it.
	Before, State []float32
	Accept        float32 // takes the estimated probability that a token after this one is accepted; 1 without a confidence head
}

// A nextHead makes what may follow depend on the token before it.
type nextHead struct {
	in         compute.Weight // W1 [Vocab][Rank]
	out        compute.Linear // W2 [Outputs][Rank]
	gate       compute.Linear // gate_proj [Rank][Hidden+Rank] or joint_proj [3·Rank][2·Rank+Hidden]
	confidence compute.Linear // [1][Hidden+Rank] or [1][Hidden]

	hidden        compute.Linear // selector's P [SelectorRank][Hidden]
	before, after compute.Weight // and its A and C [Vocab][SelectorRank]

	cap            int
	read           compute.Buffer // what gate and confidence read [cap][In]
	sure           compute.Buffer // [cap][In of confidence]
	e, gates, said compute.Buffer // [cap][Rank], [cap][Out of gate], [cap][1]
	p, a, c        compute.Buffer // [cap][SelectorRank], the last of chosen rows
	ids, row       []int32
	x, y, z        []float32
	output         Output
}

// ForwardAfter computes the logits of what may follow tokens, [len(at)] rows of the output, and fills at's State and Accept.
// The output is valid until the model's next pass. It is not for heads with a selector.
func (m *Model) ForwardAfter(ctx context.Context, at []After) (*Output, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	h, x, n := &m.block.next, &m.spec.Block, len(at)
	if err := m.grow(1, n); err != nil {
		return nil, fmt.Errorf("run %d rows: %w", n, err)
	}
	if err := h.grow(m, n); err != nil {
		return nil, fmt.Errorf("run %d rows: %w", n, err)
	}
	o := &h.output
	o.m, o.Logits, o.stale, o.want, o.ok = m, m.act.logits, true, append(o.want[:0], m.act.iota[:n]...), o.ok[:0]
	o.best.k = 0
	h.ids = h.ids[:0]
	for i := range at {
		h.ids = append(h.ids, at[i].Token)
		at[i].Accept = 1
		m.q.Gather(o.Logits, i, 0, at[i].Block.logits, h.one(at[i].Depth))
	}
	if x.Markov != "" {
		m.q.Embed(h.e, 0, h.in, h.ids)
	}
	if x.Confidence {
		h.accept(m, at)
	}
	switch x.Markov {
	case arch.GatedMarkov:
		h.gated(m, at)
	case arch.RNNMarkov:
		h.recurrent(m, at)
	}
	if x.Markov != "" {
		m.q.Linear(o.Logits, h.e, &h.out, compute.Accumulate, n)
	}
	if err := m.q.Sync(ctx); err != nil {
		return nil, fmt.Errorf("run %d rows: %w", n, err)
	}
	return o, nil
}

// one returns a list of one row.
func (h *nextHead) one(row int) []int32 {
	h.row = append(h.row, int32(row))
	return h.row[len(h.row)-1:]
}

// accept fills at's Accept: σ(proj [h; e]).
func (h *nextHead) accept(m *Model, at []After) {
	n := len(at)
	h.states(m, h.sure, 0, at)
	if m.spec.Block.ConfidenceMarkov {
		m.q.Embed(h.sure, m.spec.Hidden, h.in, h.ids)
	}
	m.q.Linear(h.said, h.sure, &h.confidence, compute.Store, n)
	h.x = slab.Resize(h.x, n)
	m.read(h.x, h.said, 0)
	for i := range at {
		at[i].Accept = sigmoid(h.x[i])
	}
}

// states copies hidden states to columns of dst.
func (h *nextHead) states(m *Model, dst compute.Buffer, col int, at []After) {
	for i := range at {
		m.q.Gather(dst, i, col, at[i].Block.hidden, h.one(at[i].Depth))
	}
}

// gated sets e to σ(gate_proj [h; e]) ⊙ e.
func (h *nextHead) gated(m *Model, at []After) {
	n, r := len(at), m.spec.Block.Rank
	h.states(m, h.read, 0, at)
	m.q.Embed(h.read, m.spec.Hidden, h.in, h.ids)
	m.q.Linear(h.gates, h.read, &h.gate, compute.Store, n)
	h.x, h.y = slab.Resize(h.x, n*r), slab.Resize(h.y, n*r)
	m.read(h.x, h.gates, 0)
	m.read(h.y, h.e, 0)
	for i, g := range h.x {
		h.y[i] *= sigmoid(g)
	}
	m.q.Write(h.e, h.y)
}

// recurrent sets e to tanh o and fills at's State, with [g, c, o] = joint_proj [s; e; h].
func (h *nextHead) recurrent(m *Model, at []After) {
	n, r := len(at), m.spec.Block.Rank
	h.y = slab.Resize(h.y, n*r)
	clear(h.y)
	for i := range at {
		copy(h.y[i*r:][:r], at[i].Before)
	}
	m.q.Write(h.e, h.y)
	m.q.Gather(h.read, 0, 0, h.e, m.act.iota[:n])
	m.q.Embed(h.read, r, h.in, h.ids)
	h.states(m, h.read, 2*r, at)
	m.q.Linear(h.gates, h.read, &h.gate, compute.Store, n)
	h.x = slab.Resize(h.x, 3*n*r)
	m.read(h.x, h.gates, 0)
	for i := range at {
		gco, s := h.x[i*3*r:][:3*r], h.y[i*r:][:r]
		for j := range s {
			g := sigmoid(gco[j])
			at[i].State[j] = float32(g*s[j]) + float32((1-g)*tanh(gco[r+j]))
			s[j] = tanh(gco[2*r+j])
		}
	}
	m.q.Write(h.e, h.y)
}

// SelectAfter adds to scores, [len(at)][SelectorTop], what the selector thinks of tokens ids of the same shape.
func (m *Model) SelectAfter(ctx context.Context, at []After, ids []int32, scores []float32) error {
	h, n, r := &m.block.next, len(at), m.spec.Block.SelectorRank
	if err := h.grow(m, n); err != nil {
		return fmt.Errorf("run %d rows: %w", n, err)
	}
	h.ids = h.ids[:0]
	for i := range at {
		h.ids = append(h.ids, at[i].Token)
	}
	h.states(m, h.read, 0, at)
	m.q.Linear(h.p, h.read, &h.hidden, compute.Store, n)
	m.q.Embed(h.a, 0, h.before, h.ids)
	m.q.Embed(h.c, 0, h.after, ids)
	h.x, h.y, h.z = slab.Resize(h.x, n*r), slab.Resize(h.y, n*r), slab.Resize(h.z, len(ids)*r)
	m.read(h.x, h.p, 0)
	m.read(h.y, h.a, 0)
	m.read(h.z, h.c, 0)
	if err := m.q.Sync(ctx); err != nil {
		return fmt.Errorf("run %d rows: %w", n, err)
	}
	for i := range h.x {
		h.x[i] *= h.y[i]
	}
	for k := range ids {
		sum, a, c := float32(0), h.x[k/m.spec.Block.SelectorTop*r:][:r], h.z[k*r:][:r]
		for j := range a {
			sum += float32(a[j] * c[j])
		}
		scores[k] += sum
	}
	return nil
}

// grow makes room for n rows.
func (h *nextHead) grow(m *Model, n int) (err error) {
	h.row = h.row[:0]
	if n <= h.cap {
		return nil
	}
	n = roundUp(n)
	alloc := func(dst *compute.Buffer, rows, cols int) {
		if err == nil && cols > 0 {
			*dst, err = m.dev.Alloc(compute.F32, rows, cols)
		}
	}
	x := &m.spec.Block
	alloc(&h.e, n, x.Rank)
	if w := h.gate.W; w != nil {
		alloc(&h.read, n, w.In())
		alloc(&h.gates, n, w.Out())
	}
	if w := h.confidence.W; w != nil {
		alloc(&h.sure, n, w.In())
		alloc(&h.said, n, 1)
	}
	if x.SelectorRank > 0 {
		alloc(&h.read, n, m.spec.Hidden)
		alloc(&h.p, n, x.SelectorRank)
		alloc(&h.a, n, x.SelectorRank)
		alloc(&h.c, n*x.SelectorTop, x.SelectorRank)
	}
	m.act.count(n)
	if err == nil {
		h.cap = n
	}
	return err
}

func sigmoid(x float32) float32 { return float32(1 / (1 + detmath.Exp(-float64(x)))) }

func tanh(x float32) float32 { return float32(1 - 2/(1+detmath.Exp(2*float64(x)))) }
