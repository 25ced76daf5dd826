package cpu

import (
	"runtime"

	"talf/compute"
	"talf/compute/cpu/kern"
)

// Linear computes l over the rows of x into dst.
func (q *Queue) Linear(dst, x compute.Buffer, l *compute.Linear, epi compute.Epilogue, n int) {
	const op = "Linear"
	w := weightOf(op, l.W)
	t := &q.mul
	*t = mulTask{
		c: f32(op, dst, n*w.out), ldc: w.out,
		a: f32(op, x, n*w.in), ars: w.in, aks: 1,
		b: w.packed, m: n, n: w.out, k: w.in,
		add: epi == compute.Accumulate, act: l.Act,
	}
	if l.Bias != nil {
		t.bias = f32(op, l.Bias, w.out)
	}
	if l.Up != nil {
		up := weightOf(op, l.Up)
		check(up.out == w.out && up.in == w.in, op, "elements of the second weight", up.out*up.in, w.out*w.in)
		t.up, t.gated = up.packed, true
		if l.UpBias != nil {
			t.upBias = f32(op, l.UpBias, w.out)
		}
	}
	if l.Norm != nil {
		q.normed = grow(q.normed, n*w.in)
		q.normalise(op, q.normed, t.a, l.Norm, n, w.in)
		t.a = q.normed
	}
	if w.q8 != nil {
		t.qa, t.planes = q.quantise(t.a, n, w.in), q.dev.planes()
	}
	t.start(q.pool)
	runtime.KeepAlive(l)
}

// quantTask rounds rows of activations to the integers that Q8 weights are
// multiplied by.
type quantTask struct {
	dst               []uint32
	x                 []float32
	n, k, planes, per int
}

func (t *quantTask) run(w *worker, part int) {
	ld := kern.Q8ALen(t.k)
	for r := part * t.per; r < min(t.n, (part+1)*t.per); r++ {
		w.k.QuantA(t.dst[r*ld:][:ld], t.x[r*t.k:][:t.k], t.planes)
	}
}

// quantise returns the n rows of x [n][k] as integers, valid until the next call.
func (q *Queue) quantise(x []float32, n, k int) []uint32 {
	t := &q.quant
	*t = quantTask{dst: grow(t.dst, n*kern.Q8ALen(k)), x: x, n: n, k: k, planes: q.dev.planes(), per: rowsPerPart(n, k/4)}
	q.pool.run(t, parts(n, t.per))
	return t.dst
}

// planes returns how many bytes an activation takes in products with Q8 weights.
func (d *Device) planes() int {
	if d.cfg.OnePlane {
		return 1
	}
	return 2
}
