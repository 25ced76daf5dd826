package cpu

import (
	"math"

	"talf/compute"
	"talf/internal/detmath"
)

// sigmoidTask is Gate or, with dy, GateGrad.
type sigmoidTask struct{ dst, dgate, dy, gate, x []float32 }

func (t *sigmoidTask) run(w *worker, part int) {
	i := part * flat
	n := min(flat, len(t.x)-i)
	s, dst, gate, x := w.buf(0, n), t.dst[i:][:n], t.gate[i:][:n], t.x[i:][:n]
	copy(s, gate)
	w.k.Scale(s, -1)
	w.k.Exp(s, s)
	for j, e := range s {
		s[j] = 1 / (1 + e)
	}
	if t.dy == nil {
		w.k.Mul(dst, s, x)
		return
	}
	dy, dgate := t.dy[i:][:n], t.dgate[i:][:n]
	for j, s := range s {
		dgate[j] = dy[j] * x[j] * s * (1 - s)
	}
	w.k.Mul(dst, s, dy)
}

// Gate computes σ(gate)·x.
func (q *Queue) Gate(dst, gate, x compute.Buffer, n int) {
	const op = "Gate"
	t := &q.train.sigmoid
	*t = sigmoidTask{dst: f32(op, dst, n)[:n], gate: f32(op, gate, n)[:n], x: f32(op, x, n)[:n]}
	q.run(t, parts(n, flat))
}

// GateGrad computes the gradients of Gate.
func (q *Queue) GateGrad(dgate, dx, dy, gate, x compute.Buffer, n int) {
	const op = "GateGrad"
	t := &q.train.sigmoid
	*t = sigmoidTask{
		dst: f32(op, dx, n)[:n], dgate: f32(op, dgate, n)[:n], dy: f32(op, dy, n)[:n],
		gate: f32(op, gate, n)[:n], x: f32(op, x, n)[:n],
	}
	q.run(t, parts(n, flat))
}

// Logistic computes the loss of each row and its gradient.
func (q *Queue) Logistic(loss, dx, x compute.Buffer, label, scale []float32, n int) {
	const op = "Logistic"
	check(len(label) >= n, op, "len(label)", len(label), n)
	check(len(scale) >= n, op, "len(scale)", len(scale), n)
	l, d := f32(op, loss, n), f32(op, dx, n)
	for r, x := range f32(op, x, n)[:n] {
		x, y := float64(x), float64(label[r])
		e := detmath.Exp(-math.Abs(x))
		l[r] = float32(max(x, 0) - float64(x*y) + detmath.Log(1+e))
		s := 1 / (1 + e)
		if x < 0 {
			s = e / (1 + e)
		}
		d[r] = scale[r] * float32(s-y)
	}
}
