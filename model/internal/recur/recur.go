// Package recur computes recurrent layers over trees, and keeps the states of sequences.
//
// A state has a fixed size, that of many positions of keys and values, so the nodes of a tree do not
// each keep one. A branch keeps what the nodes put in, and every pass makes the states that its nodes need from
// the state before the tree, along their paths, one head at a time. Commit does the same along the path that
// is kept. All of these are the same steps in the same order as in plain decoding, so they have
// the same bits.
package recur

import (
	"fmt"

	"talf/compute"
	"talf/internal/detmath"
	"talf/model/arch"
	"talf/model/internal/kvpool"
)

// A Layer is a recurrent layer.
type Layer struct {
	In    compute.Linear // [Channels+ValueHeads·ValueDim][Hidden]; see compute.Recurrer
	Gates compute.Linear // [2·ValueHeads][Hidden]
	Index int            // among recurrent layers
}

// Bytes returns the memory of the weights that a pass reads.
func (l *Layer) Bytes() int { return l.In.Bytes() + l.Gates.Bytes() }

// A Runner computes the recurrent layers of one model. That of other models is nil, and so are their
// sequences.
type Runner struct {
	// Layers are set when the model is loaded.
	Layers []compute.Delta

	q     compute.Queue
	can   compute.Recurrer
	dev   compute.Device
	pool  *kvpool.Pool
	spec  *arch.Spec
	shape compute.DeltaShape
	per   int    // blocks that a state counts as
	zero  *state // before the first token
	free  []*state
	logs  []*log

	x, gates, out, gate compute.Buffer
	spans               []span
	next                int // first of the spans that have not run
	forks               []compute.Fork
	chain               compute.Fork // of a commit
	nodes               []compute.ForkNode
	plan                planner
}

// New returns the runner of models of one specification, nil for those without recurrent layers. States
// are charged to the pool by size, in blocks; kv is its store.
func New(q compute.Queue, dev compute.Device, s *arch.Spec, pool *kvpool.Pool, kv compute.KVConfig) (*Runner, error) {
	if s.Delta.Layers == nil {
		return nil, nil
	}
	block := compute.BlockLen * kv.Layers * kv.KVHeads * (kv.HeadDim + kv.ValueDim()) * kv.Type.Size()
	r := &Runner{
		q: q, can: q.Abilities().Recur, dev: dev, pool: pool, spec: s, shape: s.Delta.Shape(),
		Layers: make([]compute.Delta, s.Delta.Count()), per: (4*s.Delta.StateElements() + block - 1) / block,
	}
	b, err := r.alloc()
	if err != nil {
		return nil, err
	}
	r.q.Write(b, make([]float32, s.Delta.StateElements()))
	r.zero = &state{buf: b, refs: 1}
	return r, nil
}

// Decays returns what decays are made from, given their logarithms: numbers below 0.
func Decays(logs []float32) []float32 {
	minus := make([]float32, len(logs))
	for i, x := range logs {
		minus[i] = float32(-detmath.Exp(float64(x)))
	}
	return minus
}

// Set sets a layer from its tensors: the convolution as it is stored, [channels][Kernel], and Decays. buffer moves numbers to the device.
func (r *Runner) Set(layer int, conv, decays []float32, step, norm compute.Buffer, buffer func(x []float32) compute.Buffer) {
	d := compute.Delta{DeltaShape: r.shape, Step: step, Norm: &compute.Norm{Weight: norm, Eps: r.spec.NormEps}}
	turned, channels := make([]float32, len(conv)), len(conv)/r.shape.Kernel
	for i, x := range conv {
		turned[i%r.shape.Kernel*channels+i/r.shape.Kernel] = x
	}
	d.Conv, d.Decay = buffer(turned), buffer(decays)
	r.Layers[layer] = d
}

// Grouped returns the rows of some parts of all groups, part by part, of a projection whose rows are in groups of
// parts of the given sizes.
func Grouped(rows int, sizes []int, parts ...int) (order []int32) {
	starts, all := make([]int, len(sizes)), 0
	for i, n := range sizes {
		starts[i], all = all, all+n
	}
	for _, p := range parts {
		for first := starts[p]; first < rows; first += all {
			for i := range sizes[p] {
				order = append(order, int32(first+i))
			}
		}
	}
	return order
}

// Worth returns the blocks that all states of a sequence count as at most.
func (r *Runner) Worth() int {
	if r == nil {
		return 0
	}
	return (maxMarks + 2) * r.per
}

// RowBytes returns the memory that a runner takes for a row of a pass.
func RowBytes(s *arch.Spec) int64 {
	if s.Delta.Layers == nil {
		return 0
	}
	d := s.Delta.Shape()
	log := d.Log() * s.Delta.Count() // of a node
	return 4 * int64(d.Channels()+2*d.ValueHeads*d.ValueDim+2*d.ValueHeads+s.Heads*s.HeadDim+log)
}

// Grow makes room for passes of n rows.
func (r *Runner) Grow(n int) error {
	if r == nil {
		return nil
	}
	values := r.shape.ValueHeads * r.shape.ValueDim
	for _, b := range []struct {
		dst   *compute.Buffer
		width int
	}{{&r.x, r.shape.Channels() + values}, {&r.gates, 2 * r.shape.ValueHeads}, {&r.out, values}, {&r.gate, r.spec.Heads * r.spec.HeadDim}} {
		buf, err := r.dev.Alloc(compute.F32, n, b.width)
		if err != nil {
			return fmt.Errorf("recurrent layers of %d rows: %w", n, err)
		}
		*b.dst = buf
	}
	return nil
}

// Run computes layer l over the n rows of x [n][Hidden] of the step that Step has begun. The result
// [n][ValueHeads·ValueDim] is valid until the next call.
func (r *Runner) Run(x compute.Buffer, l *Layer, n int) compute.Buffer {
	r.q.Linear(r.x, x, &l.In, compute.Store, n)
	r.q.Linear(r.gates, x, &l.Gates, compute.Store, n)
	r.can.DeltaRule(r.out, r.x, r.gates, &r.Layers[l.Index], l.Index, r.forks)
	return r.out
}

// Gate multiplies n rows of attention's output by the sigmoids of l's.
func (r *Runner) Gate(att, x compute.Buffer, l *compute.Linear, n int) {
	r.q.Linear(r.gate, x, l, compute.Store, n)
	r.can.GateSigmoid(att, r.gate, n)
}

// A span is the rows [row, row+n) of a step, which are the nodes of a branch from from on.
type span struct {
	b            *Branch
	row, from, n int
}

// Begin forgets the spans of the previous pass.
func (r *Runner) Begin() {
	if r != nil {
		r.spans, r.next = r.spans[:0], 0
	}
}

// Add says that the next rows of a step are nodes [from, from+n) of a branch, in the order of the spans of
// steps.
func (r *Runner) Add(b *Branch, row, from, n int) {
	if r != nil {
		r.spans = append(r.spans, span{b, row, from, n})
	}
}

// Step begins a step of the next n spans.
func (r *Runner) Step(n int) {
	if r == nil {
		return
	}
	r.forks, r.nodes = r.forks[:0], r.nodes[:0]
	for _, s := range r.spans[r.next:][:n] {
		first := len(r.nodes)
		var slots int
		r.nodes, slots = r.plan.nodes(r.nodes, s)
		r.forks = append(r.forks, compute.Fork{State: s.b.before().buf, Log: s.b.log.buf, Nodes: r.nodes[first:], Slots: slots})
	}
	r.next += n
}

// A planner orders the nodes that a span needs.
type planner struct {
	need []bool
	kids []int32 // children that are still to come
	at   []int32 // index of each node in the order
	slot []int32
	free []int32
}

// nodes appends the nodes of a span and their ancestors. A state that no further child needs makes room for the last
// one's.
func (p *planner) nodes(dst []compute.ForkNode, s span) ([]compute.ForkNode, int) {
	n := s.from + s.n
	if len(p.need) < n {
		p.need, p.kids, p.at, p.slot = make([]bool, 2*n), make([]int32, 2*n), make([]int32, 2*n), make([]int32, 2*n)
	}
	clear(p.need[:s.from])
	clear(p.kids[:n])
	for i := n - 1; i >= s.b.keep; i-- {
		if i >= s.from {
			p.need[i] = true
		}
		if up := s.b.up[i]; p.need[i] && up >= 0 {
			p.need[up] = true
			p.kids[up]++
		}
	}
	p.free = p.free[:0]
	slots, first := int32(0), len(dst)
	for i := s.b.keep; i < n; i++ {
		if !p.need[i] {
			continue
		}
		x := compute.ForkNode{Node: int32(i), Row: -1, Up: -1, From: -1}
		if i >= s.from {
			x.Row = int32(s.row + i - s.from)
		}
		if up := s.b.up[i]; up >= 0 {
			x.Up, x.From = p.at[up], p.slot[up]
			p.kids[up]--
			if p.kids[up] == 0 {
				p.free = append(p.free, x.From)
			}
		}
		// The newest free slot is the parent's, if this is its last child.
		if k := len(p.free); k > 0 {
			x.To, p.free = p.free[k-1], p.free[:k-1]
		} else {
			x.To = slots
			slots++
		}
		p.at[i], p.slot[i] = int32(len(dst)-first), x.To
		if p.kids[i] == 0 {
			p.free = append(p.free, x.To)
		}
		dst = append(dst, x)
	}
	return dst, int(slots)
}
