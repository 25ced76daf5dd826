package cpu

import (
	"runtime"

	"talf/compute"
	"talf/compute/cpu/kern"
	"talf/internal/slab"
)

// Linear computes l over the rows of x into dst.
func (q *Queue) Linear(dst, x compute.Buffer, l *compute.Linear, epi compute.Epilogue, n int) {
	q.linear("Linear", dst, nil, x, l, epi, n)
}

// LinearPeaks computes l over the rows of x into dst and keeps the largest of every
// panel.
func (q *Queue) LinearPeaks(dst, peaks, x compute.Buffer, l *compute.Linear, n int) {
	q.linear("LinearPeaks", dst, peaks, x, l, compute.Store, n)
}

// linear computes l; peaks may be nil.
func (q *Queue) linear(op string, dst, peaks, x compute.Buffer, l *compute.Linear, epi compute.Epilogue, n int) {
	w := weightOf(op, l.W)
	t := &q.mul
	*t = mulTask{
		c: f32(op, dst, n*w.out), ldc: w.out,
		a: f32(op, x, n*w.in), ars: w.in, aks: 1,
		b: w.packed, m: n, n: w.out, k: w.in,
		add: epi == compute.Accumulate, act: l.Act, limit: l.Limit,
	}
	if peaks != nil {
		t.peaks = f32(op, peaks, n*panels(w.out))
	}
	if l.Bias != nil {
		t.bias = f32(op, l.Bias, w.out)
	}
	if l.Up != nil {
		up := weightOf(op, l.Up)
		check(up.out == w.out && up.in == w.in, op, "elements of the second weight", up.out*up.in, w.out*w.in)
		check(up.DType() == w.DType(), op, "type of the second weight", int(up.DType()), int(w.DType()))
		t.up, t.gated = up.packed, true
		if l.UpBias != nil {
			t.upBias = f32(op, l.UpBias, w.out)
		}
	} else if l.Act == compute.ClampedSwiGLU {
		panic("cpu: " + op + ": a clamped SwiGLU without a second weight")
	}
	if l.Norm != nil {
		q.normed = slab.Resize(q.normed, n*w.in)
		q.normalise(op, q.normed, t.a, l.Norm, n, w.in)
		t.a = q.normed
	}
	t.form = w.form(q.dev.k)
	if t.form == nil && l.Up != nil {
		t.form = weightOf(op, l.Up).form(q.dev.k)
	}
	if t.form != nil {
		t.acts, t.lda, t.planes = q.round(t.form, t.a, n, w.in, w.DType())
	}
	q.pool.run(q.until, t, t.cut(q.pool))
	runtime.KeepAlive(l)
}

// A form is how rows of activations are rounded for the kernels of a weight format.
type form struct {
	size  func(k, planes int) int // elements of a row
	round func(f *kern.Funcs, dst []uint32, x []float32, planes int)
	// gemm multiplies m rows, lda apart, by panel p of a weight that is not mixed.
	gemm func(f *kern.Funcs, c []float32, ldc int, a []uint32, lda int, b *packed, p, m, k, planes int)
}

// integers is the form for weights that have panels of integers.
var integers = form{
	size: func(k, _ int) int { return kern.Q8ALen(k) },
	round: func(f *kern.Funcs, dst []uint32, x []float32, planes int) {
		f.QuantA(dst, x, planes)
	},
	gemm: func(f *kern.Funcs, c []float32, ldc int, a []uint32, lda int, b *packed, p, m, k, planes int) {
		f.GemmQ8(c, ldc, a, lda, b.q8[p*kern.Q8PanelLen(k):], m, kern.Q8Blocks(k), planes, false)
	},
}

// halves is the form for bfloat16 weights on tiles.
var halves = form{
	size: kern.BF16ALen,
	round: func(f *kern.Funcs, dst []uint32, x []float32, planes int) {
		f.SplitA(dst, x, planes)
	},
	gemm: func(f *kern.Funcs, c []float32, ldc int, a []uint32, lda int, b *packed, p, m, k, planes int) {
		f.GemmSplit(c, ldc, a, lda, b.half[p*kern.BF16PanelLen(k):], m, k, planes, false)
	},
}

// pairs is the form for weights packed as BF16DP.
var pairs = form{
	size: func(k, _ int) int { return kern.PairsALen(k) },
	round: func(_ *kern.Funcs, dst []uint32, x []float32, _ int) {
		kern.RoundPairs(dst, x)
	},
	gemm: func(f *kern.Funcs, c []float32, ldc int, a []uint32, lda int, b *packed, p, m, k, _ int) {
		f.GemmPairs(c, ldc, a, lda, b.half[p*kern.BF16PanelLen(k):], m, k, false)
	},
}

// form returns the form that w needs, or nil if it takes f32 rows.
func (w *weight) form(k *kern.Funcs) *form {
	switch {
	case w.q8 != nil || w.mixed != nil && w.mixed.ints:
		return &integers
	case w.dots:
		return &pairs
	case w.half != nil && k.GemmSplit != nil && !w.plain:
		return &halves
	}
	return nil
}

// roundTask rounds rows of activations.
type roundTask struct {
	form                  *form
	dst                   []uint32
	x                     []float32
	n, k, ld, planes, per int
}

func (t *roundTask) run(w *worker, part int) {
	for r := part * t.per; r < min(t.n, (part+1)*t.per); r++ {
		t.form.round(w.k, t.dst[r*t.ld:][:t.ld], t.x[r*t.k:][:t.k], t.planes)
	}
}

// round returns the n rows of x [n][k] in a form for weights packed as as, ld elements apart, valid
// until the next call.
func (q *Queue) round(f *form, x []float32, n, k int, as compute.DType) (acts []uint32, ld, planes int) {
	planes = q.dev.cfg.planes(as)
	ld = f.size(k, planes)
	t := &q.rounds
	*t = roundTask{form: f, dst: slab.Resize(t.dst, n*ld), x: x, n: n, k: k, ld: ld, planes: planes, per: rowsPerPart(n, k/4)}
	q.run(t, parts(n, t.per))
	return t.dst, ld, planes
}
