package cpu

import (
	"math"

	"talf/compute"
)

type normTask struct {
	dst, x    []float32
	norm      normRow
	n, h, per int
}

func (t *normTask) run(w *worker, part int) {
	for r := part * t.per; r < min(t.n, (part+1)*t.per); r++ {
		t.norm.run(w, t.dst[r*t.h:][:t.h], t.x[r*t.h:][:t.h])
	}
}

// A normRow is a norm ready to be applied to rows.
type normRow struct {
	weight, bias []float32 // bias may be nil
	eps          float32
	center       bool
}

// normOf prepares a norm for rows of h elements.
func normOf(op string, norm *compute.Norm, h int) normRow {
	w := f32(op, norm.Weight, h)
	check(len(w) == h, op, "elements of the norm's weight", len(w), h)
	t := normRow{weight: w, eps: norm.Eps, center: norm.Center}
	if norm.Bias != nil {
		t.bias = f32(op, norm.Bias, h)
	}
	return t
}

// run sets d to x normalised; they may be the same.
func (t *normRow) run(w *worker, d, x []float32) {
	copy(d, x)
	if t.center {
		one := w.ones(len(d))
		w.k.Axpy(d, -w.k.Dot(d, one)/float32(len(d)), one)
	}
	w.k.Scale(d, invRMS(w, d, t.eps))
	w.k.Mul(d, d, t.weight)
	if t.bias != nil {
		w.k.Add(d, d, t.bias)
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
	t := &q.norm
	*t = normTask{dst: dst, x: x, norm: normOf(op, norm, h), n: n, h: h, per: rowsPerPart(n, h/4)}
	q.run(t, parts(n, t.per))
}
