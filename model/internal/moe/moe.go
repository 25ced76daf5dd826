// Package moe computes feed-forward networks of several experts, of which a router chooses some
// for each token.
//
// A pass reads each expert that any of its rows chose once, for all of these rows together. What
// a row gets does not depend on the others: its scores are a product's, whose bits are the same
// for any number of rows, and its experts' outputs are added in the order of their indices.
package moe

import (
	"fmt"

	"talf/compute"
	"talf/model/arch"
)

// A Layer is the feed-forward network of a layer with experts.
type Layer struct {
	Index   int            // in the model
	Norm    *compute.Norm  // of the input, or nil
	Router  compute.Linear // [experts][Hidden]
	Offset  []float32      // of scores while experts are chosen, or nil
	Experts []Expert
	Shared  *Expert        // that all rows read, or nil
	Gate    compute.Linear // [1][Hidden]: its sigmoid multiplies the shared expert's output; W is nil: 1
}

// An Expert is one network.
type Expert struct {
	GateUp compute.Linear // [FFN][Hidden], gated
	Down   compute.Linear // [Hidden][FFN]
}

func (e *Expert) bytes() int { return e.GateUp.Bytes() + e.Down.Bytes() }

// Bytes returns the memory of the weights that a pass over one row reads, which chooses top
// experts.
func (l *Layer) Bytes(top int) int {
	n := l.Router.Bytes() + top*l.Experts[0].bytes()
	if l.Shared != nil {
		n += l.Shared.bytes()
	}
	return n
}

// A Runner computes the layers of one model.
type Runner struct {
	q   compute.Queue
	add compute.Varier
	mix arch.Mixture

	hidden           int
	norm, in, out    compute.Buffer // [rows][Hidden]
	logits           compute.Buffer // [rows][experts]
	mid, shared, one compute.Buffer // [rows][FFN], [rows][Shared], [rows][1]

	route   router
	host    []float32 // logits, and the shared expert's gates
	ids     []int32   // [rows][Top]: chosen experts
	weights []float32 // [rows][Top]: factors of their outputs
	rows    []int32   // of every expert, one after the other
	factors []float32 // of these rows
	end     []int     // [experts]: end of its rows
	all     []int32   // 0, 1, …

	reads Reads
}

// Reads are what passes have read of a model's experts.
type Reads struct {
	Experts, Top int   // of a layer, and of these those that each row chooses
	Layers       []int // by layer: experts that passes have read, 0 for one without experts
	Sparse       int   // layers with experts
	Bytes        int   // weights of an expert; 0 before the first pass
}

// Total is the number of experts that passes have read, in all layers.
func (r *Reads) Total() (n int) {
	for _, x := range r.Layers {
		n += x
	}
	return n
}

// Reads returns what passes have read so far; nothing for a model without experts, which has no
// runner. The caller must not change it.
func (r *Runner) Reads() Reads {
	if r == nil {
		return Reads{}
	}
	return r.reads
}

// New returns a runner for models of one specification.
func New(q compute.Queue, s *arch.Spec) *Runner {
	r := &Runner{q: q, add: q.Abilities().Variants, mix: s.Mixture, hidden: s.Hidden, end: make([]int, s.Mixture.Experts)}
	r.reads = Reads{Experts: s.Mixture.Experts, Top: s.Mixture.Top, Layers: make([]int, s.Layers)}
	for i := range s.Layers {
		if s.Mixture.Sparse(i) {
			r.reads.Sparse++
		}
	}
	return r
}

// Grow makes room for passes of n rows.
func (r *Runner) Grow(dev compute.Device, n int) error {
	m := &r.mix
	for _, b := range []struct {
		dst   *compute.Buffer
		width int
	}{
		{&r.norm, r.hidden},
		{&r.in, r.hidden},
		{&r.out, r.hidden},
		{&r.logits, m.Experts},
		{&r.mid, m.FFN},
		{&r.shared, m.Shared},
		{&r.one, 1},
	} {
		if b.width == 0 {
			continue
		}
		buf, err := dev.Alloc(compute.F32, n, b.width)
		if err != nil {
			return fmt.Errorf("experts of %d rows: %w", n, err)
		}
		*b.dst = buf
	}
	r.host = make([]float32, n*max(1, m.Experts))
	r.ids, r.weights = make([]int32, n*m.Top), make([]float32, n*m.Top)
	r.rows, r.factors = make([]int32, n*m.Top), make([]float32, n*m.Top)
	r.all = r.all[:0]
	for i := range n {
		r.all = append(r.all, int32(i))
	}
	return nil
}

// Run adds what layer l makes of the n rows of x [n][Hidden] to them.
func (r *Runner) Run(x compute.Buffer, l *Layer, n int) {
	in := r.norm // x changes below
	if l.Norm != nil {
		r.q.Norm(in, x, l.Norm, n)
	} else {
		r.q.Gather(in, 0, 0, x, r.all[:n])
	}
	r.q.Linear(r.logits, in, &l.Router, compute.Store, n)
	r.choose(l, n)
	r.reads.Bytes = l.Experts[0].bytes()
	from := 0
	for e, end := range r.end {
		if end == from {
			continue
		}
		rows := r.rows[from:end]
		r.q.Gather(r.in, 0, 0, in, rows)
		r.q.Linear(r.mid, r.in, &l.Experts[e].GateUp, compute.Store, len(rows))
		r.q.Linear(r.out, r.mid, &l.Experts[e].Down, compute.Store, len(rows))
		r.add.ScatterAdd(x, r.out, rows, r.factors[from:end])
		from = end
		r.reads.Layers[l.Index]++
	}
	if l.Shared == nil {
		return
	}
	r.q.Linear(r.shared, in, &l.Shared.GateUp, compute.Store, n)
	if l.Gate.W == nil {
		r.q.Linear(x, r.shared, &l.Shared.Down, compute.Accumulate, n)
		return
	}
	r.q.Linear(r.out, r.shared, &l.Shared.Down, compute.Store, n)
	r.q.Linear(r.one, in, &l.Gate, compute.Store, n)
	gates := r.read(r.one, n)
	for i, z := range gates {
		gates[i] = sigmoid(z)
	}
	r.add.ScatterAdd(x, r.out, r.all[:n], gates)
}

// read copies the first n elements of b to the host.
func (r *Runner) read(b compute.Buffer, n int) []float32 {
	whole := r.host
	r.host = whole[:n]
	r.q.Read(&r.host, b, 0)
	r.host = whole
	return whole[:n]
}

// choose sorts the rows by the experts that they choose, each expert's in ascending order.
func (r *Runner) choose(l *Layer, n int) {
	logits, k, e := r.read(r.logits, n*r.mix.Experts), r.mix.Top, r.mix.Experts
	clear(r.end)
	for i := range n {
		ids := r.ids[i*k:][:k]
		r.route.choose(&r.mix, logits[i*e:][:e], l.Offset, ids, r.weights[i*k:][:k])
		for _, id := range ids {
			r.end[id]++
		}
	}
	at := 0
	for i, count := range r.end {
		r.end[i] = at // where its next row goes
		at += count
	}
	for i, id := range r.ids[:n*k] {
		r.rows[r.end[id]], r.factors[r.end[id]] = int32(i/k), r.weights[i]
		r.end[id]++
	}
}
