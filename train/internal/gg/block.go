package gg

import "fmt"

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

// Logistic is the cross-entropy between labels and σ(x), x [n][1], each row weighted by scale. Labels
// and scale are read at every Run, once after has run, which may set the labels.
func (g *Graph) Logistic(x *Node, labels, scale *[]float32, after *Loss) *Loss {
	rows, dx := matrix(x.val.rows, 1), matrix(x.val.rows, 1)
	f := &forward{x: []*Node{x, after.Node}, extra: []*value{dx}, pieces: []piece{g.left(0, dx)}}
	return g.loss(f, rows, scale, "logistic", func() {
		g.can.Block.Logistic(rows.buf, dx.buf, x.val.buf, *labels, *scale, x.val.n())
	})
}
