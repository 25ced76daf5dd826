package model

import (
	"talf/compute"
	"talf/model/arch"
	"talf/model/internal/recur"
)

// recurrent loads a recurrent layer. What its decays are made from stays in float32, as routers do.
func (l *loader) recurrent(layer int) *recur.Layer {
	s := l.m.spec
	y := &recur.Layer{}
	for i := range layer {
		if s.Delta.On(i) {
			y.Index++
		}
	}
	group := s.Delta.ValueHeads / s.Delta.KeyHeads
	values := group * s.Delta.ValueDim
	if s.Has(arch.DeltaQKV) {
		y.In = l.linear(layer, arch.DeltaQKV, arch.DeltaZ)
	} else {
		in, _ := l.take(arch.DeltaIn, layer, false)
		y.In.W = l.matrices(in.Name, []compute.Matrix{l.grouped(in, []int{s.Delta.KeyDim, s.Delta.KeyDim, values, values}, 0, 1, 2, 3)})
	}
	gates, _ := l.take(arch.DeltaGates, layer, false)
	y.Gates.W = l.as(compute.F32, gates.Name, []compute.Matrix{l.grouped(gates, []int{group, group}, 0, 1)})
	conv, _ := l.take(arch.DeltaConv, layer, false)
	var decays []float32
	if p, ok := l.take(arch.DeltaRate, layer, false); ok {
		decays = l.floats(p)
	} else {
		p, _ := l.take(arch.DeltaDecay, layer, false)
		decays = recur.Decays(l.floats(p))
	}
	step, _ := l.take(arch.DeltaStep, layer, false)
	norm, _ := l.take(arch.DeltaNorm, layer, false)
	l.m.rec.Set(y.Index, l.floats(conv), decays, l.vector(step), l.vector(norm),
		func(x []float32) compute.Buffer { return l.buffer(conv.Name, x) })
	return y
}

// gated loads a projection to queries, keys and values, and the gates that are stored beside queries.
func (l *loader) gated(layer int) (qkv, gate compute.Linear) {
	q, _ := l.take(arch.QGated, layer, false)
	k, _ := l.take(arch.K, layer, false)
	v, _ := l.take(arch.V, layer, false)
	heads := []int{l.m.spec.HeadDim, l.m.spec.HeadDim}
	qkv.W = l.matrices(q.Name, []compute.Matrix{l.grouped(q, heads, 0), l.some(k, nil), l.some(v, nil)})
	gate.W = l.matrices(q.Name, []compute.Matrix{l.grouped(q, heads, 1)})
	return qkv, gate
}

// grouped loads a matrix whose rows are in groups of parts of the given sizes, with each part's rows together.
func (l *loader) grouped(p arch.Tensor, sizes []int, parts ...int) compute.Matrix {
	return l.some(p, l.order(p, func(rows int) []int32 { return recur.Grouped(rows, sizes, parts...) }))
}
