package cpu

import (
	"math"

	"talf/compute"
)

type normTask struct {
	dst, x, w []float32
	eps       float32
	n, h, per int
}

func (t *normTask) run(w *worker, part int) {
	for r := part * t.per; r < min(t.n, (part+1)*t.per); r++ {
		x, d := t.x[r*t.h:][:t.h], t.dst[r*t.h:][:t.h]
		inv := invRMS(w, x, t.eps)
		copy(d, x)
		w.k.Scale(d, inv)
		w.k.Mul(d, d, t.w)
	}
}

// invRMS returns 1/√(mean(x²)+eps).
func invRMS(w *worker, x []float32, eps float32) float32 {
	mean := float32(w.k.Dot(x, x) / float32(len(x)))
	return float32(1 / math.Sqrt(float64(mean+eps)))
}

// Norm normalises the rows of x.
func (q *Queue) Norm(dst, x compute.Buffer, norm *compute.Norm, n int) {
	h := len(f32("Norm", norm.Weight, 1))
	q.normalise("Norm", f32("Norm", dst, n*h), f32("Norm", x, n*h), norm, n, h)
}

// normalise sets the n rows of dst [n][h] to those of x [n][h] normalised.
func (q *Queue) normalise(op string, dst, x []float32, norm *compute.Norm, n, h int) {
	w := f32(op, norm.Weight, h)
	check(len(w) == h, op, "elements of the norm's weight", len(w), h)
	t := &q.norm
	*t = normTask{dst: dst, x: x, w: w, eps: norm.Eps, n: n, h: h, per: rowsPerPart(n, h/4)}
	q.pool.run(t, parts(n, t.per))
}
