package gg

import (
	"testing"

	"talf/compute"
)

// A small network that uses the operations of block heads: rows of blocks attend to a text and to
// each other, their outputs are read several times with tokens beside them.
func TestGradientsOfBlocksAreCentralDifferences(t *testing.T) {
	m := newMaker(t)
	const h, rank, size, texts, blocks, v = 6, 3, 2, 5, 3, 9
	context, rows, read := &Rows{Max: texts + 1, N: texts}, &Rows{Max: size * blocks, N: size * blocks}, &Rows{Max: 9, N: 8}
	geo := &compute.TrainAttention{Heads: 1, KVHeads: 1, HeadDim: h, Anc: make([][]int32, size)}
	var ids []int32
	for b := range blocks {
		for i := range size {
			ids = append(ids, int32(m.r.IntN(v)))
			geo.First, geo.Last = append(geo.First, 0), append(geo.Last, int32(b+1))
			for j := range size {
				a := int32(size*b + j)
				if j > i {
					a = -1
				}
				geo.Anc[j] = append(geo.Anc[j], a)
			}
		}
	}
	x := m.g.Input("taps", context, h)
	copy(x.Data(), m.floats(texts*h, 1))
	table, w1, w2 := m.g.Frozen(m.tensor("embed", 1, v, h)), m.param(1, v, rank), m.param(1, v, rank)
	wf, wq, wk, wv, wo := m.param(0.5, h, h), m.param(0.5, h, h), m.param(0.5, h, h), m.param(0.5, h, h), m.param(0.5, h, h)
	gate, gateBias, conf, confBias := m.param(0.5, rank, h+rank), m.param(0.5, rank), m.param(0.5, 1, h+rank), m.param(0.5, 1)

	c := m.g.Linear(x, wf, nil)
	e := m.g.Embed(table, &ids, rows)
	k := []*Node{m.g.Linear(c, wk, nil), m.g.Linear(e, wk, nil)}
	values := []*Node{m.g.Linear(c, wv, nil), m.g.Linear(e, wv, nil)}
	out := m.g.LinearAdd(m.g.Attend(m.g.Linear(e, wq, nil), k, values, geo), wo, e, nil)

	from, prev := []int32{0, 1, 1, 1, 3, 4, 5, 5}, []int32{4, 4, 2, 0, 8, 1, 7, 4}
	node := m.g.Select(out, &from, read)
	before := m.g.Embed(w1, &prev, read)
	both := m.g.Beside(node, before)
	gated := m.g.Gate(m.g.Linear(both, gate, gateBias), before)
	lm := m.g.Beside(m.g.Frozen(m.tensor("lm", 1, v, h)), w2)
	labels, certain, scale := &compute.SoftLabels{K: 1}, make([]float32, 8), make([]float32, 8)
	for i := range scale {
		labels.IDs, labels.Prob = append(labels.IDs, int32(m.r.IntN(v))), append(labels.Prob, 0.8)
		certain[i], scale[i] = m.r.Float32(), 0.1
	}
	ce := m.g.SoftCE(m.g.Beside(node, gated), lm, labels, &scale)
	// DFlash 2: convolutions around a product, and a selector of candidates that h·lm ranks.
	base, kernel := m.param(0.5, 2, 2, h), m.param(0.5, 4*h/2, h)
	coef := m.g.Linear(out, kernel, nil)
	taps := compute.Taps{Group: 2, Block: size}
	x2 := m.g.Convolve(out, coef, base, taps)
	taps.Col, taps.Base = 2*h/2, 2*h
	out = m.g.Sum(m.g.Convolve(m.g.Linear(x2, m.param(0.5, h, h), nil), coef, base, taps), out)
	last := m.g.Select(out, &from, read)
	pair := m.g.Beside(last, m.g.Mul(before, m.g.Linear(last, m.param(0.5, rank, h), nil)))
	ranks := m.g.Embed(table, &prev, read) // which no parameter changes
	chosen := m.g.Candidates(ranks, m.g.Frozen(m.tensor("lm", 1, v, h)), pair, lm, 3, &scale, func(ids []int32, p []float32) {
		for i := range p {
			p[i] = float32(1+ids[i]) / 10
		}
	})
	m.differences(m.g.Total(ce, chosen, m.g.Logistic(m.g.Linear(both, conf, confBias), &certain, &scale, ce)))
}
