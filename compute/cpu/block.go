package cpu

import (
	"fmt"
	"math"
	"runtime"

	"talf/compute"
	"talf/internal/detmath"
	"talf/internal/slab"
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

// mulElements multiplies elements.
type mulElements struct{ dst, a, b []float32 }

func (t *mulElements) run(w *worker, part int) {
	i := part * flat
	n := min(flat, len(t.dst)-i)
	w.k.Mul(t.dst[i:][:n], t.a[i:][:n], t.b[i:][:n])
}

// Mul computes a·b.
func (q *Queue) Mul(dst, a, b compute.Buffer, n int) {
	q.run(&mulElements{f32("Mul", dst, n)[:n], f32("Mul", a, n)[:n], f32("Mul", b, n)[:n]}, parts(n, flat))
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

// A convolution is a checked call of Convolve or ConvolveGrad.
type convolution struct {
	c                                   compute.Taps
	w, groups, ld, n                    int
	y, x, coef, base, dx, dcoef, db, dy []float32
}

func convolutionOf(op string, x, coef, base compute.Buffer, c compute.Taps, n int) convolution {
	v := convolution{c: c, w: width(x), ld: width(coef), n: n}
	check(c.Group > 0 && v.w%c.Group == 0, op, "channels modulo groups", v.w%max(1, c.Group), 0)
	v.groups = v.w / c.Group
	check(c.Block > 0 && n%c.Block == 0, op, "rows modulo those of a block", n%max(1, c.Block), 0)
	if c.Col < 0 || c.Col+2*v.groups > v.ld {
		panic(fmt.Sprintf("cpu: %s: columns [%d,%d) of %d coefficients", op, c.Col, c.Col+2*v.groups, v.ld))
	}
	v.x, v.coef, v.base = f32(op, x, n*v.w), f32(op, coef, n*v.ld), f32(op, base, c.Base+2*v.w)[c.Base:]
	return v
}

// taps returns the coefficients of row t.
func (v *convolution) taps(of []float32, t int) (now, before []float32) {
	k := of[t*v.ld+v.c.Col:][:2*v.groups]
	return k[:v.groups], k[v.groups:]
}

// Convolve convolves the rows of blocks.
func (q *Queue) Convolve(y, x, coef, base compute.Buffer, c compute.Taps, n int) {
	const op = "Convolve"
	v := convolutionOf(op, x, coef, base, c, n)
	v.y = f32(op, y, n*v.w)
	q.run((*convolveTask)(&v), n/c.Block)
}

// ConvolveGrad computes the gradients of Convolve.
func (q *Queue) ConvolveGrad(dx, dcoef, dbase, dy, x, coef, base compute.Buffer, c compute.Taps, n int) {
	const op = "ConvolveGrad"
	v := convolutionOf(op, x, coef, base, c, n)
	v.dx, v.dy, v.dcoef = f32(op, dx, n*v.w), f32(op, dy, n*v.w), f32(op, dcoef, n*v.ld)
	v.db = f32(op, dbase, c.Base+2*v.w)[c.Base:]
	q.run((*convolveGradTask)(&v), v.groups)
}

// convolveTask computes a block a part.
type convolveTask convolution

func (t *convolveTask) run(_ *worker, part int) {
	v := (*convolution)(t)
	for r := part * v.c.Block; r < (part+1)*v.c.Block; r++ {
		y, x := v.y[r*v.w:][:v.w], v.x[r*v.w:][:v.w]
		now, before := v.taps(v.coef, r)
		for i := range y {
			y[i] = float32((v.base[i] + now[i/v.c.Group]) * x[i])
		}
		if r == part*v.c.Block {
			continue
		}
		last := v.x[(r-1)*v.w:][:v.w]
		for i := range y {
			y[i] += float32((v.base[v.w+i] + before[i/v.c.Group]) * last[i])
		}
	}
}

// convolveGradTask computes a group of channels a part, so that no two parts add to the same memory.
type convolveGradTask convolution

func (t *convolveGradTask) run(_ *worker, g int) {
	v := (*convolution)(t)
	lo, hi := g*v.c.Group, (g+1)*v.c.Group
	for r := range v.n {
		now, _ := v.taps(v.coef, r)
		dnow, dbefore := v.taps(v.dcoef, r)
		dy, x, dx := v.dy[r*v.w:][:v.w], v.x[r*v.w:][:v.w], v.dx[r*v.w:][:v.w]
		sum := float32(0)
		for i := lo; i < hi; i++ {
			p := float32(dy[i] * x[i])
			sum += p
			v.db[i] += p
			dx[i] = float32((v.base[i] + now[g]) * dy[i])
		}
		dnow[g], sum = sum, 0
		if r%v.c.Block > 0 {
			last := v.x[(r-1)*v.w:][:v.w]
			for i := lo; i < hi; i++ {
				p := float32(dy[i] * last[i])
				sum += p
				v.db[v.w+i] += p
			}
		}
		dbefore[g] = sum
		if (r+1)%v.c.Block > 0 {
			_, before := v.taps(v.coef, r+1)
			next := v.dy[(r+1)*v.w:][:v.w]
			for i := lo; i < hi; i++ {
				dx[i] += float32((v.base[v.w+i] + before[g]) * next[i])
			}
		}
	}
}

// Candidates finds the largest of the logits that SoftCE computes.
func (q *Queue) Candidates(ids []int32, h, w compute.Buffer, k, n int) {
	const op = "Candidates"
	hidden, v := width(h), w.Shape()[0]
	check(w.Shape()[1] == hidden, op, "columns of w", w.Shape()[1], hidden)
	check(len(ids) >= n*k, op, "len(ids)", len(ids), n*k)
	check(k > 0 && k <= v, op, "candidates", k, min(max(k, 1), v))
	hs := f32(op, h, n*hidden)
	head := q.head(op, w, v, hidden, false)
	s := &q.train.ce
	chunk := head.chunk()
	s.z = slab.Resize(s.z, min(chunk, n)*v)
	for r := 0; r < n; r += chunk {
		m := min(chunk, n-r)
		q.logits(&head, s.z, hs[r*hidden:], m)
		q.run(&largestTask{z: s.z, ids: ids[r*k:], v: v, k: k}, m)
	}
	runtime.KeepAlive(w)
}

// largestTask finds the k largest of a row of logits a part, of equal ones the first.
type largestTask struct {
	z    []float32
	ids  []int32
	v, k int
}

func (t *largestTask) run(_ *worker, part int) {
	z, ids := t.z[part*t.v:][:t.v], t.ids[part*t.k:][:0]
	for i, x := range z {
		if len(ids) == t.k {
			if x <= z[ids[t.k-1]] {
				continue
			}
			ids = ids[:t.k-1]
		}
		at := len(ids)
		for ids = append(ids, 0); at > 0 && z[ids[at-1]] < x; at-- {
			ids[at] = ids[at-1]
		}
		ids[at] = int32(i)
	}
}

// CandidateCE computes the cross-entropy of each row over its candidates.
func (q *Queue) CandidateCE(loss, dh, dw, h, w compute.Buffer, ids []int32, p, scale []float32, k, n int) {
	const op = "CandidateCE"
	hidden, v := width(h), w.Shape()[0]
	check(w.Shape()[1] == hidden, op, "columns of w", w.Shape()[1], hidden)
	check(min(len(ids), len(p)) >= n*k, op, "len(ids), len(p)", min(len(ids), len(p)), n*k)
	check(len(scale) >= n, op, "len(scale)", len(scale), n)
	for _, id := range ids[:n*k] {
		if id < 0 || int(id) >= v {
			panic(fmt.Sprintf("cpu: %s: candidate %d of %d", op, id, v))
		}
	}
	t := &q.train.candidates
	*t = candidateTask{
		loss: f32(op, loss, n), dh: f32(op, dh, n*hidden), h: f32(op, h, n*hidden), w: f32(op, w, v*hidden),
		dz: slab.Resize(t.dz, n*k), ids: ids, p: p, scale: scale, k: k, hidden: hidden,
	}
	q.run(t, n)
	if dw == nil {
		return
	}
	d := f32(op, dw, v*hidden)
	for r := range n { // in order, since rows share candidates
		for i, id := range ids[r*k : (r+1)*k] {
			axpy(d[int(id)*hidden:][:hidden], t.dz[r*k+i], t.h[r*hidden:][:hidden])
		}
	}
}

func axpy(y []float32, a float32, x []float32) {
	for i := range y {
		y[i] += float32(a * x[i])
	}
}

// candidateTask computes a row a part, and leaves the gradients of its logits.
type candidateTask struct {
	loss, dh, h, w, dz, p, scale []float32
	ids                          []int32
	k, hidden                    int
}

func (t *candidateTask) run(w *worker, r int) {
	h, dh := t.h[r*t.hidden:][:t.hidden], t.dh[r*t.hidden:][:t.hidden]
	ids, p, z := t.ids[r*t.k:][:t.k], t.p[r*t.k:][:t.k], t.dz[r*t.k:][:t.k]
	for i, id := range ids {
		z[i] = w.k.Dot(h, t.w[int(id)*t.hidden:][:t.hidden])
	}
	top := w.k.Max(z)
	e := w.buf(0, t.k)
	sum := w.k.ExpSum(e, z, top)
	loss, mass := 0.0, float32(0)
	for i, x := range p {
		loss += float64(float64(x) * (float64(top) + logOf(float64(sum)) - float64(z[i])))
		mass += x
	}
	t.loss[r] = float32(loss)
	clear(dh)
	for i, id := range ids {
		z[i] = t.scale[r] * (float32(mass*e[i]/sum) - p[i])
		w.k.Axpy(dh, z[i], t.w[int(id)*t.hidden:][:t.hidden])
	}
}
