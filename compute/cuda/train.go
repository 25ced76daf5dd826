//go:build gpu && linux && cgo

package cuda

import (
	"encoding/binary"
	"fmt"
	"math"
	"runtime"
	"slices"

	"talf/compute"
)

// The structures of kernels/train.cu.

type gemmArgs struct {
	c, a, b                     uint64
	m, n, k                     int64
	ldc, aRow, aCol, bRow, bCol int64
	beta                        int64
	out, in, turned             int64
}

type addArgs struct {
	dst, a, b uint64
	n, width  int64
}

type turnArgs struct {
	x, rope, pos               uint64
	n, ld, heads, dim, inverse int64
}

type swigluGradArgs struct {
	dgu, dy, gu uint64
	n, width    int64
}

type adamArgs struct {
	p, g, m, v                                  uint64
	n                                           int64
	lr, beta1, beta2, eps, decay, scale, c1, c2 uint64
	half                                        uint64
}

type columnArgs struct {
	dst, x, y, scale uint64
	n, width         int64
}

type normGradArgs struct {
	dx, inv, dy, x, weight uint64
	width                  int64
	eps                    uint64
}

type squaresArgs struct {
	part, x, sum uint64
	n            int64
}

type scatterArgs struct {
	dst, src, ids, starts, rows uint64
	width, ld                   int64
}

type smoothArgs struct {
	loss, dy, y, t, scale uint64
	width, l1             int64
}

type crossArgs struct {
	z, loss, scale, ids, prob, tail, labels, full uint64
	width, k                                      int64
	half                                          uint64
}

type treeArgs struct {
	o, lse, q, keys, values, first, last, anc uint64
	rows, heads, kvHeads, dim, levels         int64
	do, delta, dq, dk, dv                     uint64
	tiles, nodes, list                        uint64
	count                                     int64
	lines                                     uint64
}

// A keyTile is train.cu's KeyTile, and a node its Node.
type (
	keyTile struct{ key, from, to, _ int32 }
	node    struct{ level, row, from, to int32 }
)

// training is the scratch memory of a queue that trains.
type training struct {
	inv    *block // of the rows of a norm
	parts  *block // sums of squares, and their total
	logits *block // of a chunk of rows
	grads  *block // theirs, in bfloat16
	labels *block // of a chunk of rows
	delta  *block // of queries
	lines  *block // the gradient's arguments of each
	slab   *block // rows of an LM head, unpacked
	heads  *block // queries, keys, values and gradients of attention, in bfloat16
}

// Alloc returns a zeroed buffer.
func (q *queue) Alloc(t compute.DType, shape ...int) (compute.Buffer, error) {
	return q.dev.Alloc(t, shape...)
}

// View returns the first elements of b as a buffer of another shape.
func (q *queue) View(b compute.Buffer, shape ...int) compute.Buffer {
	n, err := elements(shape)
	if err != nil {
		panic("cuda: View: " + err.Error())
	}
	c, ok := b.(*buffer)
	if !ok {
		panic(fmt.Sprintf("cuda: View: a %T is not a buffer of this device", b))
	}
	c = q.dev.bufferOf("View", b, c.t, n)
	return &buffer{dev: c.dev, t: c.t, shape: append([]int(nil), shape...), n: n, mem: c.mem}
}

// Host copies data to the device. If there is no room, the device fails.
func (q *queue) Host(data []float32, shape ...int) compute.Buffer {
	n, err := elements(shape)
	if err != nil || n != len(data) {
		panic(fmt.Sprintf("cuda: Host: %d elements for shape %v", len(data), shape))
	}
	b, err := q.dev.Alloc(compute.F32, shape...)
	if err != nil {
		q.dev.fail(err)
		return &buffer{dev: q.dev, t: compute.F32, shape: append([]int(nil), shape...), n: n, mem: &block{}}
	}
	q.Write(b, data)
	return b
}

// Clear sets the first n elements of b to zero.
func (q *queue) Clear(b compute.Buffer, n int) {
	d := q.dev.bufferOf("Clear", b, compute.F32, n)
	if n > 0 {
		launch(q, clearRows, flatBlocks(n), 1, 1, &addArgs{dst: d.mem.ptr, n: int64(n)})
	}
	runtime.KeepAlive(d)
}

// flatBlocks is the grid of an element-wise kernel over n elements.
func flatBlocks(n int) int { return min((n+255)/256, 1056) }

// Gemm computes c = op(a)·op(b) + beta·c: an element is one chain over ascending k, to which c
// is added.
func (q *queue) Gemm(c, a, b compute.Mat, beta float32) {
	if c.T || a.Rows != c.Rows || b.Cols != c.Cols || a.Cols != b.Rows || (beta != 0 && beta != 1) {
		panic(fmt.Sprintf("cuda: Gemm: [%d][%d] (transposed: %v) from [%d][%d]·[%d][%d], beta %g",
			c.Rows, c.Cols, c.T, a.Rows, a.Cols, b.Rows, b.Cols, beta))
	}
	if q.dev.cfg.BF16 && q.products(c, a, b, beta) {
		return
	}
	g := gemmArgs{m: int64(c.Rows), n: int64(c.Cols), k: int64(a.Cols), ldc: int64(c.Stride), beta: int64(beta)}
	d, _ := q.extent("c", c)
	d.mem.stale()
	g.c = d.mem.ptr + 4*uint64(c.Off)
	x, _ := q.extent("a", a)
	y, _ := q.extent("b", b)
	g.a, g.b = x.mem.ptr+4*uint64(a.Off), y.mem.ptr+4*uint64(b.Off)
	g.aRow, g.aCol = strides(a)
	g.bRow, g.bCol = strides(b)
	k := gemmF32
	if q.dev.cfg.BF16 {
		k = gemmBF16
	}
	if k == gemmBF16 || !q.byLibrary(false, a.T, b.T, &halfArgs{
		c: g.c, a: g.a, b: g.b, m: g.m, n: g.n, k: g.k, ldc: g.ldc, lda: int64(a.Stride), ldb: int64(b.Stride), beta: g.beta,
	}) {
		q.gemm(k, &g)
	}
	runtime.KeepAlive(c.Buf)
	runtime.KeepAlive(a.Buf)
	runtime.KeepAlive(b.Buf)
}

// gemmSide is the number of rows and columns of a product that a block computes.
const gemmSide = 128

// gemm launches k, a few rows of blocks at a time, because a grid's height is limited.
func (q *queue) gemm(k kernel, g *gemmArgs) {
	if g.m == 0 || g.n == 0 {
		return
	}
	const most = 32768 * gemmSide
	a := *g
	for r := int64(0); r < g.m; r += most {
		a.m = min(most, g.m-r)
		a.c, a.a = g.c+4*uint64(r*g.ldc), g.a+4*uint64(r*g.aRow)
		launch(q, k, int((a.n+gemmSide-1)/gemmSide), int((a.m+gemmSide-1)/gemmSide), 1, &a)
	}
}

func strides(m compute.Mat) (row, col int64) {
	if m.T {
		return 1, int64(m.Stride)
	}
	return int64(m.Stride), 1
}

// extent returns m's buffer, and how many of its elements m needs, after checking them. A caller that writes to m marks
// it.
func (q *queue) extent(name string, m compute.Mat) (b *buffer, n int) {
	rows, cols := m.Rows, m.Cols
	if m.T {
		rows, cols = cols, rows
	}
	if rows < 0 || cols < 0 || m.Off < 0 || (rows > 1 && m.Stride < cols) {
		panic(fmt.Sprintf("cuda: Gemm: %s is [%d][%d] with stride %d at %d", name, m.Rows, m.Cols, m.Stride, m.Off))
	}
	n = m.Off
	if rows > 0 && cols > 0 {
		n += (rows-1)*m.Stride + cols
	}
	return q.dev.readOf("Gemm", m.Buf, compute.F32, n), n
}

// Add computes dst = a + b.
func (q *queue) Add(dst, a, b compute.Buffer, n int) {
	const op = "Add"
	d, x, y := q.dev.bufferOf(op, dst, compute.F32, n), q.dev.readOf(op, a, compute.F32, n), q.dev.readOf(op, b, compute.F32, n)
	if n > 0 {
		launch(q, addRows, flatBlocks(n), 1, 1, &addArgs{dst: d.mem.ptr, a: x.mem.ptr, b: y.mem.ptr, n: int64(n)})
	}
	runtime.KeepAlive([]*buffer{d, x, y})
}

// AddBias adds bias to each row.
func (q *queue) AddBias(x, bias compute.Buffer, n int) {
	const op = "AddBias"
	b := q.dev.bufferOf(op, bias, compute.F32, 1)
	d := q.dev.bufferOf(op, x, compute.F32, n*b.n)
	if n > 0 {
		launch(q, addRows, flatBlocks(n*b.n), 1, 1, &addArgs{dst: d.mem.ptr, a: d.mem.ptr, b: b.mem.ptr, n: int64(n * b.n), width: int64(b.n)})
	}
	runtime.KeepAlive(d)
	runtime.KeepAlive(b)
}

// SumRows sets dst to the sum of the rows of x.
func (q *queue) SumRows(dst, x compute.Buffer, n int) {
	const op = "SumRows"
	w := q.dev.readOf(op, x, compute.F32, 0).width()
	d, s := q.dev.bufferOf(op, dst, compute.F32, w), q.dev.readOf(op, x, compute.F32, n*w)
	launch(q, columnSums, (w+31)/32, 1, 1, &columnArgs{dst: d.mem.ptr, x: s.mem.ptr, n: int64(n), width: int64(w)})
	runtime.KeepAlive(d)
	runtime.KeepAlive(s)
}

// NormGrad computes dx and dw of Norm. dx may be dy.
func (q *queue) NormGrad(dx, dw, dy, x, weight compute.Buffer, eps float32, n int) {
	const op = "NormGrad"
	w := q.dev.readOf(op, weight, compute.F32, 1)
	h := w.n
	d, g, s := q.dev.bufferOf(op, dx, compute.F32, n*h), q.dev.readOf(op, dy, compute.F32, n*h), q.dev.readOf(op, x, compute.F32, n*h)
	if !q.scratch(&q.train.inv, "scales of rows", 4*int64(max(n, 1)), false) {
		return
	}
	a := normGradArgs{
		dx: d.mem.ptr, inv: q.train.inv.ptr, dy: g.mem.ptr, x: s.mem.ptr, weight: w.mem.ptr,
		width: int64(h), eps: uint64(math.Float32bits(eps)),
	}
	if n > 0 {
		launch(q, normScales, n, 1, 1, &a)
	}
	if dw != nil {
		b := q.dev.bufferOf(op, dw, compute.F32, h)
		launch(q, columnSums, (h+31)/32, 1, 1, &columnArgs{
			dst: b.mem.ptr, x: g.mem.ptr, y: s.mem.ptr, scale: a.inv, n: int64(n), width: int64(h),
		})
		runtime.KeepAlive(b)
	}
	if n > 0 {
		launch(q, normGrad, n, 1, 1, &a)
	}
	runtime.KeepAlive([]*buffer{w, d, g, s})
}

// Rope rotates heads in place.
func (q *queue) Rope(x compute.Buffer, col, heads, headDim int, rope compute.Buffer, pos []int32, inverse bool, n int) {
	const op = "Rope"
	ld := q.dev.bufferOf(op, x, compute.F32, 0).width()
	d, table := q.dev.bufferOf(op, x, compute.F32, n*ld), q.dev.bufferOf(op, rope, compute.F32, 0)
	if col < 0 || col+heads*headDim > ld || headDim < 2 || headDim%2 != 0 {
		panic(fmt.Sprintf("cuda: %s: %d heads of %d from column %d of %d", op, heads, headDim, col, ld))
	}
	check(len(pos) >= n, op, "len(pos)", len(pos), n)
	for _, p := range pos[:n] {
		if p < 0 || (int(p)+1)*headDim > table.n {
			panic(fmt.Sprintf("cuda: %s: position %d, the table has %d", op, p, table.n/headDim))
		}
	}
	if n == 0 || !q.reserve(4*n) {
		return
	}
	a := turnArgs{
		x: d.mem.ptr + 4*uint64(col), rope: table.mem.ptr, pos: q.put(bytesOf(pos[:n])),
		n: int64(n), ld: int64(ld), heads: int64(heads), dim: int64(headDim),
	}
	if inverse {
		a.inverse = 1
	}
	launch(q, turnHeads, flatBlocks(n*heads*headDim/2), 1, 1, &a)
	runtime.KeepAlive(d)
	runtime.KeepAlive(table)
}

// SwiGLUGrad computes dgu of SwiGLU. dgu may be gu.
func (q *queue) SwiGLUGrad(dgu, dy, gu compute.Buffer, n int) {
	const op = "SwiGLUGrad"
	f := q.dev.readOf(op, dy, compute.F32, 0).width()
	d, g, s := q.dev.bufferOf(op, dgu, compute.F32, 2*n*f), q.dev.readOf(op, dy, compute.F32, n*f), q.dev.readOf(op, gu, compute.F32, 2*n*f)
	if n*f > 0 {
		launch(q, swigluGrad, flatBlocks(n*f), 1, 1, &swigluGradArgs{dgu: d.mem.ptr, dy: g.mem.ptr, gu: s.mem.ptr, n: int64(n), width: int64(f)})
	}
	runtime.KeepAlive([]*buffer{d, g, s})
}

// SmoothL1 computes the loss of each row and its gradient. dy may be y.
func (q *queue) SmoothL1(loss, dy, y, t compute.Buffer, scale []float32, l1 bool, n int) {
	const op = "SmoothL1"
	h := q.dev.readOf(op, y, compute.F32, 0).width()
	check(len(scale) >= n, op, "len(scale)", len(scale), n)
	l, d := q.dev.bufferOf(op, loss, compute.F32, n), q.dev.bufferOf(op, dy, compute.F32, n*h)
	s, u := q.dev.readOf(op, y, compute.F32, n*h), q.dev.readOf(op, t, compute.F32, n*h)
	if n == 0 || !q.reserve(4*n) {
		return
	}
	a := smoothArgs{loss: l.mem.ptr, dy: d.mem.ptr, y: s.mem.ptr, t: u.mem.ptr, scale: q.put(bytesOf(scale[:n])), width: int64(h)}
	if l1 {
		a.l1 = 1
	}
	launch(q, smoothL1, n, 1, 1, &a)
	runtime.KeepAlive([]*buffer{l, d, s, u})
}

// EmbedGrad adds rows of dy to the rows of dtable that they came from.
func (q *queue) EmbedGrad(dtable, dy compute.Buffer, col int, ids []int32) {
	const op = "EmbedGrad"
	d, s := q.dev.bufferOf(op, dtable, compute.F32, 0), q.dev.readOf(op, dy, compute.F32, 0)
	w, ld := d.width(), s.width()
	q.dev.readOf(op, dy, compute.F32, len(ids)*ld)
	if col < 0 || col+w > ld {
		panic(fmt.Sprintf("cuda: %s: columns [%d,%d) of rows of %d", op, col, col+w, ld))
	}
	for _, id := range ids {
		if id < 0 || (int(id)+1)*w > d.n {
			panic(fmt.Sprintf("cuda: %s: id %d of a table of shape %v", op, id, d.shape))
		}
	}
	if len(ids) == 0 {
		return
	}
	b := bundle(ids)
	if !q.reserve(4*(len(b.ids)+len(b.starts)+len(b.rows)) + 64) {
		return
	}
	launch(q, scatterAdd, len(b.ids), 1, 1, &scatterArgs{
		dst: d.mem.ptr, src: s.mem.ptr + 4*uint64(col), ids: q.put(bytesOf(b.ids)), starts: q.put(bytesOf(b.starts)), rows: q.put(bytesOf(b.rows)),
		width: int64(w), ld: int64(ld),
	})
	runtime.KeepAlive(d)
	runtime.KeepAlive(s)
}

// bundles say which rows have each id: rows[starts[i]:starts[i+1]], ascending, have ids[i].
type bundles struct{ ids, starts, rows []int32 }

func bundle(of []int32) bundles {
	b := bundles{rows: make([]int32, len(of))}
	for r := range b.rows {
		b.rows[r] = int32(r)
	}
	slices.SortStableFunc(b.rows, func(x, y int32) int { return int(of[x]) - int(of[y]) })
	for i, r := range b.rows {
		if i == 0 || of[r] != of[b.rows[i-1]] {
			b.ids, b.starts = append(b.ids, of[r]), append(b.starts, int32(i))
		}
	}
	b.starts = append(b.starts, int32(len(of)))
	return b
}

// squaresBlock is the elements that a block of squares sums.
const squaresBlock = 8192

// SumSquares returns the sum of squares, in f32 within blocks of fixed size and in
// float64 over the blocks. It waits, and copies back only the sum.
func (q *queue) SumSquares(gs ...compute.Buffer) float64 {
	const op = "SumSquares"
	parts := 0
	for _, g := range gs {
		parts += (q.dev.readOf(op, g, compute.F32, 0).n + squaresBlock - 1) / squaresBlock
	}
	if !q.scratch(&q.train.parts, "sums of squares", int64(16+4*parts), false) {
		return math.NaN()
	}
	at := q.train.parts.ptr + 16
	for _, g := range gs {
		b := g.(*buffer)
		if n := (b.n + squaresBlock - 1) / squaresBlock; n > 0 {
			launch(q, squares, n, 1, 1, &squaresArgs{part: at, x: b.mem.ptr, n: int64(b.n)})
			at += 4 * uint64(n)
		}
	}
	launch(q, total, 1, 1, 1, &squaresArgs{part: q.train.parts.ptr + 16, sum: q.train.parts.ptr, n: int64(parts)})
	raw := make([]byte, 8)
	binary.LittleEndian.PutUint64(raw, math.Float64bits(math.NaN())) // stays if the device fails
	q.read(&buffer{dev: q.dev, t: compute.I32, n: 2, mem: q.train.parts}, 0, raw)
	runtime.KeepAlive(gs)
	return math.Float64frombits(binary.LittleEndian.Uint64(raw))
}

// AdamW updates p, m and v.
func (q *queue) AdamW(p, g, m, v compute.Buffer, h compute.AdamW) {
	const op = "AdamW"
	check(h.Step >= 1, op, "Step", h.Step, 1)
	bp := q.dev.bufferOf(op, p, compute.F32, 0)
	n := bp.n
	bg, bm, bv := q.dev.readOf(op, g, compute.F32, n), q.dev.bufferOf(op, m, compute.F32, n), q.dev.bufferOf(op, v, compute.F32, n)
	f := func(x float32) uint64 { return uint64(math.Float32bits(x)) }
	correction := func(beta float32) uint64 {
		return f(float32(1 / (1 - math.Pow(float64(beta), float64(h.Step)))))
	}
	if n > 0 {
		a := &adamArgs{
			p: bp.mem.ptr, g: bg.mem.ptr, m: bm.mem.ptr, v: bv.mem.ptr, n: int64(n),
			lr: f(h.LR), beta1: f(h.Beta1), beta2: f(h.Beta2), eps: f(h.Eps), decay: f(h.LR * h.Decay), scale: f(h.Scale),
			c1: correction(h.Beta1), c2: correction(h.Beta2),
		}
		if c := bp.mem.half.Load(); c != nil && c.mem != nil {
			a.half = c.mem.ptr
			c.fresh.Store(int64(n))
		}
		launch(q, adamW, flatBlocks(n), 1, 1, a)
	}
	runtime.KeepAlive([]*buffer{bp, bg, bm, bv})
}
