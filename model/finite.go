package model

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync/atomic"

	"talf/compute"
	"talf/model/arch"
	"talf/model/ggml"
	"talf/model/internal/stored"
	"talf/model/safetensors"
)

// A NonFiniteError says that a pass made logits from which no token can be chosen: one is NaN or
// +Inf, or all are −Inf.
type NonFiniteError struct {
	Model   string
	Segment int     // of the batch
	Node    int     // node of its tree after which the token would come
	Token   int32   // column of the logits
	Logit   float32 // its value

	// Layer is the first layer whose output, the residual stream, is not finite: −1 for the
	// embedding, the number of layers if all outputs are finite and the final norm or the LM
	// head is what fails, and Unknown if the pass cannot be run again.
	Layer int
	// The row of Layer's output that is not finite is that of this token at this position. It may
	// be another node of the tree.
	At, Position int32
	// Weight is the first weight, in the order of the network, that is not finite, or nil if all
	// are: then numbers grow beyond float32 where Layer says.
	Weight *safetensors.ValueError

	Layers int // of the model
}

// Unknown is the Layer of a NonFiniteError whose pass cannot be run again.
const Unknown = -2

func (e *NonFiniteError) Error() string {
	s := fmt.Sprintf("%s: the logits of node %d are not finite: that of token %d is %v", e.Model, e.Node, e.Token, e.Logit)
	switch {
	case e.Layer == Unknown:
	case e.Layer < 0:
		s += fmt.Sprintf("; the first such numbers are in the embedding of token %d at position %d", e.At, e.Position)
	case e.Layer < e.Layers:
		s += fmt.Sprintf("; the first such numbers are in the output of layer %d for token %d at position %d", e.Layer, e.At, e.Position)
	default:
		s += fmt.Sprintf("; all %d layers have finite outputs, the final norm or the LM head does not", e.Layers)
	}
	if e.Weight != nil {
		return s + ": " + e.Weight.Error()
	}
	return s + "; all weights are finite: numbers grow too large for float32 there, or at an earlier position"
}

// Err returns nil if a token can be chosen from every row of logits that segment seg asked for:
// none has a NaN or +Inf, and each has a finite element. Otherwise it returns a *NonFiniteError,
// and the other segments are not concerned. Without an error it costs next to nothing. To say
// where the numbers come from it runs the segment again, layer by layer, as long as its branch is
// open and this is the model's last pass; the output stays valid.
func (o *Output) Err(seg int) error {
	if r, ok := o.choosable(seg); !ok {
		return o.explain(seg, r)
	}
	return nil
}

// Sound reports whether later tokens may follow segment seg: its logits allow a choice, or, if it asked for none, the
// hidden state of its last node is finite. Numbers that are not spoil the states of all tokens that attend to them.
func (o *Output) Sound(seg int) bool {
	if g := &o.seg[seg]; g.want == WantNone {
		a, h := &o.m.act, o.m.spec.Hidden
		a.narrow = slices.Grow(a.narrow[:0], h)[:h]
		o.ReadHidden(a.narrow, g.row+g.n-1)
		return !slices.ContainsFunc(a.narrow, func(x float32) bool { return x-x != 0 })
	}
	_, ok := o.choosable(seg)
	return ok
}

// choosable reports whether a token can be chosen from every row of logits of a segment, or else the first from which none can.
func (o *Output) choosable(seg int) (row int, ok bool) {
	g := &o.seg[seg]
	n := 0
	switch g.want {
	case WantAll:
		n = g.n
	case WantLast:
		n = 1
	}
	if n > 0 && len(o.ok) == 0 {
		o.readSums()
	}
	for r := g.logit; r < g.logit+n; r++ {
		if !o.ok[r] {
			return r, false
		}
	}
	return 0, true
}

// packOnes makes the weight of sums, for a device that cannot check logits where they are. The sum
// of a row is finite only if all of its elements are, and costs as much as one more token in the
// vocabulary.
func (l *loader) packOnes() {
	m := l.m
	if m.can.Check != nil || m.spec.Draft {
		return
	}
	m.ones.W = l.as(compute.F32, "sums of logits", []compute.Matrix{stored.Ones(m.Outputs())})
}

// readSums fills ok without reading all logits: from the likely tokens that the pass has read, or
// else from its sums. Rows that look odd are read.
func (o *Output) readSums() {
	a, n := &o.m.act, len(o.want)
	o.ok = slices.Grow(o.ok[:0], n)[:n]
	if b := &o.best; b.k > 0 {
		for r := range o.ok {
			o.ok[r] = true
			if !plausible(b.logp[r*b.k], o.m.Outputs()) {
				_, _, o.ok[r] = o.odd(r)
			}
		}
		return
	}
	sums := make([]float32, n)
	if o.m.ones.W != nil {
		o.m.read(sums, a.sums, 0)
	}
	for r, s := range sums {
		o.ok[r] = true
		if o.m.ones.W == nil || s-s != 0 {
			_, _, o.ok[r] = o.odd(r)
		}
	}
}

// odd returns the first element of a row of logits for which no token can be chosen from it.
func (o *Output) odd(row int) (at int, x float32, ok bool) {
	a := &o.m.act
	w := o.m.Outputs()
	a.narrow = slices.Grow(a.narrow[:0], w)[:w]
	o.m.read(a.narrow, o.Logits, row*w)
	return odd(a.narrow)
}

// explain returns the error of a segment because of a row of logits.
func (o *Output) explain(seg, row int) error {
	m, g := o.m, &o.seg[seg]
	e := &NonFiniteError{Model: m.set.Name, Segment: seg, Layer: Unknown, Layers: m.spec.Layers}
	e.Node = g.from + g.n - 1
	if g.want == WantAll {
		e.Node = g.from + row - g.logit
	}
	at, x, _ := o.odd(row)
	e.Token, e.Logit = int32(at), x
	if m.ids != nil {
		e.Token = m.ids[at]
	}
	if g.in.Rows != nil && g.in.Rows.seq != nil && g.in.Rows.pass == m.pass && o == &m.act.out[0] {
		m.locate(g.in, e)
	}
	errors.As(m.flaw, &e.Weight)
	return e
}

// A probe looks at the residual stream of a pass that is run again.
type probe struct {
	layer int // first layer with an output that is not finite, Unknown so far
	row   int // of the pass
	x     []float32
}

// look reads rows [r,r+n) of the residual stream at a boundary.
func (p *probe) look(m *Model, boundary, r, n int) {
	if p.layer != Unknown && boundary-1 >= p.layer {
		return
	}
	h := m.spec.Hidden
	p.x = slices.Grow(p.x[:0], n*h)[:n*h]
	m.read(p.x, m.act.x, 0)
	for i, x := range p.x {
		if x-x != 0 {
			p.layer, p.row = boundary-1, r+i/h
			return
		}
	}
}

// locate runs a segment's nodes again and finds the first output that is not finite. Keys and
// values get the bits that they have.
func (m *Model) locate(g Segment, e *NonFiniteError) {
	var o Output
	rows := g.Tree.Len() - g.From
	if m.growHidden(&o, rows) != nil {
		return // no memory to look with: the error says less
	}
	taps, p := m.taps, &probe{layer: Unknown}
	m.taps, m.probe = nil, p
	defer func() { m.taps, m.probe = taps, nil }()
	m.fill(&o, []Segment{g}, rows)
	a := &m.act
	r := 0
	for steps := range slices.Chunk(a.steps, m.groups()) {
		m.run(context.Background(), steps, r, &o, len(a.steps) == len(steps))
		r += steps[0].Rows
	}
	if m.q.Sync(context.Background()) != nil {
		return
	}
	if e.Layer = p.layer; e.Layer == Unknown {
		e.Layer = m.spec.Layers
	} else {
		e.At, e.Position = a.ids[p.row], a.pos[p.row]-int32(g.Rows.seq.turn)
	}
}

// Flaw returns a *safetensors.ValueError for the first weight that is not finite, or that the type
// of the weights in memory cannot hold, or nil if there is none. Only draft heads and models that
// were loaded with AllowNonFinite have one. What such a head drafts is useless, but does not
// change what the target makes of it.
func (m *Model) Flaw() error { return m.flaw }

// look checks the values of a tensor that is about to be packed.
func (l *loader) look(t arch.Tensor, as compute.DType) {
	m := l.m
	if l.err != nil || l.dry || m.looked {
		return
	}
	err := m.set.Finite(t.Name, l.limit(t, as))
	if err == nil && as == compute.Q8 {
		err = m.set.Finite(t.Name+ScaleSuffix, infinite)
	}
	if err == nil {
		return
	}
	if m.flaw == nil {
		m.flaw = err
	}
	if !m.opt.AllowNonFinite && !m.spec.Draft {
		l.err = err
	}
}

// limit returns the smallest magnitude that the elements of a tensor must not have.
func (l *loader) limit(t arch.Tensor, as compute.DType) float32 {
	packed := l.m.opt.DType
	if packed == compute.Stored && as == compute.Blocks && l.m.opt.kept[t.Name] == compute.NotKept {
		packed = compute.Q8
	}
	return limitOf(t.Cols > 0, packed)
}

// A passing look at a matrix in blocks is at what has just been packed, which is in a cache then.
type passing struct{ found atomic.Bool }

// errFound ends packing.
var errFound = errors.New("a value that no network can compute with")

// inPassing makes the packing of a matrix look at its blocks, or returns nil: then look does. What it finds, look names.
func (l *loader) inPassing(t arch.Tensor, m *compute.Matrix) *passing {
	if l.err != nil || l.dry || l.m.looked || m.Type != compute.Blocks {
		return nil
	}
	p, done, limit := &passing{}, m.Done, l.limit(t, m.Type)
	stored, _ := l.m.set.Describe(t.Name)
	blocks, data := ggml.Blocks(stored.DType), m.Data
	m.Done = func(lo, hi int) error {
		if at, _ := blocks.Find(data[lo:hi], limit); at >= 0 {
			p.found.Store(true)
			if !l.m.opt.AllowNonFinite && !l.m.spec.Draft {
				return errFound
			}
		}
		return done(lo, hi)
	}
	return p
}

// judge names what a passing look found.
func (l *loader) judge(t arch.Tensor, at *passing) {
	if at == nil || !at.found.Load() {
		return
	}
	if errors.Is(l.err, errFound) {
		l.err = nil
	}
	l.look(t, compute.Blocks)
}

// infinite is the limit of weights that are kept in their own precision.
var infinite = float32(math.Inf(1))

// limitOf returns the smallest magnitude that the elements of a tensor must not have, whose matrices are packed as as.
func limitOf(matrix bool, as compute.DType) float32 {
	switch {
	case !matrix:
	case as == compute.BF16 || as == compute.BF16DP:
		return math.Float32frombits(0x7f7f8000) // rounds to infinity
	case as == compute.Q8 || as == compute.Q4:
		return 127*65504 + 0.5 // beyond 127 of the largest scales, which are float16
	}
	return infinite
}

// odd returns the first of a row of logits for which no token can be chosen from it, and whether there is none.
func odd(logits []float32) (at int, x float32, ok bool) {
	for i, x := range logits {
		if x != x || x > math.MaxFloat32 {
			return i, x, false
		}
		ok = ok || x >= -math.MaxFloat32
	}
	return 0, logits[0], ok
}

// plausible reports whether the log probability of the most likely of n tokens shows that all of their logits allow a choice. It has
// a probability of 1/n or more, except if a logit is NaN or +Inf, or all are −Inf: the sum that the probabilities are
// divided by is NaN then, and its logarithm is NaN or large.
func plausible(logp float32, n int) bool { return logp >= -1-float32(math.Log(float64(n))) }
