package cpu

import (
	"fmt"

	"talf/compute"
	"talf/compute/cpu/kern"
	"talf/internal/slab"
)

// trainTasks are the operations of training.
type trainTasks struct {
	pack    packBTask
	packed  []float32 // the right side of a product, in panels
	add     addTask
	bias    addBiasTask
	sum     sumRowsTask
	normdx  normGradTask
	normdw  normWeightTask
	inv     []float32 // [n] 1/RMS of the rows
	rope    ropeTask
	swiglu  swigluGradTask
	attend  treeAttendTask
	sigmoid sigmoidTask

	candidates candidateTask

	ce      softCE
	smooth  smoothTask
	embed   embedGradTask
	squares squaresTask
	adam    adamTask
	stash   stashTask
}

// Host wraps data: reads and writes of the buffer are reads and writes of data.
func (q *Queue) Host(data []float32, shape ...int) compute.Buffer {
	n, err := elements(shape)
	if err != nil || n != len(data) {
		panic(fmt.Sprintf("cpu: Host: %d elements for shape %v", len(data), shape))
	}
	return &buffer{t: compute.F32, shape: append([]int(nil), shape...), f: data}
}

// piece is the most elements of a product's right side that are packed at once.
const piece = 1 << 22

// packBTask packs op(b) [k][n] into panels, packBlock k of packWide panels a part.
type packBTask struct {
	dst, b         []float32
	k, n           int
	stride, blocks int
	trans          bool
}

const (
	packBlock = 256
	packWide  = 8
)

// parts returns the number of parts and fixes their numbering.
func (t *packBTask) parts() int {
	t.blocks = parts(t.k, packBlock)
	return parts(panels(t.n), packWide) * t.blocks
}

func (t *packBTask) run(_ *worker, part int) {
	p0, k := part/t.blocks*packWide, part%t.blocks*packBlock
	s, end := min(packBlock, t.k-k), min(p0+packWide, panels(t.n))
	if t.trans {
		for p := p0; p < end; p++ {
			n := min(panel, t.n-p*panel)
			kern.PackRows(t.dst[(p*t.k+k)*panel:][:s*panel], t.b[p*panel*t.stride+k:], n, s, t.stride)
		}
		return
	}
	// Row by row over all panels: panel by panel would read two cache lines of every row and
	// come back for the next two.
	for i := k; i < k+s; i++ {
		src := t.b[i*t.stride:]
		for p := p0; p < end; p++ {
			dst := t.dst[(p*t.k+i)*panel:][:panel]
			if n := t.n - p*panel; n < panel {
				clear(dst[copy(dst, src[p*panel:][:n]):])
				continue
			}
			*(*[panel]float32)(dst) = *(*[panel]float32)(src[p*panel:])
		}
	}
}

// matrix returns the elements of m from its offset on, after checking its extent.
func matrix(name string, m compute.Mat) []float32 {
	rows, cols := m.Rows, m.Cols
	if m.T {
		rows, cols = cols, rows
	}
	if rows < 0 || cols < 0 || m.Off < 0 || (rows > 1 && m.Stride < cols) {
		panic(fmt.Sprintf("cpu: Gemm: %s is [%d][%d] with stride %d at %d", name, m.Rows, m.Cols, m.Stride, m.Off))
	}
	n := m.Off
	if rows > 0 && cols > 0 {
		n += (rows-1)*m.Stride + cols
	}
	return f32("Gemm", m.Buf, n)[m.Off:]
}

// Gemm computes c = op(a)·op(b) + beta·c: an element is one chain over ascending
// k, from zero or from c.
func (q *Queue) Gemm(c, a, b compute.Mat, beta float32) {
	if c.T || a.Rows != c.Rows || b.Cols != c.Cols || a.Cols != b.Rows || (beta != 0 && beta != 1) {
		panic(fmt.Sprintf("cpu: Gemm: [%d][%d] (transposed: %v) from [%d][%d]·[%d][%d], beta %g",
			c.Rows, c.Cols, c.T, a.Rows, a.Cols, b.Rows, b.Cols, beta))
	}
	cs, as, bs := matrix("c", c), matrix("a", a), matrix("b", b)
	ars, aks := a.Stride, 1
	if a.T {
		ars, aks = 1, a.Stride
	}
	k := a.Cols
	if c.Rows <= few {
		t := &q.mul
		*t = mulTask{
			c: cs, ldc: c.Stride, a: as, ars: ars, aks: aks, raw: rawRight{b: bs, stride: b.Stride, trans: b.T},
			m: c.Rows, n: c.Cols, k: k, chain: beta == 1,
		}
		q.pool.run(q.until, t, t.cut(q.pool))
		return
	}
	step := max(panel, piece/max(1, k)/panel*panel)
	for n := 0; n < c.Cols; n += step {
		w := min(step, c.Cols-n)
		bn := bs
		if k > 0 {
			if b.T {
				bn = bs[n*b.Stride:]
			} else {
				bn = bs[n:]
			}
		}
		q.packB(bn, b.Stride, k, w, b.T)
		t := &q.mul
		*t = mulTask{
			c: cs[n:], ldc: c.Stride, a: as, ars: ars, aks: aks, b: packed{panels: q.train.packed},
			m: c.Rows, n: w, k: k, chain: beta == 1,
		}
		q.pool.run(q.until, t, t.cut(q.pool))
	}
}

// packB packs op(b) [k][n] into q.train.packed.
func (q *Queue) packB(b []float32, stride, k, n int, trans bool) {
	size := kern.PanelLen(n, k)
	if cap(q.train.packed) < size {
		q.train.packed = slab.Floats(size)
	}
	q.train.packed = q.train.packed[:size]
	t := &q.train.pack
	*t = packBTask{dst: q.train.packed, b: b, k: k, n: n, stride: stride, trans: trans}
	if size < 1<<13 {
		q.pool.alone(t, t.parts())
		return
	}
	q.run(t, t.parts())
}

// flat is the number of elements of a part of an element-wise operation, and of
// the blocks that SumSquares adds up.
const flat = 1 << 13

type addTask struct{ dst, a, b []float32 }

func (t *addTask) run(w *worker, part int) {
	i := part * flat
	n := min(flat, len(t.dst)-i)
	w.k.Add(t.dst[i:][:n], t.a[i:][:n], t.b[i:][:n])
}

// Add computes dst = a + b.
func (q *Queue) Add(dst, a, b compute.Buffer, n int) {
	t := &q.train.add
	*t = addTask{f32("Add", dst, n)[:n], f32("Add", a, n)[:n], f32("Add", b, n)[:n]}
	q.run(t, parts(n, flat))
}

type addBiasTask struct {
	x, bias []float32
	n, per  int
}

func (t *addBiasTask) run(w *worker, part int) {
	c := len(t.bias)
	for r := part * t.per; r < min(t.n, (part+1)*t.per); r++ {
		x := t.x[r*c:][:c]
		w.k.Add(x, x, t.bias)
	}
}

// AddBias adds bias to each row.
func (q *Queue) AddBias(x, bias compute.Buffer, n int) {
	b := f32("AddBias", bias, 1)
	t := &q.train.bias
	*t = addBiasTask{x: f32("AddBias", x, n*len(b)), bias: b, n: n, per: rowsPerPart(n, len(b)/4)}
	q.run(t, parts(n, t.per))
}

// colBlock is how many columns a part of a sum over rows takes: whole cache
// lines, so that workers do not write to each other's.
const colBlock = 64

type sumRowsTask struct {
	dst, x []float32
	n, ld  int
}

func (t *sumRowsTask) run(w *worker, part int) {
	c := part * colBlock
	d := t.dst[c:min(c+colBlock, t.ld)]
	clear(d)
	for r := range t.n {
		w.k.Add(d, d, t.x[r*t.ld+c:][:len(d)])
	}
}

// SumRows sets dst to the sum of the rows of x, in ascending order.
func (q *Queue) SumRows(dst, x compute.Buffer, n int) {
	ld := width(x)
	t := &q.train.sum
	*t = sumRowsTask{dst: f32("SumRows", dst, ld), x: f32("SumRows", x, n*ld), n: n, ld: ld}
	q.run(t, parts(ld, colBlock))
}

// normGradTask computes dx. With s = 1/RMS(x) and g = w·dy:
//
//	dx = s·g − x·s³/h·Σ(g·x)
//
// It also fills inv.
type normGradTask struct {
	dx, dy, x, wt, inv []float32
	eps                float32
	n, h, per          int
	invOnly            bool // only fill inv
}

func (t *normGradTask) run(w *worker, part int) {
	for r := part * t.per; r < min(t.n, (part+1)*t.per); r++ {
		x := t.x[r*t.h:][:t.h]
		if t.invOnly {
			t.inv[r] = invRMS(w, x, t.eps)
			continue
		}
		s := t.inv[r]
		g := w.buf(0, t.h)
		w.k.Mul(g, t.dy[r*t.h:][:t.h], t.wt)
		c := float32(w.k.Dot(g, x) * float32(s*float32(s*s)) / float32(t.h))
		w.k.Scale(g, s)
		w.k.Axpy(g, -c, x)
		copy(t.dx[r*t.h:][:t.h], g)
	}
}

// normWeightTask computes dw: the sum of dy·x·s over rows, in ascending order.
type normWeightTask struct {
	dw, dy, x, inv []float32
	n, h           int
}

func (t *normWeightTask) run(w *worker, part int) {
	c := part * colBlock
	d := t.dw[c:min(c+colBlock, t.h)]
	g := w.buf(0, len(d))
	clear(d)
	for r := range t.n {
		w.k.Mul(g, t.dy[r*t.h+c:][:len(d)], t.x[r*t.h+c:][:len(d)])
		w.k.Axpy(d, t.inv[r], g)
	}
}

// NormGrad computes dx and dw of Norm. dx may be dy.
func (q *Queue) NormGrad(dx, dw, dy, x, weight compute.Buffer, eps float32, n int) {
	const op = "NormGrad"
	wt := f32(op, weight, 1)
	h := len(wt)
	q.train.inv = slab.Resize(q.train.inv, n)
	t := &q.train.normdx
	*t = normGradTask{
		dx: f32(op, dx, n*h), dy: f32(op, dy, n*h), x: f32(op, x, n*h), wt: wt, inv: q.train.inv,
		eps: eps, n: n, h: h, per: rowsPerPart(n, h), invOnly: true,
	}
	q.run(t, parts(n, t.per))
	if dw != nil {
		u := &q.train.normdw
		*u = normWeightTask{dw: f32(op, dw, h), dy: t.dy, x: t.x, inv: t.inv, n: n, h: h}
		q.run(u, parts(h, colBlock))
	}
	t.invOnly = false
	q.run(t, parts(n, t.per))
}

type ropeTask struct {
	x, rope   []float32
	ld, col   int
	heads, hd int
	pos       []int32
	inverse   bool
	n, per    int
}

func (t *ropeTask) run(w *worker, part int) {
	half := t.hd / 2
	neg := w.buf(0, half)
	for r := part * t.per; r < min(t.n, (part+1)*t.per); r++ {
		rot := t.rope[int(t.pos[r])*t.hd:][:t.hd]
		sin := rot[half:]
		if t.inverse {
			// The inverse of a rotation is the rotation by the opposite angle.
			copy(neg, sin)
			w.k.Scale(neg, -1)
			sin = neg
		}
		x := t.x[r*t.ld+t.col:]
		for h := range t.heads {
			w.k.Rope(x[h*t.hd:][:t.hd], rot[:half], sin)
		}
	}
}

// Rope rotates heads in place.
func (q *Queue) Rope(x compute.Buffer, col, heads, headDim int, rope compute.Buffer, pos []int32, inverse bool, n int) {
	const op = "Rope"
	ld := width(x)
	t := &q.train.rope
	*t = ropeTask{
		x: f32(op, x, n*ld), rope: f32(op, rope, 0), ld: ld, col: col, heads: heads, hd: headDim,
		pos: pos, inverse: inverse, n: n, per: rowsPerPart(n, heads*headDim/2),
	}
	if col < 0 || col+heads*headDim > ld || headDim < 2 || headDim%2 != 0 {
		panic(fmt.Sprintf("cpu: %s: %d heads of %d from column %d of %d", op, heads, headDim, col, ld))
	}
	check(len(pos) >= n, op, "len(pos)", len(pos), n)
	for _, p := range pos[:n] {
		if p < 0 || (int(p)+1)*headDim > len(t.rope) {
			panic(fmt.Sprintf("cpu: %s: position %d, the table has %d", op, p, len(t.rope)/headDim))
		}
	}
	q.run(t, parts(n, t.per))
}

type swigluGradTask struct {
	dgu, dy, gu []float32
	n, f, per   int
}

func (t *swigluGradTask) run(w *worker, part int) {
	for r := part * t.per; r < min(t.n, (part+1)*t.per); r++ {
		d, gu := t.dgu[2*r*t.f:][:2*t.f], t.gu[2*r*t.f:][:2*t.f]
		w.k.SiLUMulGrad(d[:t.f], d[t.f:], t.dy[r*t.f:][:t.f], gu[:t.f], gu[t.f:])
	}
}

// SwiGLUGrad computes dgu of SwiGLU. dgu may be gu.
func (q *Queue) SwiGLUGrad(dgu, dy, gu compute.Buffer, n int) {
	const op = "SwiGLUGrad"
	f := width(dy)
	t := &q.train.swiglu
	*t = swigluGradTask{dgu: f32(op, dgu, 2*n*f), dy: f32(op, dy, n*f), gu: f32(op, gu, 2*n*f), n: n, f: f, per: rowsPerPart(n, f)}
	q.run(t, parts(n, t.per))
}

type smoothTask struct {
	loss, dy, y, t, scale []float32
	l1                    bool
	n, h, per             int
}

func (t *smoothTask) run(_ *worker, part int) {
	for r := part * t.per; r < min(t.n, (part+1)*t.per); r++ {
		y, tt, dy := t.y[r*t.h:][:t.h], t.t[r*t.h:][:t.h], t.dy[r*t.h:][:t.h]
		g := t.scale[r] / float32(t.h)
		sum := 0.0
		for i := range y {
			d := y[i] - tt[i]
			a := max(d, -d)
			switch {
			case a < 1 && !t.l1:
				sum += float64(0.5 * float64(float64(d)*float64(d)))
				dy[i] = g * d
			default:
				if t.l1 {
					sum += float64(a)
				} else {
					sum += float64(a) - 0.5
				}
				switch {
				case d > 0:
					dy[i] = g
				case d < 0:
					dy[i] = -g
				default:
					dy[i] = 0 * d // 0, or NaN for a NaN
				}
			}
		}
		t.loss[r] = float32(sum / float64(t.h))
	}
}

// SmoothL1 computes the loss of each row and its gradient. dy may be y.
func (q *Queue) SmoothL1(loss, dy, y, t compute.Buffer, scale []float32, l1 bool, n int) {
	const op = "SmoothL1"
	h := width(y)
	check(len(scale) >= n, op, "len(scale)", len(scale), n)
	s := &q.train.smooth
	*s = smoothTask{
		loss: f32(op, loss, n), dy: f32(op, dy, n*h), y: f32(op, y, n*h), t: f32(op, t, n*h),
		scale: scale, l1: l1, n: n, h: h, per: rowsPerPart(n, 4*h),
	}
	q.run(s, parts(n, s.per))
}

type embedGradTask struct {
	dtable, dy []float32
	w, ld, col int
	ids        []int32
}

func (t *embedGradTask) run(w *worker, part int) {
	c := part * colBlock
	n := min(colBlock, t.w-c)
	for r, id := range t.ids {
		d := t.dtable[int(id)*t.w+c:][:n]
		w.k.Add(d, d, t.dy[r*t.ld+t.col+c:][:n])
	}
}

// EmbedGrad adds rows of dy to the rows of dtable that they came from.
func (q *Queue) EmbedGrad(dtable, dy compute.Buffer, col int, ids []int32) {
	const op = "EmbedGrad"
	t := &q.train.embed
	*t = embedGradTask{dtable: f32(op, dtable, 0), w: width(dtable), ld: width(dy), col: col, ids: ids}
	t.dy = f32(op, dy, len(ids)*t.ld)
	if col < 0 || col+t.w > t.ld {
		panic(fmt.Sprintf("cpu: %s: columns [%d,%d) of rows of %d", op, col, col+t.w, t.ld))
	}
	for _, id := range ids {
		if id < 0 || (int(id)+1)*t.w > len(t.dtable) {
			panic(fmt.Sprintf("cpu: %s: id %d of a table of shape %v", op, id, dtable.Shape()))
		}
	}
	q.run(t, parts(t.w, colBlock))
}

type squaresTask struct {
	g    []float32
	sums []float64
}

func (t *squaresTask) run(w *worker, part int) {
	g := t.g[part*flat : min(len(t.g), (part+1)*flat)]
	t.sums[part] = float64(w.k.Dot(g, g))
}

// SumSquares returns the sum of squares over blocks of fixed size, added in
// ascending order.
func (q *Queue) SumSquares(gs ...compute.Buffer) float64 {
	sum := 0.0
	for _, g := range gs {
		sum += q.sumSquares(g)
	}
	return sum
}

func (q *Queue) sumSquares(g compute.Buffer) float64 {
	t := &q.train.squares
	t.g = f32("SumSquares", g, 0)
	n := parts(len(t.g), flat)
	if cap(t.sums) < n {
		t.sums = make([]float64, n)
	}
	t.sums = t.sums[:n]
	q.run(t, n)
	sum := 0.0
	for _, s := range t.sums {
		sum += s
	}
	return sum
}

type adamTask struct {
	p, g, m, v []float32
	h          kern.Adam
}

func (t *adamTask) run(w *worker, part int) {
	i := part * flat
	n := min(flat, len(t.p)-i)
	w.k.AdamW(t.p[i:][:n], t.g[i:][:n], t.m[i:][:n], t.v[i:][:n], &t.h)
}

// AdamW updates p, m and v.
func (q *Queue) AdamW(p, g, m, v compute.Buffer, h compute.AdamW) {
	const op = "AdamW"
	check(h.Step >= 1, op, "Step", h.Step, 1)
	ps := f32(op, p, 0)
	n := len(ps)
	t := &q.train.adam
	*t = adamTask{p: ps, g: f32(op, g, n), m: f32(op, m, n), v: f32(op, v, n), h: kern.Adam{
		LR: h.LR, Beta1: h.Beta1, Beta2: h.Beta2, Eps: h.Eps, Decay: h.LR * h.Decay, Scale: h.Scale,
		C1: correction(h.Beta1, h.Step), C2: correction(h.Beta2, h.Step),
	}}
	q.run(t, parts(n, flat))
}

// correction returns 1/(1−b^t). The power is taken by squaring, because the
// library's differs between architectures.
func correction(b float32, t int) float32 {
	p := 1.0
	for x := float64(b); t > 0; t >>= 1 {
		if t&1 == 1 {
			p = float64(p * x)
		}
		x = float64(x * x)
	}
	return float32(1 / (1 - p))
}
