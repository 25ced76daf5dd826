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
	in, x := l.parts(arch.DeltaIn, layer, []int{s.Delta.KeyDim, s.Delta.KeyDim, values, values}, 0, 1, 2, 3)
	y.In.W = l.matrices(in, []compute.Matrix{x})
	gates, x := l.parts(arch.DeltaGates, layer, []int{group, group}, 0, 1)
	y.Gates.W = l.as(compute.F32, gates, []compute.Matrix{x})
	conv, _ := l.take(arch.DeltaConv, layer, false)
	decay, _ := l.take(arch.DeltaDecay, layer, false)
	step, _ := l.take(arch.DeltaStep, layer, false)
	norm, _ := l.take(arch.DeltaNorm, layer, false)
	l.m.rec.Set(y.Index, l.floats(conv), l.floats(decay), l.vector(step), l.vector(norm),
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

// parts loads a matrix whose rows are in groups of parts of the given sizes, with each part's rows together.
func (l *loader) parts(role arch.Role, layer int, sizes []int, parts ...int) (name string, m compute.Matrix) {
	p, _ := l.take(role, layer, false)
	return p.Name, l.grouped(p, sizes, parts...)
}

func (l *loader) grouped(p arch.Tensor, sizes []int, parts ...int) compute.Matrix {
	return l.some(p, l.order(p, func(rows int) []int32 { return recur.Grouped(rows, sizes, parts...) }))
}
