package cpu

import (
	"runtime"

	"talf/compute"
)

// Linear computes l over the rows of x into dst.
func (q *Queue) Linear(dst, x compute.Buffer, l *compute.Linear, epi compute.Epilogue, n int) {
	const op = "Linear"
	w := weightOf(op, l.W)
	t := &q.mul
	*t = mulTask{
		c: f32(op, dst, n*w.out), ldc: w.out,
		a: f32(op, x, n*w.in), ars: w.in, aks: 1,
		b: w.panels, m: n, n: w.out, k: w.in,
		add: epi == compute.Accumulate, act: l.Act,
	}
	if l.Bias != nil {
		t.bias = f32(op, l.Bias, w.out)
	}
	if l.Up != nil {
		up := weightOf(op, l.Up)
		check(up.out == w.out && up.in == w.in, op, "elements of the second weight", up.out*up.in, w.out*w.in)
		t.up = up.panels
		if l.UpBias != nil {
			t.upBias = f32(op, l.UpBias, w.out)
		}
	}
	if l.Norm != nil {
		if need := n * w.in; cap(q.normed) < need {
			q.normed = make([]float32, need+need/4)
		}
		q.normalise(op, q.normed, t.a, l.Norm, n, w.in)
		t.a = q.normed
	}
	t.start(q.pool)
	runtime.KeepAlive(l)
}

func weightOf(op string, w compute.Weight) *weight {
	p, ok := w.(*weight)
	if !ok {
		panic("cpu: " + op + ": a weight of another device")
	}
	return p
}
