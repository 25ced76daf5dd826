//go:build gpu && linux && cgo

package cuda

import (
	"encoding/binary"
	"fmt"
	"math"
	"runtime"
	"slices"
	"unsafe"

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
}

type treeArgs struct {
	o, lse, q, keys, values, first, last, anc uint64
	rows, heads, kvHeads, dim, levels         int64
	do, delta, dq, dk, dv                     uint64
	tiles, nodes, list                        uint64
	count                                     int64
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
	labels *block // of a chunk of rows
	delta  *block // of queries
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

// Host copies data to the device. If there is no room for it, the device has
// failed.
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

// flatBlocks is the grid of a kernel that goes over n elements one by one.
func flatBlocks(n int) int { return min((n+255)/256, 1056) }

// Gemm computes c = op(a)·op(b) + beta·c: an element is one chain over ascending
// k, to which c is added.
func (q *queue) Gemm(c, a, b compute.Mat, beta float32) {
	if c.T || a.Rows != c.Rows || b.Cols != c.Cols || a.Cols != b.Rows || (beta != 0 && beta != 1) {
		panic(fmt.Sprintf("cuda: Gemm: [%d][%d] (transposed: %v) from [%d][%d]·[%d][%d], beta %g",
			c.Rows, c.Cols, c.T, a.Rows, a.Cols, b.Rows, b.Cols, beta))
	}
	g := gemmArgs{m: int64(c.Rows), n: int64(c.Cols), k: int64(a.Cols), ldc: int64(c.Stride), beta: int64(beta)}
	g.c = q.matrix("c", c)
	g.a, g.b = q.matrix("a", a), q.matrix("b", b)
	g.aRow, g.aCol = strides(a)
	g.bRow, g.bCol = strides(b)
	k := gemmF32
	if q.dev.cfg.BF16 {
		k = gemmBF16
	}
	q.gemm(k, &g)
	runtime.KeepAlive(c.Buf)
	runtime.KeepAlive(a.Buf)
	runtime.KeepAlive(b.Buf)
}

// gemmSide is the rows and columns of a product that a block has.
const gemmSide = 128

// gemm launches k, a few rows of blocks at a time: their number is limited.
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

// matrix returns the address of m's first element, after checking its extent.
func (q *queue) matrix(name string, m compute.Mat) uint64 {
	rows, cols := m.Rows, m.Cols
	if m.T {
		rows, cols = cols, rows
	}
	if rows < 0 || cols < 0 || m.Off < 0 || (rows > 1 && m.Stride < cols) {
		panic(fmt.Sprintf("cuda: Gemm: %s is [%d][%d] with stride %d at %d", name, m.Rows, m.Cols, m.Stride, m.Off))
	}
	n := m.Off
	if rows > 0 && cols > 0 {
		n += (rows-1)*m.Stride + cols
	}
	return q.dev.bufferOf("Gemm", m.Buf, compute.F32, n).mem.ptr + 4*uint64(m.Off)
}

// Add computes dst = a + b.
func (q *queue) Add(dst, a, b compute.Buffer, n int) {
	const op = "Add"
	d, x, y := q.dev.bufferOf(op, dst, compute.F32, n), q.dev.bufferOf(op, a, compute.F32, n), q.dev.bufferOf(op, b, compute.F32, n)
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
	w := q.dev.bufferOf(op, x, compute.F32, 0).width()
	d, s := q.dev.bufferOf(op, dst, compute.F32, w), q.dev.bufferOf(op, x, compute.F32, n*w)
	launch(q, columnSums, (w+31)/32, 1, 1, &columnArgs{dst: d.mem.ptr, x: s.mem.ptr, n: int64(n), width: int64(w)})
	runtime.KeepAlive(d)
	runtime.KeepAlive(s)
}

// NormGrad gives dx and dw of Norm. dx may be dy.
func (q *queue) NormGrad(dx, dw, dy, x, weight compute.Buffer, eps float32, n int) {
	const op = "NormGrad"
	w := q.dev.bufferOf(op, weight, compute.F32, 1)
	h := w.n
	d, g, s := q.dev.bufferOf(op, dx, compute.F32, n*h), q.dev.bufferOf(op, dy, compute.F32, n*h), q.dev.bufferOf(op, x, compute.F32, n*h)
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

// SwiGLUGrad gives dgu of SwiGLU. dgu may be gu.
func (q *queue) SwiGLUGrad(dgu, dy, gu compute.Buffer, n int) {
	const op = "SwiGLUGrad"
	f := q.dev.bufferOf(op, dy, compute.F32, 0).width()
	d, g, s := q.dev.bufferOf(op, dgu, compute.F32, 2*n*f), q.dev.bufferOf(op, dy, compute.F32, n*f), q.dev.bufferOf(op, gu, compute.F32, 2*n*f)
	if n*f > 0 {
		launch(q, swigluGrad, flatBlocks(n*f), 1, 1, &swigluGradArgs{dgu: d.mem.ptr, dy: g.mem.ptr, gu: s.mem.ptr, n: int64(n), width: int64(f)})
	}
	runtime.KeepAlive([]*buffer{d, g, s})
}

// SmoothL1 computes the loss of each row and its gradient. dy may be y.
func (q *queue) SmoothL1(loss, dy, y, t compute.Buffer, scale []float32, l1 bool, n int) {
	const op = "SmoothL1"
	h := q.dev.bufferOf(op, y, compute.F32, 0).width()
	check(len(scale) >= n, op, "len(scale)", len(scale), n)
	l, d := q.dev.bufferOf(op, loss, compute.F32, n), q.dev.bufferOf(op, dy, compute.F32, n*h)
	s, u := q.dev.bufferOf(op, y, compute.F32, n*h), q.dev.bufferOf(op, t, compute.F32, n*h)
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
	d, s := q.dev.bufferOf(op, dtable, compute.F32, 0), q.dev.bufferOf(op, dy, compute.F32, 0)
	w, ld := d.width(), s.width()
	q.dev.bufferOf(op, dy, compute.F32, len(ids)*ld)
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

// bundles say which rows have each id: rows[starts[i]:starts[i+1]], ascending,
// have ids[i].
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

// SumSquares returns the sum of squares: f32 within blocks of fixed size, float64
// over them. It waits; only the sum is copied back.
func (q *queue) SumSquares(gs ...compute.Buffer) float64 {
	const op = "SumSquares"
	parts := 0
	for _, g := range gs {
		parts += (q.dev.bufferOf(op, g, compute.F32, 0).n + squaresBlock - 1) / squaresBlock
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
	binary.LittleEndian.PutUint64(raw, math.Float64bits(math.NaN())) // what a device that failed leaves
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
	bg, bm, bv := q.dev.bufferOf(op, g, compute.F32, n), q.dev.bufferOf(op, m, compute.F32, n), q.dev.bufferOf(op, v, compute.F32, n)
	f := func(x float32) uint64 { return uint64(math.Float32bits(x)) }
	correction := func(beta float32) uint64 {
		return f(float32(1 / (1 - math.Pow(float64(beta), float64(h.Step)))))
	}
	if n > 0 {
		launch(q, adamW, flatBlocks(n), 1, 1, &adamArgs{
			p: bp.mem.ptr, g: bg.mem.ptr, m: bm.mem.ptr, v: bv.mem.ptr, n: int64(n),
			lr: f(h.LR), beta1: f(h.Beta1), beta2: f(h.Beta2), eps: f(h.Eps), decay: f(h.LR * h.Decay), scale: f(h.Scale),
			c1: correction(h.Beta1), c2: correction(h.Beta2),
		})
	}
	runtime.KeepAlive([]*buffer{bp, bg, bm, bv})
}

// DType and Shape make a weight a buffer [Out][In] for SoftCE.
func (w *weight) DType() compute.DType { return w.t }
func (w *weight) Shape() []int         { return []int{w.out, w.in} }

// ceLogits is how many logits are kept at a time.
const ceLogits = 1 << 26

// SoftCE computes losses and gradients of soft labels, chunk by chunk: logits, the
// loss and its gradient in their place, then dh and dw. w is a buffer or a weight
// of F32.
func (q *queue) SoftCE(loss, dh, dw, h, w compute.Buffer, labels *compute.SoftLabels, scale []float32, n int) {
	const op = "SoftCE"
	hidden := q.dev.bufferOf(op, h, compute.F32, 0).width()
	check(len(w.Shape()) == 2, op, "dimensions of w", len(w.Shape()), 2)
	v := w.Shape()[0]
	check(w.Shape()[1] == hidden, op, "columns of w", w.Shape()[1], hidden)
	check(len(scale) >= n, op, "len(scale)", len(scale), n)
	lb, dhb, hb := q.dev.bufferOf(op, loss, compute.F32, n), q.dev.bufferOf(op, dh, compute.F32, n*hidden), q.dev.bufferOf(op, h, compute.F32, n*hidden)
	checkLabels(labels, v, n)
	var dwb *buffer
	if dw != nil {
		dwb = q.dev.bufferOf(op, dw, compute.F32, v*hidden)
	}
	k, packedK := gemmF32, gemmF32Packed
	if q.dev.cfg.BF16 {
		k, packedK = gemmBF16, gemmBF16Packed
	}
	var wp uint64
	kw := k
	if pw, ok := w.(*weight); ok {
		pw = q.dev.weightOf(op, pw)
		check(pw.t == compute.F32, op, "type of the weight", int(pw.t), int(compute.F32))
		wp, kw = pw.mem.ptr, packedK
	} else {
		wp = q.dev.bufferOf(op, w, compute.F32, v*hidden).mem.ptr
	}
	rows := min(n, max(1, ceLogits/v))
	if rows == 0 {
		return
	}
	kl := max(1, labels.K)
	if !q.scratch(&q.train.logits, "logits", 4*int64(rows)*int64(v), false) || !q.scratch(&q.train.labels, "labels", 4*int64(rows*kl), false) {
		return
	}
	z := q.train.logits.ptr
	for r := 0; r < n; r += rows {
		m := min(rows, n-r)
		a := crossArgs{z: z, loss: lb.mem.ptr + 4*uint64(r), labels: q.train.labels.ptr, width: int64(v), k: int64(labels.K)}
		if !q.putLabels(&a, labels, scale, v, r, m) {
			return
		}
		dim := int64(hidden)
		hp := hb.mem.ptr + 4*uint64(r*hidden)
		q.gemm(kw, &gemmArgs{ // z = h·wᵀ
			c: z, a: hp, b: wp, m: int64(m), n: int64(v), k: dim, ldc: int64(v), aRow: dim, aCol: 1, bRow: 1, bCol: dim,
			out: int64(v), in: dim, turned: 1,
		})
		launch(q, softCE, m, 1, 1, &a)
		q.gemm(kw, &gemmArgs{ // dh = dz·w
			c: dhb.mem.ptr + 4*uint64(r*hidden), a: z, b: wp, m: int64(m), n: dim, k: int64(v), ldc: dim, aRow: int64(v), aCol: 1, bRow: dim, bCol: 1,
			out: int64(v), in: dim,
		})
		if dwb != nil { // dw += dzᵀ·h
			q.gemm(k, &gemmArgs{
				c: dwb.mem.ptr, a: z, b: hp, m: int64(v), n: dim, k: int64(m), ldc: dim, aRow: 1, aCol: int64(v), bRow: dim, bCol: 1, beta: 1,
			})
		}
	}
	runtime.KeepAlive([]*buffer{lb, dhb, hb, dwb})
	runtime.KeepAlive(w)
}

// putLabels copies the labels and scales of rows [r, r+m) to the device.
func (q *queue) putLabels(a *crossArgs, l *compute.SoftLabels, scale []float32, v, r, m int) bool {
	size := 4*m + 64
	if l.Full != nil {
		size += 4 * m * v
	} else {
		size += 4 * m * (2*l.K + 1)
	}
	if !q.reserve(size) {
		return false
	}
	a.scale = q.put(bytesOf(scale[r:][:m]))
	if l.Full != nil {
		a.full = q.put(bytesOf(l.Full[r*v:][:m*v]))
		return true
	}
	if l.K > 0 {
		a.ids, a.prob = q.put(bytesOf(l.IDs[r*l.K:][:m*l.K])), q.put(bytesOf(l.Prob[r*l.K:][:m*l.K]))
	}
	if l.Tail != nil {
		a.tail = q.put(bytesOf(l.Tail[r:][:m]))
	}
	return true
}

func checkLabels(l *compute.SoftLabels, v, n int) {
	const op = "SoftCE"
	if l.Full != nil {
		check(len(l.Full) >= n*v, op, "len(Full)", len(l.Full), n*v)
		return
	}
	check(len(l.IDs) >= n*l.K, op, "len(IDs)", len(l.IDs), n*l.K)
	check(len(l.Prob) >= n*l.K, op, "len(Prob)", len(l.Prob), n*l.K)
	if l.Tail != nil {
		check(len(l.Tail) >= n, op, "len(Tail)", len(l.Tail), n)
	}
	for i, id := range l.IDs[:n*l.K] {
		if int(id) >= v || (id < 0 && l.Prob[i] != 0) {
			panic(fmt.Sprintf("cuda: %s: row %d: id %d with probability %g, vocabulary of %d", op, i/l.K, id, l.Prob[i], v))
		}
	}
}

// treeTile is the keys that a block of tree_keys has.
const treeTile = 32

// A treeCall is a call of tree attention that was checked.
type treeCall struct {
	args   treeArgs
	keys   int // rows of level 0
	k, v   []uint64
	kept   []*buffer
	g      *compute.TrainAttention
	groups int // query heads of a head of keys
}

// tree checks what TreeAttend and TreeAttendGrad share.
func (q *queue) tree(op string, g *compute.TrainAttention, o, lse, qs compute.Buffer, k, v []compute.Buffer) *treeCall {
	check(g.KVHeads > 0 && g.Heads%g.KVHeads == 0, op, "query heads modulo KV heads", g.Heads%max(1, g.KVHeads), 0)
	if g.HeadDim < 1 || g.HeadDim > mostDim {
		panic(fmt.Sprintf("cuda: %s: heads of %d elements, want 1 to %d", op, g.HeadDim, mostDim))
	}
	n, ldq, ldk := len(g.First), g.Heads*g.HeadDim, g.KVHeads*g.HeadDim
	check(len(g.Last) == n, op, "len(Last)", len(g.Last), n)
	check(len(k) == len(g.Anc)+1, op, "levels of keys", len(k), len(g.Anc)+1)
	check(len(v) == len(k), op, "levels of values", len(v), len(k))
	t := &treeCall{g: g, groups: g.Heads / g.KVHeads}
	use := func(b compute.Buffer, n int) uint64 {
		c := q.dev.bufferOf(op, b, compute.F32, n)
		t.kept = append(t.kept, c)
		return c.mem.ptr
	}
	t.args = treeArgs{
		o: use(o, n*ldq), lse: use(lse, n*g.Heads), q: use(qs, n*ldq),
		rows: int64(n), heads: int64(g.Heads), kvHeads: int64(g.KVHeads), dim: int64(g.HeadDim), levels: int64(len(k)),
	}
	for j := range k {
		t.k, t.v = append(t.k, use(k[j], 0)), append(t.v, use(v[j], 0))
		rows := min(t.kept[len(t.kept)-2].n, t.kept[len(t.kept)-1].n) / ldk
		if j == 0 {
			t.keys = rows
			for r := range n {
				if f, l := g.First[r], g.Last[r]; f < 0 || l < f || int(l) >= rows {
					panic(fmt.Sprintf("cuda: %s: row %d sees keys [%d,%d] of %d", op, r, f, l, rows))
				}
			}
			continue
		}
		check(len(g.Anc[j-1]) == n, op, "rows of ancestors", len(g.Anc[j-1]), n)
		for r, i := range g.Anc[j-1] {
			if i < 0 || int(i) >= rows {
				panic(fmt.Sprintf("cuda: %s: row %d's ancestor %d on level %d of %d rows", op, r, i, j, rows))
			}
		}
	}
	return t
}

// size is the bytes of arguments that put copies.
func (t *treeCall) size() int {
	return 4*len(t.g.First)*(2+len(t.g.Anc)) + 32*len(t.k) + 16*8
}

func (t *treeCall) put(q *queue) {
	a := &t.args
	a.keys, a.values = q.put(bytesOf(t.k)), q.put(bytesOf(t.v))
	a.first, a.last = q.put(bytesOf(t.g.First)), q.put(bytesOf(t.g.Last))
	if len(t.g.Anc) > 0 {
		anc := make([]int32, 0, len(t.g.Anc)*len(t.g.First))
		for _, x := range t.g.Anc {
			anc = append(anc, x...)
		}
		a.anc = q.put(bytesOf(anc))
	}
}

// TreeAttend computes the attention of one level.
func (q *queue) TreeAttend(o, lse, qs compute.Buffer, k, v []compute.Buffer, g *compute.TrainAttention) {
	t := q.tree("TreeAttend", g, o, lse, qs, k, v)
	if len(g.First) == 0 || !q.reserve(t.size()) {
		return
	}
	t.put(q)
	const lines = 16
	launch(q, treeAttend, (len(g.First)*t.groups+lines-1)/lines, g.KVHeads, 1, &t.args)
	runtime.KeepAlive(t)
}

// TreeAttendGrad gives dq and adds to dk and dv.
func (q *queue) TreeAttendGrad(dq compute.Buffer, dk, dv []compute.Buffer, do, o, lse, qs compute.Buffer, k, v []compute.Buffer, g *compute.TrainAttention) {
	const op = "TreeAttendGrad"
	t := q.tree(op, g, o, lse, qs, k, v)
	check(len(dk) == len(k), op, "levels of dk", len(dk), len(k))
	check(len(dv) == len(k), op, "levels of dv", len(dv), len(k))
	n := len(g.First)
	a := &t.args
	use := func(b compute.Buffer, n int) uint64 {
		c := q.dev.bufferOf(op, b, compute.F32, n)
		t.kept = append(t.kept, c)
		return c.mem.ptr
	}
	a.do, a.dq = use(do, n*g.Heads*g.HeadDim), use(dq, n*g.Heads*g.HeadDim)
	dks, dvs := make([]uint64, len(k)), make([]uint64, len(k))
	for j := range k {
		dks[j], dvs[j] = use(dk[j], k[j].(*buffer).n), use(dv[j], v[j].(*buffer).n)
	}
	if n == 0 {
		return
	}
	tiles, nodes, list := t.columns()
	if !q.scratch(&q.train.delta, "sums of attention's gradient", 4*int64(n*g.Heads), false) ||
		!q.reserve(t.size()+32*len(k)+16*len(tiles)+16*len(nodes)+4*len(list)+16*8) {
		return
	}
	t.put(q)
	a.dk, a.dv, a.delta = q.put(bytesOf(dks)), q.put(bytesOf(dvs)), q.train.delta.ptr
	launch(q, treeDelta, (n*g.Heads+7)/8, 1, 1, a)
	const lines = 8
	launch(q, treeQueries, (n*t.groups+lines-1)/lines, g.KVHeads, 1, a)
	a.tiles, a.count = q.put(bytesOf(tiles)), int64(t.keys)
	launch(q, treeKeys, len(tiles), g.KVHeads, 1, a)
	if len(nodes) > 0 {
		a.nodes, a.list, a.count = q.put(bytesOf(nodes)), q.put(bytesOf(list)), int64(len(nodes))
		launch(q, treeNodes, (len(nodes)+3)/4, g.KVHeads, 1, a)
	}
	runtime.KeepAlive(t)
}

// columns returns which rows see each tile of keys of level 0, and each row of the
// levels below: list[from:to].
func (t *treeCall) columns() (tiles []keyTile, nodes []node, list []int32) {
	at := make([]int32, (t.keys+treeTile-1)/treeTile) // tile's index plus 1
	for r, f := range t.g.First {
		for i := f / treeTile; i <= t.g.Last[r]/treeTile; i++ {
			if at[i] == 0 {
				tiles = append(tiles, keyTile{key: i * treeTile, from: int32(r)})
				at[i] = int32(len(tiles))
			}
			tiles[at[i]-1].to = int32(r + 1)
		}
	}
	for l, anc := range t.g.Anc {
		b := bundle(anc)
		for i, id := range b.ids {
			nodes = append(nodes, node{
				level: int32(l + 1), row: id, from: int32(len(list)) + b.starts[i], to: int32(len(list)) + b.starts[i+1],
			})
		}
		list = append(list, b.rows...)
	}
	return tiles, nodes, list
}

// The largest structure fits into a command.
var _ [maxArgs*8 - unsafe.Sizeof(treeArgs{})]byte
