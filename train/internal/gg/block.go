package gg

import (
	"fmt"

	"talf/compute"
)

// Select returns rows from[r] of x: [rows][W]. from is read at every Run and has one entry per live
// row.
func (g *Graph) Select(x *Node, from *[]int32, rows *Rows) *Node {
	y := g.out(rows, x.Width())
	f := &forward{x: []*Node{x}, y: y}
	f.base = g.base("select", nil, y.val, func() { g.q.Gather(y.val.buf, 0, 0, x.val.buf, (*from)[:rows.N]) })
	f.pieces = []piece{{of: []int{0}, run: func(dx []*value, acc []bool, dy *value) {
		if !acc[0] {
			g.zero(dx[0])
		}
		g.ops.EmbedGrad(dx[0].buf, dy.buf, 0, (*from)[:rows.N])
	}}}
	return g.apply(f)
}

// Beside returns [a | b], the rows of a and b side by side.
func (g *Graph) Beside(a, b *Node) *Node {
	if a.Rows() != b.Rows() || a.val.shape[0] != b.val.shape[0] {
		panic(fmt.Sprintf("gg: beside: %v and %v", a.val.shape, b.val.shape))
	}
	y := g.node(&value{rows: a.Rows(), shape: []int{a.val.shape[0], a.Width() + b.Width()}, store: new(store)}, false)
	f := &forward{x: []*Node{a, b}, y: y}
	col := [2]int{0, a.Width()}
	f.base = g.base("beside", nil, y.val, func() {
		for i, x := range f.x {
			g.q.Gather(y.val.buf, 0, col[i], x.val.buf, g.identity(y.val.n()))
		}
	})
	for i := range f.x {
		f.pieces = append(f.pieces, piece{of: []int{i}, run: func(dx []*value, acc []bool, dy *value) {
			if !acc[0] {
				g.zero(dx[0])
			}
			g.ops.EmbedGrad(dx[0].buf, dy.buf, col[i], g.identity(dy.n()))
		}})
	}
	return g.apply(f)
}

// Gate returns σ(gate)·x [n][W], element by element.
func (g *Graph) Gate(gate, x *Node) *Node {
	y := g.out(x.val.rows, x.Width())
	f := &forward{x: []*Node{gate, x}, y: y}
	f.base = g.base("gate", nil, y.val, func() { g.can.Block.Gate(y.val.buf, gate.val.buf, x.val.buf, y.val.live()) })
	f.pieces = []piece{{of: []int{0, 1}, reads: []int{0, 1}, writes: true, run: func(dx []*value, _ []bool, dy *value) {
		g.can.Block.GateGrad(dx[0].buf, dx[1].buf, dy.buf, gate.val.buf, x.val.buf, dy.live())
	}}}
	return g.apply(f)
}

// Mul returns a·b [n][W], element by element.
func (g *Graph) Mul(a, b *Node) *Node {
	y := g.out(a.val.rows, a.Width())
	f := &forward{x: []*Node{a, b}, y: y}
	f.base = g.base("mul", nil, y.val, func() { g.can.Block.Mul(y.val.buf, a.val.buf, b.val.buf, y.val.live()) })
	for i := range f.x {
		f.pieces = append(f.pieces, piece{of: []int{i}, reads: []int{1 - i}, writes: true, run: func(dx []*value, _ []bool, dy *value) {
			g.can.Block.Mul(dx[0].buf, dy.buf, f.x[1-i].val.buf, dy.live())
		}})
	}
	return g.apply(f)
}

// Sum returns a + b [n][W].
func (g *Graph) Sum(a, b *Node) *Node {
	y := g.out(a.val.rows, a.Width())
	f := &forward{x: []*Node{a, b}, y: y}
	f.base = g.base("sum", nil, y.val, func() { g.ops.Add(y.val.buf, a.val.buf, b.val.buf, y.val.live()) })
	for i := range f.x {
		f.pieces = append(f.pieces, piece{of: []int{i}, run: func(dx []*value, acc []bool, dy *value) {
			if !acc[0] {
				g.zero(dx[0])
			}
			g.ops.Add(dx[0].buf, dx[0].buf, dy.buf, dy.live())
		}})
	}
	return g.apply(f)
}

// Convolve is compute.BlockOps' Convolve of x [n][W] with coefficients coef [n][…] and base.
func (g *Graph) Convolve(x, coef, base *Node, c compute.Taps) *Node {
	y := g.out(x.val.rows, x.Width())
	f := &forward{x: []*Node{x, coef, base}, y: y}
	f.base = g.base("convolve", nil, y.val, func() {
		g.can.Block.Convolve(y.val.buf, x.val.buf, coef.val.buf, base.val.buf, c, y.val.n())
	})
	f.pieces = []piece{{of: []int{0, 1, 2}, reads: []int{0, 1, 2}, writes: true, run: func(dx []*value, _ []bool, dy *value) {
		g.zero(dx[1]) // of which it sets its own columns
		g.zero(dx[2])
		g.can.Block.ConvolveGrad(dx[0].buf, dx[1].buf, dx[2].buf, dy.buf, x.val.buf, coef.val.buf, base.val.buf, c, dy.n())
	}}}
	return g.apply(f)
}

// Candidates is the cross-entropy between labels and the softmax of pair·pwᵀ over the k tokens of which
// h·wᵀ is largest, each row weighted by scale. label is called with them and sets what is learnt of them; h and w get no gradient.
func (g *Graph) Candidates(h, w, pair, pw *Node, k int, scale *[]float32, label func(ids []int32, p []float32)) *Loss {
	rows, dh := matrix(h.val.rows, 1), matrix(h.val.rows, pair.Width())
	f := &forward{x: []*Node{pair, pw, h, w}, extra: []*value{dh}, pieces: []piece{g.left(0, dh)}}
	dw := g.headGrad(f, 1)
	ids, p := make([]int32, h.val.rows.Max*k), make([]float32, h.val.rows.Max*k)
	return g.loss(f, rows, scale, "candidates", func() {
		n := h.val.n()
		g.can.Block.Candidates(ids, h.val.buf, w.val.buf, k, n)
		label(ids[:n*k], p[:n*k])
		g.can.Block.CandidateCE(rows.buf, dh.buf, dw(), pair.val.buf, pw.val.buf, ids, p, *scale, k, n)
	})
}

// Logistic is the cross-entropy between labels and σ(x), x [n][1], each row weighted by scale. Labels
// and scale are read at every Run, once after has run, which may set the labels.
func (g *Graph) Logistic(x *Node, labels, scale *[]float32, after *Loss) *Loss {
	rows, dx := matrix(x.val.rows, 1), matrix(x.val.rows, 1)
	f := &forward{x: []*Node{x, after.Node}, extra: []*value{dx}, pieces: []piece{g.left(0, dx)}}
	return g.loss(f, rows, scale, "logistic", func() {
		g.can.Block.Logistic(rows.buf, dx.buf, x.val.buf, *labels, *scale, x.val.n())
	})
}
