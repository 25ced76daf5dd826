// Package meter counts what the operations of a training step cost: their time,
// their floating-point operations and the memory that they must touch.
package meter

import (
	"context"
	"slices"
	"time"

	"talf/compute"
)

// A Cost is what an operation took.
type Cost struct {
	Calls int
	Time  time.Duration
	// FLOP counts additions, multiplications and any other function as one each. Masked elements
	// of a product do not count.
	FLOP float64
	// Bytes counts every operand once, whether it is read or written: the traffic that
	// remains with a cache of any size that starts empty.
	Bytes float64
}

// A Meter adds up the costs of operations by name. It belongs to one goroutine.
type Meter struct {
	costs map[string]*Cost
	order []string
	on    bool

	span  string    // in progress, "": none
	since time.Time // of the span
}

// New returns a meter that is off.
func New() *Meter { return &Meter{costs: make(map[string]*Cost)} }

// Switch turns counting on or off.
func (m *Meter) Switch(on bool) { m.on, m.span = on, "" }

// Names returns the operations counted, in the order of their first calls.
func (m *Meter) Names() []string { return slices.Clone(m.order) }

// Cost returns the cost counted under name.
func (m *Meter) Cost(name string) Cost {
	if c := m.costs[name]; c != nil {
		return *c
	}
	return Cost{}
}

// Begin starts a span: until End, the device's operations count under name, and the time
// is that of the whole span.
func (m *Meter) Begin(name string) {
	if m.on {
		m.span, m.since = name, time.Now()
	}
}

// End ends the span.
func (m *Meter) End() {
	if m.on && m.span != "" {
		c := m.at(m.span)
		c.Calls++
		c.Time += time.Since(m.since)
		m.span = ""
	}
}

func (m *Meter) at(name string) *Cost {
	c := m.costs[name]
	if c == nil {
		c = new(Cost)
		m.costs[name], m.order = c, append(m.order, name)
	}
	return c
}

// count adds an operation of the device that has run.
func (m *Meter) count(kernel string, since time.Time, flop, bytes float64) {
	if !m.on {
		return
	}
	name := m.span
	if name == "" {
		name = kernel
	}
	c := m.at(name)
	if m.span == "" { // within a span its own clock runs
		c.Calls++
		c.Time += time.Since(since)
	}
	c.FLOP += flop
	c.Bytes += bytes
}

// A Queue is a queue whose operations a meter counts. It waits for each, so that times do
// not mix.
type Queue struct {
	compute.Queue
	compute.TrainOps
	can compute.Abilities
	m   *Meter
}

// Watch returns q with the operations of training counted by m.
func Watch(q compute.Queue, m *Meter) compute.Queue {
	w := &Queue{Queue: q, can: q.Abilities(), m: m}
	if w.TrainOps = w.can.Train; w.TrainOps != nil {
		w.can.Train = w
	}
	if w.can.Block != nil {
		w.can.Block = &blockOps{w.can.Block, w}
	}
	if w.can.Stash != nil {
		w.can.Stash = &stasher{w.can.Stash, w}
	}
	return w
}

// Abilities returns those of the watched queue, training and stashing counted.
func (q *Queue) Abilities() compute.Abilities { return q.can }

// A stasher counts under its queue.
type stasher struct {
	compute.Stasher
	q *Queue
}

// Narrow counts as compute.Stasher.
func (s *stasher) Narrow(dst, src compute.Buffer, n int) {
	t := time.Now()
	s.Stasher.Narrow(dst, src, n)
	s.q.done("narrow", t, 0, 6*float64(n))
}

// Widen counts as compute.Stasher.
func (s *stasher) Widen(dst, src compute.Buffer, n int) {
	t := time.Now()
	s.Stasher.Widen(dst, src, n)
	s.q.done("widen", t, 0, 6*float64(n))
}

// done counts an operation that began at t. An error stays in the queue for the next caller that
// syncs: only an asynchronous device has one here.
func (q *Queue) done(kernel string, t time.Time, flop, bytes float64) {
	if q.m.on {
		_ = q.Sync(context.Background())
	}
	q.m.count(kernel, t, flop, bytes)
}

func width(b compute.Buffer) float64 {
	s := b.Shape()
	return float64(s[len(s)-1])
}

func elements(b compute.Buffer) float64 {
	n := 1.0
	for _, d := range b.Shape() {
		n *= float64(d)
	}
	return n
}

// Gather counts as compute.Ops.
func (q *Queue) Gather(dst compute.Buffer, row, col int, src compute.Buffer, rows []int32) {
	t := time.Now()
	q.Queue.Gather(dst, row, col, src, rows)
	q.done("gather", t, 0, 8*float64(len(rows))*width(src))
}

// Norm counts as compute.Ops.
func (q *Queue) Norm(dst, x compute.Buffer, norm *compute.Norm, n int) {
	t := time.Now()
	q.Queue.Norm(dst, x, norm, n)
	e := float64(n) * width(x)
	q.done("norm", t, 4*e, 8*e)
}

// SwiGLU counts as compute.Ops.
func (q *Queue) SwiGLU(dst, gu compute.Buffer, n int) {
	t := time.Now()
	q.Queue.SwiGLU(dst, gu, n)
	e := float64(n) * width(dst)
	q.done("swiglu", t, 5*e, 12*e)
}

// Write counts as compute.Queue.
func (q *Queue) Write(dst compute.Buffer, src any) {
	t := time.Now()
	q.Queue.Write(dst, src)
	n := 0
	switch s := src.(type) {
	case []float32:
		n = len(s)
	case []int32:
		n = len(s)
	}
	q.done("write", t, 0, 8*float64(n))
}

// Gemm counts as compute.TrainOps.
func (q *Queue) Gemm(c, a, b compute.Mat, beta float32) {
	t := time.Now()
	q.TrainOps.Gemm(c, a, b, beta)
	m, n, k := float64(c.Rows), float64(c.Cols), float64(a.Cols)
	q.done("gemm", t, 2*m*n*k, 4*(m*k+k*n+m*n*float64(1+beta)))
}

// Add counts as compute.TrainOps.
func (q *Queue) Add(dst, a, b compute.Buffer, n int) {
	t := time.Now()
	q.TrainOps.Add(dst, a, b, n)
	q.done("add", t, float64(n), 12*float64(n))
}

// AddBias counts as compute.TrainOps.
func (q *Queue) AddBias(x, bias compute.Buffer, n int) {
	t := time.Now()
	q.TrainOps.AddBias(x, bias, n)
	e := float64(n) * elements(bias)
	q.done("add_bias", t, e, 8*e)
}

// SumRows counts as compute.TrainOps.
func (q *Queue) SumRows(dst, x compute.Buffer, n int) {
	t := time.Now()
	q.TrainOps.SumRows(dst, x, n)
	e := float64(n) * width(x)
	q.done("sum_rows", t, e, 4*e)
}

// NormGrad counts as compute.TrainOps.
func (q *Queue) NormGrad(dx, dw, dy, x, weight compute.Buffer, eps float32, n int) {
	t := time.Now()
	q.TrainOps.NormGrad(dx, dw, dy, x, weight, eps, n)
	e := float64(n) * width(x)
	q.done("norm_grad", t, 10*e, 12*e)
}

// Rope counts as compute.TrainOps.
func (q *Queue) Rope(x compute.Buffer, col, heads, headDim int, rope compute.Buffer, pos []int32, inverse bool, n int) {
	t := time.Now()
	q.TrainOps.Rope(x, col, heads, headDim, rope, pos, inverse, n)
	e := float64(n) * float64(heads*headDim)
	q.done("rope", t, 3*e, 8*e)
}

// SwiGLUGrad counts as compute.TrainOps.
func (q *Queue) SwiGLUGrad(dgu, dy, gu compute.Buffer, n int) {
	t := time.Now()
	q.TrainOps.SwiGLUGrad(dgu, dy, gu, n)
	e := float64(n) * width(dy)
	q.done("swiglu_grad", t, 12*e, 20*e)
}

// seen returns the number of keys that all rows of g see.
func seen(g *compute.TrainAttention) float64 {
	n := 0.0
	for r := range g.First {
		n += float64(g.Last[r] - g.First[r] + 1)
		for _, a := range g.Anc {
			if a[r] >= 0 {
				n++
			}
		}
	}
	return n
}

// touched returns the number of elements of bs, of which one may stand for several levels.
func touched(bs []compute.Buffer) (n float64) {
	for i, b := range bs {
		if !slices.Contains(bs[:i], b) {
			n += elements(b)
		}
	}
	return n
}

// TreeAttend counts as compute.TrainOps: scores, their softmax, and values.
func (q *Queue) TreeAttend(o, lse, qs compute.Buffer, k, v []compute.Buffer, g *compute.TrainAttention) {
	t := time.Now()
	q.TrainOps.TreeAttend(o, lse, qs, k, v, g)
	rows := 2 * float64(len(g.First)*g.Heads*g.HeadDim)
	q.done("attend", t, seen(g)*float64(g.Heads)*(4*float64(g.HeadDim)+3), 4*(rows+touched(k)+touched(v)))
}

// TreeAttendGrad counts as compute.TrainOps: the scores again, and four products.
func (q *Queue) TreeAttendGrad(dq compute.Buffer, dk, dv []compute.Buffer, do, o, lse, qs compute.Buffer, k, v []compute.Buffer, g *compute.TrainAttention) {
	t := time.Now()
	q.TrainOps.TreeAttendGrad(dq, dk, dv, do, o, lse, qs, k, v, g)
	rows := 4 * float64(len(g.First)*g.Heads*g.HeadDim)
	q.done("attend_grad", t, seen(g)*float64(g.Heads)*(10*float64(g.HeadDim)+5), 4*(rows+3*touched(k)+3*touched(v)))
}

// SoftCE counts as compute.TrainOps: logits, five operations on each, and the
// gradients of rows and, if wanted, of weights.
func (q *Queue) SoftCE(loss, dh, dw, h, w compute.Buffer, labels *compute.SoftLabels, scale []float32, n int) {
	t := time.Now()
	q.TrainOps.SoftCE(loss, dh, dw, h, w, labels, scale, n)
	rows, hidden, v := float64(n), width(h), float64(w.Shape()[0])
	flop, bytes := rows*v*(4*hidden+5), 4*(2*rows*hidden+2*v*hidden)
	if dw != nil {
		flop, bytes = flop+2*rows*v*hidden, bytes+8*v*hidden
	}
	q.done("soft_ce", t, flop, bytes)
}

// Probs counts as compute.TrainOps: logits, and five operations on each.
func (q *Queue) Probs(dst []float32, h, w compute.Buffer, n int) {
	t := time.Now()
	q.TrainOps.Probs(dst, h, w, n)
	rows, hidden, v := float64(n), width(h), float64(w.Shape()[0])
	q.done("probs", t, rows*v*(2*hidden+5), 4*(rows*hidden+v*hidden+float64(len(dst))))
}

// LabelProbs counts as compute.TrainOps: logits, and five operations on each.
func (q *Queue) LabelProbs(dst, rest []float32, h, w compute.Buffer, ids []int32, k, n int) {
	t := time.Now()
	q.TrainOps.LabelProbs(dst, rest, h, w, ids, k, n)
	rows, hidden, v := float64(n), width(h), float64(w.Shape()[0])
	q.done("label_probs", t, rows*v*(2*hidden+5), 4*(rows*hidden+v*hidden+rows*float64(2*k+1)))
}

// SmoothL1 counts as compute.TrainOps.
func (q *Queue) SmoothL1(loss, dy, y, target compute.Buffer, scale []float32, l1 bool, n int) {
	t := time.Now()
	q.TrainOps.SmoothL1(loss, dy, y, target, scale, l1, n)
	e := float64(n) * width(y)
	q.done("smooth_l1", t, 5*e, 12*e)
}

// EmbedGrad counts as compute.TrainOps.
func (q *Queue) EmbedGrad(dtable, dy compute.Buffer, col int, ids []int32) {
	t := time.Now()
	q.TrainOps.EmbedGrad(dtable, dy, col, ids)
	e := float64(len(ids)) * width(dtable)
	q.done("embed_grad", t, e, 12*e)
}

// SumSquares counts as compute.TrainOps.
func (q *Queue) SumSquares(gs ...compute.Buffer) float64 {
	t := time.Now()
	sum := q.TrainOps.SumSquares(gs...)
	n := 0.0
	for _, g := range gs {
		n += elements(g)
	}
	q.done("sum_squares", t, 2*n, 4*n)
	return sum
}

// AdamW counts as compute.TrainOps.
func (q *Queue) AdamW(p, g, m, v compute.Buffer, h compute.AdamW) {
	t := time.Now()
	q.TrainOps.AdamW(p, g, m, v, h)
	e := elements(p)
	q.done("adamw", t, 16*e, 28*e)
}
