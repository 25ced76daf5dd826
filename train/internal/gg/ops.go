package gg

import (
	"fmt"

	G "gorgonia.org/gorgonia"

	"talf/compute"
)

// out returns the output node of an operation.
func (g *Graph) out(rows *Rows, width int) *Node { return g.node(matrix(rows, width), false) }

// mat returns all live rows of v, or with t the storage of their transpose.
func mat(v *value, t bool) compute.Mat {
	rows, cols := v.n(), v.width()
	m := compute.Mat{Buf: v.buf, Rows: rows, Cols: cols, Stride: cols, T: t}
	if t {
		m.Rows, m.Cols = cols, rows
	}
	return m
}

func beta(acc bool) float32 {
	if acc {
		return 1
	}
	return 0
}

// Detach returns x as a value that no gradient flows into: the same memory, for
// further operations.
func (g *Graph) Detach(x *Node) *Node {
	return &Node{g: g, node: x.node, val: x.val}
}

// Embed returns rows ids of table [V][W]: [rows][W]. ids is read at every Run
// and has one entry per live row.
func (g *Graph) Embed(table *Node, ids *[]int32, rows *Rows) *Node {
	y := g.out(rows, table.Width())
	f := &forward{x: []*Node{table}, y: y}
	f.base = g.base("embed", nil, y.val, func() {
		lookup(g.q, y.val.buf, table.val.buf, (*ids)[:rows.N])
	})
	f.pieces = []piece{{of: []int{0}, run: func(dx []*value, acc []bool, dy *value) {
		if !acc[0] {
			g.zero(dx[0])
		}
		g.ops.EmbedGrad(dx[0].buf, dy.buf, 0, (*ids)[:rows.N])
	}}}
	return g.apply(f)
}

// lookup writes rows ids of a table, which may be packed, to dst.
func lookup(q compute.Queue, dst, table compute.Buffer, ids []int32) {
	if w, ok := table.(compute.Weight); ok {
		q.Embed(dst, 0, w, ids)
		return
	}
	q.Gather(dst, 0, 0, table, ids)
}

// Linear returns x·wᵀ + bias for x [n][In], w [Out][In]. bias [Out] may be nil.
func (g *Graph) Linear(x, w, bias *Node) *Node {
	y := g.out(x.val.rows, w.val.shape[0])
	f := &forward{x: []*Node{x, w}, y: y}
	f.base = g.base("linear", nil, y.val, func() {
		g.ops.Gemm(mat(y.val, false), mat(x.val, false), mat(w.val, true), 0)
		if bias != nil {
			g.ops.AddBias(y.val.buf, bias.val.buf, y.val.n())
		}
	})
	f.pieces = g.linearPieces(x, w)
	if bias != nil {
		f.x = append(f.x, bias)
		f.pieces = append(f.pieces, piece{of: []int{2}, writes: true, run: func(dx []*value, _ []bool, dy *value) {
			g.ops.SumRows(dx[0].buf, dy.buf, dy.n())
		}})
	}
	return g.apply(f)
}

// linearPieces returns dx = dy·w and dw = dyᵀ·x for inputs 0 and 1.
func (g *Graph) linearPieces(x, w *Node) []piece {
	return []piece{
		{of: []int{0}, reads: []int{1}, run: func(dx []*value, acc []bool, dy *value) {
			g.ops.Gemm(mat(dx[0], false), mat(dy, false), mat(w.val, false), beta(acc[0]))
		}},
		{of: []int{1}, reads: []int{0}, run: func(dx []*value, acc []bool, dy *value) {
			g.ops.Gemm(mat(dx[0], false), mat(dy, true), mat(x.val, false), beta(acc[0]))
		}},
	}
}

// LinearAdd returns res + x·wᵀ. With from, row r takes row from[r] of res.
func (g *Graph) LinearAdd(x, w, res *Node, from *[]int32) *Node {
	y := g.out(x.val.rows, w.val.shape[0])
	f := &forward{x: []*Node{x, w, res}, y: y}
	rows := func() []int32 {
		if from == nil {
			return g.identity(y.val.n())
		}
		return (*from)[:y.val.n()]
	}
	f.base = g.base("linear_add", nil, y.val, func() {
		g.q.Gather(y.val.buf, 0, 0, res.val.buf, rows())
		g.ops.Gemm(mat(y.val, false), mat(x.val, false), mat(w.val, true), 1)
	})
	f.pieces = append(g.linearPieces(x, w), piece{of: []int{2}, run: func(dx []*value, acc []bool, dy *value) {
		switch {
		case from != nil:
			if !acc[0] {
				g.zero(dx[0])
			}
			g.ops.EmbedGrad(dx[0].buf, dy.buf, 0, rows())
		case acc[0]:
			g.ops.Add(dx[0].buf, dx[0].buf, dy.buf, dy.live())
		default:
			g.q.Gather(dx[0].buf, 0, 0, dy.buf, rows())
		}
	}})
	return g.apply(f)
}

// Norm returns RMSNorm of x [n][W] with weight w [W], or of every part of a row as long as w.
func (g *Graph) Norm(x, w *Node, eps float32) *Node {
	y := g.out(x.val.rows, x.Width())
	f := &forward{x: []*Node{x, w}, y: y}
	norm, parts := &compute.Norm{Eps: eps}, x.Width()/w.Width()
	f.base = g.base("norm", nil, y.val, func() {
		norm.Weight = w.val.buf
		g.q.Norm(y.val.buf, x.val.buf, norm, parts*x.val.n())
	})
	f.pieces = []piece{{of: []int{0, 1}, reads: []int{0, 1}, writes: true, run: func(dx []*value, _ []bool, dy *value) {
		var dw compute.Buffer
		if dx[1] != nil {
			dw = dx[1].buf
		}
		to := dy.buf // which nothing reads after this
		if dx[0] != nil {
			to = dx[0].buf
		}
		g.ops.NormGrad(to, dw, dy.buf, x.val.buf, w.val.buf, eps, parts*dy.n())
	}}}
	return g.apply(f)
}

// Rope rotates the heads of x [n][heads·headDim] to positions pos, in place: x
// must have no other use. table is [positions][headDim], see compute.
func (g *Graph) Rope(x *Node, headDim int, table compute.Buffer, pos *[]int32) *Node {
	y := g.node(&value{rows: x.val.rows, shape: x.val.shape, store: x.val.store}, false)
	heads := x.Width() / headDim
	f := &forward{x: []*Node{x}, y: y}
	f.base = g.base("rope", nil, y.val, func() {
		g.ops.Rope(y.val.buf, 0, heads, headDim, table, *pos, false, y.val.n())
	})
	f.pieces = []piece{{of: []int{0}, give: func() *value { return y.grad }, run: func(dx []*value, acc []bool, dy *value) {
		if acc[0] {
			panic("gg: rope rotates in place, but its input has another use")
		}
		g.ops.Rope(dy.buf, 0, heads, headDim, table, *pos, true, dy.n())
	}}}
	return g.apply(f)
}

// Attend is tree attention, see compute.TrainAttention: q [n][Heads·HeadDim]
// over keys and values [n_j][KVHeads·HeadDim] of the levels, own level last, which
// stands for all further ones that geo has. geo is read at every Run.
func (g *Graph) Attend(q *Node, k, v []*Node, geo *compute.TrainAttention) *Node {
	y := g.out(q.val.rows, q.Width())
	lse := matrix(q.val.rows, geo.Heads)
	levels := len(k)
	// The backward pass recomputes the scores and takes their exponentials, in which
	// rounding errors grow: so queries and keys are never rounded.
	for _, n := range append([]*Node{q}, k...) {
		n.val.store.exact = true
	}
	f := &forward{x: []*Node{q}, y: y, extra: []*value{lse}}
	of, reads := []int{0}, []int{-1, 0}
	for _, n := range append(append([]*Node{}, k...), v...) {
		of, reads = append(of, len(f.x)), append(reads, len(f.x))
		f.x = append(f.x, n)
	}
	all := len(geo.Anc) + 1
	kb, vb := make([]compute.Buffer, all), make([]compute.Buffer, all)
	dk, dv := make([]compute.Buffer, all), make([]compute.Buffer, all)
	bind := func() {
		for j := range all {
			kb[j], vb[j] = k[min(j, levels-1)].val.buf, v[min(j, levels-1)].val.buf
		}
	}
	f.base = g.base("attend", nil, y.val, func() {
		bind()
		g.ops.TreeAttend(y.val.buf, lse.buf, q.val.buf, kb, vb, geo)
	})
	f.pieces = []piece{{of: of, reads: reads, run: func(dx []*value, acc []bool, dy *value) {
		bind()
		for j := range 2 * levels {
			if !acc[1+j] {
				g.zero(dx[1+j])
			}
		}
		for j := range all {
			dk[j], dv[j] = dx[1+min(j, levels-1)].buf, dx[1+levels+min(j, levels-1)].buf
		}
		if acc[0] {
			panic("gg: the queries of attention have another use")
		}
		g.ops.TreeAttendGrad(dx[0].buf, dk, dv, dy.buf, y.val.buf, lse.buf, q.val.buf, kb, vb, geo)
	}}}
	return g.apply(f)
}

// SwiGLU returns silu(g)·u [n][F] of gu [n][2F] = [g | u].
func (g *Graph) SwiGLU(gu *Node) *Node {
	y := g.out(gu.val.rows, gu.Width()/2)
	f := &forward{x: []*Node{gu}, y: y}
	f.base = g.base("swiglu", nil, y.val, func() { g.q.SwiGLU(y.val.buf, gu.val.buf, y.val.n()) })
	f.pieces = []piece{{of: []int{0}, reads: []int{0}, writes: true, run: func(dx []*value, _ []bool, dy *value) {
		g.ops.SwiGLUGrad(dx[0].buf, dy.buf, gu.val.buf, dy.n())
	}}}
	return g.apply(f)
}

// A Loss is a scalar loss node and its rows.
type Loss struct {
	*Node
	rows *value // [rows][1], unscaled
	host []float32
}

// RowLoss returns the unscaled loss of every live row of the last Run.
func (l *Loss) RowLoss() []float32 { return l.host[:l.rows.n()] }

// loss returns the scalar Σ scale[r]·rows[r] of an operation that leaves row losses.
func (g *Graph) loss(f *forward, rows *value, scale *[]float32, name string, kernel func()) *Loss {
	y := g.node(&value{shape: []int{}, store: new(store), num: new(G.F32)}, false)
	l := &Loss{Node: y, rows: rows, host: make([]float32, rows.rows.Max)}
	f.y, f.extra = y, append(f.extra, rows)
	f.base = g.base(name, nil, y.val, func() {
		kernel()
		g.when(func() {
			h := l.RowLoss()
			if len(h) > 0 {
				g.q.Read(h, rows.buf, 0)
			}
			var sum float64
			for r, s := range (*scale)[:len(h)] {
				if s != 0 { // the losses of rows without labels are arbitrary
					sum += float64(s) * float64(h[r])
				}
			}
			*y.val.num = G.F32(sum)
		})
	})
	rows.store.keep = g.far != nil // read after the tape has run
	g.apply(f)
	return l
}

// left returns the piece for the gradient of input of, which the forward pass has left in v.
func (g *Graph) left(of int, v *value) piece {
	return piece{of: []int{of}, give: func() *value { return v }, run: func(dx []*value, acc []bool, _ *value) {
		if acc[0] {
			g.ops.Add(dx[0].buf, dx[0].buf, v.buf, v.live())
		}
	}}
}

// SoftCE is the cross-entropy between labels and softmax(h·wᵀ), h [n][H], w [V][H], each row
// weighted by scale. labels and scale are read at every Run. Gradients are computed in the
// forward pass, so logits are never kept. Several losses with one trained w add to one gradient of
// its size, in the order in which they were made: each takes the one before as an input, and the
// last has the gradient.
func (g *Graph) SoftCE(h, w *Node, labels *compute.SoftLabels, scale *[]float32) *Loss {
	rows, dh := matrix(h.val.rows, 1), matrix(h.val.rows, h.Width())
	f := &forward{x: []*Node{h, w}, extra: []*value{dh}, pieces: []piece{g.left(0, dh)}}
	dw := g.headGrad(f, 1)
	return g.loss(f, rows, scale, "soft_ce", func() {
		g.ops.SoftCE(rows.buf, dh.buf, dw(), h.val.buf, w.val.buf, labels, (*scale)[:h.val.n()], h.val.n())
	})
}

// headGrad gives loss f the gradient of its LM head, input at of f and after those whose gradients
// its pieces are. The function that it returns makes the gradient ready to be added to; it is nil if
// the LM head is frozen.
func (g *Graph) headGrad(f *forward, at int) func() compute.Buffer {
	w := f.x[at]
	if !w.needs {
		return func() compute.Buffer { return nil }
	}
	var dw *value
	before := g.heads[w]
	if before == nil {
		dw = &value{shape: w.val.shape, store: new(store)}
	} else {
		dw = before.dw
		before.f.pieces = before.f.pieces[:len(before.f.pieces)-1]
		f.x = append(f.x, before.f.y)
	}
	f.extra = append(f.extra, dw)
	left := g.left(at, dw)
	if before != nil {
		left.reads = []int{-1} // the whole chain has run
	}
	f.pieces = append(f.pieces, left)
	if g.heads == nil {
		g.heads = make(map[*Node]*headLoss)
	}
	g.heads[w] = &headLoss{f: f, dw: dw}
	return func() compute.Buffer {
		if before == nil {
			g.zero(dw)
		}
		return dw.buf
	}
}

// A headLoss is the last cross-entropy with a trained LM head, and the LM head's gradient.
type headLoss struct {
	f  *forward
	dw *value
}

// SmoothL1 is the mean over columns of SmoothL1(y − t), or of |y − t| if l1, each row weighted
// by scale. t gets no gradient.
func (g *Graph) SmoothL1(y, t *Node, scale *[]float32, l1 bool) *Loss {
	rows, dy := matrix(y.val.rows, 1), matrix(y.val.rows, y.Width())
	f := &forward{x: []*Node{y, t}, extra: []*value{dy}}
	f.pieces = []piece{g.left(0, dy)}
	return g.loss(f, rows, scale, "smooth_l1", func() {
		g.ops.SmoothL1(rows.buf, dy.buf, y.val.buf, t.val.buf, (*scale)[:y.val.n()], l1, y.val.n())
	})
}

// Total is the sum of losses.
func (g *Graph) Total(terms ...*Loss) *Node {
	if len(terms) == 0 {
		panic("gg: a total of no losses")
	}
	if len(terms) == 1 {
		return terms[0].Node
	}
	y := g.node(&value{shape: []int{}, store: new(store), num: new(G.F32)}, false)
	f := &forward{y: y}
	for _, t := range terms {
		f.x = append(f.x, t.Node)
	}
	f.base = g.base(fmt.Sprintf("total%d", len(terms)), nil, y.val, func() {
		g.when(func() {
			var sum float64
			for _, t := range terms {
				sum += float64(*t.val.num)
			}
			*y.val.num = G.F32(sum)
		})
	})
	return g.apply(f)
}
