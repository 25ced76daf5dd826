package computetest

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"talf/compute"
)

// derivative returns ∂f/∂x[i] of a float64 function by central differences. With values
// of size 1 and a step of 1e-5 its error is about 1e-10.
func derivative(f func() float64, x []float64, i int) float64 {
	const h = 1e-5
	old := x[i]
	x[i] = old + h
	up := f()
	x[i] = old - h
	down := f()
	x[i] = old
	return (up - down) / (2 * h)
}

func weighted(y []float64, w []float32) float64 {
	s := 0.0
	for i := range y {
		s += y[i] * float64(w[i])
	}
	return s
}

// gradient compares got with the derivative of f with respect to a sample of x.
func (b *bench) gradient(what string, got []float32, f func() float64, x []float64, tol float64) {
	b.Helper()
	sample := 40
	if testing.Short() {
		sample = 10
	}
	step := max(1, len(x)/sample)
	var g []float32
	var want []float64
	for i := b.r.IntN(step); i < len(x); i += step {
		g, want = append(g, got[i]), append(want, derivative(f, x, i))
	}
	b.near(what, g, want, tol)
}

func gemmAgrees(b *bench) {
	ops := b.train()
	for _, s := range []struct{ m, n, k int }{{1, 1, 1}, {5, 33, 7}, {64, 97, 20}, {70, 32, 300}, {130, 70, 65}, {33, 200, 1}, {3, 2, 0}, {130, 34, 515}} {
		for mode := range 8 {
			at, bt, beta := mode&1 != 0, mode&2 != 0, float32(mode>>2)
			const offA, offB, offC, pad = 3, 5, 7, 2
			mat := func(off, rows, cols int, t bool) (compute.Mat, []float32) {
				sr, sc := rows, cols
				if t {
					sr, sc = cols, rows
				}
				x := b.random(off + sr*(sc+pad))
				return compute.Mat{Buf: b.buffer(x, len(x)), Off: off, Rows: rows, Cols: cols, Stride: sc + pad, T: t}, x
			}
			at64 := func(m compute.Mat, x []float32, i, j int) float64 {
				if m.T {
					i, j = j, i
				}
				return float64(x[m.Off+i*m.Stride+j])
			}
			ma, xa := mat(offA, s.m, s.k, at)
			mb, xb := mat(offB, s.k, s.n, bt)
			mc, xc := mat(offC, s.m, s.n, false)
			want := wide(xc)
			for i := range s.m {
				for j := range s.n {
					sum := float64(beta) * want[offC+i*mc.Stride+j]
					for k := range s.k {
						sum += at64(ma, xa, i, k) * at64(mb, xb, k, j)
					}
					want[offC+i*mc.Stride+j] = sum
				}
			}
			ops.Gemm(mc, ma, mb, beta)
			// What lies between c's rows must be unchanged, too.
			b.near(fmt.Sprintf("Gemm %v, transposed %v %v, beta %g", s, at, bt, beta), b.read(mc.Buf, len(xc)), want, 1e-5)
		}
	}
}

func sumsAgree(b *bench) {
	ops := b.train()
	const n, w = 70, 133
	x, y, bias := b.random(n*w), b.random(n*w), b.random(w)
	xb := b.buffer(x, n, w)
	dst := b.alloc(compute.F32, n, w)
	ops.Add(dst, xb, b.buffer(y, n, w), n*w-1)
	want := make([]float64, n*w)
	for i := range n*w - 1 {
		want[i] = float64(x[i]) + float64(y[i])
	}
	b.near("Add", b.read(dst, n*w), want, 1e-7)

	sum := b.buffer(b.random(w), w)
	ops.SumRows(sum, xb, n)
	want = make([]float64, w)
	for i, v := range x {
		want[i%w] += float64(v)
	}
	b.near("SumRows", b.read(sum, w), want, 1e-6)

	ops.AddBias(xb, b.buffer(bias, w), n-1)
	want = wide(x)
	for i := range (n - 1) * w {
		want[i] += float64(bias[i%w])
	}
	b.near("AddBias", b.read(xb, n*w), want, 1e-7)

	big := b.random(20001)
	ss := 0.0
	for _, v := range big {
		ss += float64(v) * float64(v)
	}
	if got := ops.SumSquares(b.buffer(big, len(big))); math.Abs(got-ss) > 1e-5*ss {
		b.Fatalf("SumSquares = %g, want %g", got, ss)
	}

	const v = 9
	table, dy := b.random(v*w), b.random(n*(w+4))
	want = wide(table)
	ids := make([]int32, n)
	for r := range ids {
		ids[r] = int32(b.r.IntN(v))
		for i := range w {
			want[int(ids[r])*w+i] += float64(dy[r*(w+4)+3+i])
		}
	}
	tb := b.buffer(table, v, w)
	ops.EmbedGrad(tb, b.buffer(dy, n, w+4), 3, ids)
	b.near("EmbedGrad", b.read(tb, v*w), want, 1e-6)

	mem := []float32{1, 2, 3, 4}
	hb := ops.Host(mem, 2, 2)
	ops.Add(hb, hb, hb, 4)
	if err := b.q.Sync(b.Context()); err != nil {
		b.Fatal(err)
	}
	if got := b.read(hb, 4); got[3] != 8 {
		b.Fatalf("sum in a host buffer is %v", got)
	}
}

func normGrad(b *bench) {
	ops := b.train()
	const n, h, eps = 5, 37, 1e-5
	x, w, dy := b.random(n*h), b.random(h), b.random(n*h)
	dx, dw := b.alloc(compute.F32, n, h), b.alloc(compute.F32, h)
	ops.NormGrad(dx, dw, b.buffer(dy, n, h), b.buffer(x, n, h), b.buffer(w, h), eps, n)
	x64, w64 := wide(x), wide(w)
	f := func() float64 { return weighted(normRef(x64, w64, eps), dy) }
	gx := b.read(dx, n*h)
	b.gradient("dx", gx, f, x64, 1e-5)
	b.gradient("dw", b.read(dw, h), f, w64, 1e-5)

	inPlace := b.buffer(dy, n, h)
	ops.NormGrad(inPlace, nil, inPlace, b.buffer(x, n, h), b.buffer(w, h), eps, n)
	b.same("dx in place of dy", b.read(inPlace, n*h), gx)
}

func ropeTurns(b *bench) {
	ops := b.train()
	const n, heads, hd, ld, col, table = 6, 3, 10, 37, 4, 9
	var rope []float32
	for p := range table {
		for i := range hd {
			a := float64(p) / float64(1+i%(hd/2))
			if i < hd/2 {
				rope = append(rope, float32(math.Cos(a)))
			} else {
				rope = append(rope, float32(math.Sin(a)))
			}
		}
	}
	x, pos := b.random(n*ld), []int32{8, 0, 3, 3, 5, 1}
	rb, xb := b.buffer(rope, table, hd), b.buffer(x, n, ld)
	ops.Rope(xb, col, heads, hd, rb, pos, false, n)
	want := wide(x)
	for r, p := range pos {
		for h := range heads {
			for i := range hd / 2 {
				c, s := float64(rope[int(p)*hd+i]), float64(rope[int(p)*hd+hd/2+i])
				at := r*ld + col + h*hd + i
				u, v := want[at], want[at+hd/2]
				want[at], want[at+hd/2] = u*c-v*s, v*c+u*s
			}
		}
	}
	b.near("Rope", b.read(xb, n*ld), want, 1e-6)
	ops.Rope(xb, col, heads, hd, rb, pos, true, n)
	b.near("Rope and back", b.read(xb, n*ld), wide(x), 1e-6)
}

func swigluGrad(b *bench) {
	ops := b.train()
	const n, f = 4, 41
	gu, dy := b.random(2*n*f), b.random(n*f)
	d := b.alloc(compute.F32, n, 2*f)
	ops.SwiGLUGrad(d, b.buffer(dy, n, f), b.buffer(gu, n, 2*f), n)
	g64 := wide(gu)
	b.gradient("dgu", b.read(d, 2*n*f), func() float64 { return weighted(swigluRef(g64, f), dy) }, g64, 1e-5)
}

// A treeBatch is TALF's geometry: sequences of positions on level 0 and width rows
// a position on each deeper level, random ancestors among those of the position.
type treeBatch struct {
	heads, kvh, hd int
	q              []float64 // of the last level
	k, v           [][]float64
	g              compute.TrainAttention
}

func newTreeBatch(b *bench, seqs []int, levels, width, heads, kvh, hd int) *treeBatch {
	t := &treeBatch{heads: heads, kvh: kvh, hd: hd}
	t.g = compute.TrainAttention{Heads: heads, KVHeads: kvh, HeadDim: hd, Anc: make([][]int32, levels)}
	rows, first := 0, 0
	for _, n := range seqs {
		per := 1
		if levels > 0 {
			per = width
		}
		for p := range n {
			for i := range per {
				t.g.First = append(t.g.First, int32(first))
				t.g.Last = append(t.g.Last, int32(first+p))
				for l := range levels {
					a := (first+p)*width + b.r.IntN(width)
					if l == levels-1 {
						a = (first+p)*width + i
					}
					t.g.Anc[l] = append(t.g.Anc[l], int32(a))
				}
			}
		}
		first += n
		rows += n * per
	}
	t.q = wide(b.random(rows * heads * hd))
	for l := range levels + 1 {
		n := first
		if l > 0 {
			n *= width
		}
		t.k, t.v = append(t.k, wide(b.random(n*kvh*hd))), append(t.v, wide(b.random(n*kvh*hd)))
	}
	return t
}

// reference computes o and lse.
func (t *treeBatch) reference() (o, lse []float64) {
	rows := len(t.g.First)
	o, lse = make([]float64, rows*t.heads*t.hd), make([]float64, rows*t.heads)
	for r := range rows {
		for h := range t.heads {
			kvh := h / (t.heads / t.kvh)
			q := t.q[(r*t.heads+h)*t.hd:][:t.hd]
			var scores []float64
			var values [][]float64
			see := func(level int, row int32) {
				k := t.k[level][(int(row)*t.kvh+kvh)*t.hd:][:t.hd]
				s := 0.0
				for i := range q {
					s += q[i] * k[i]
				}
				scores = append(scores, s/math.Sqrt(float64(t.hd)))
				values = append(values, t.v[level][(int(row)*t.kvh+kvh)*t.hd:][:t.hd])
			}
			for p := t.g.First[r]; p <= t.g.Last[r]; p++ {
				see(0, p)
			}
			for l, a := range t.g.Anc {
				if a[r] >= 0 {
					see(l+1, a[r])
				}
			}
			sum := 0.0
			for _, s := range scores {
				sum += math.Exp(s)
			}
			for j, s := range scores {
				for i := range t.hd {
					o[(r*t.heads+h)*t.hd+i] += math.Exp(s) / sum * values[j][i]
				}
			}
			lse[r*t.heads+h] = math.Log(sum)
		}
	}
	return o, lse
}

func narrow(x []float64) []float32 {
	y := make([]float32, len(x))
	for i, v := range x {
		y[i] = float32(v)
	}
	return y
}

func (t *treeBatch) buffers(b *bench) (q compute.Buffer, k, v []compute.Buffer) {
	q = b.buffer(narrow(t.q), len(t.g.First), t.heads*t.hd)
	for l := range t.k {
		n := len(t.k[l]) / (t.kvh * t.hd)
		k = append(k, b.buffer(narrow(t.k[l]), n, t.kvh*t.hd))
		v = append(v, b.buffer(narrow(t.v[l]), n, t.kvh*t.hd))
	}
	return q, k, v
}

func treeAttendAgrees(b *bench) {
	for _, g := range slices.Concat(b.geometries(variation{}), wideGeometries[:1]) {
		for levels := range 3 {
			t := newTreeBatch(b, []int{5, 1, 70}, levels, 4, g.heads, g.kvHeads, g.headDim)
			rows := len(t.g.First)
			q, k, v := t.buffers(b)
			o, lse := b.alloc(compute.F32, rows, g.heads*g.headDim), b.alloc(compute.F32, rows, g.heads)
			b.train().TreeAttend(o, lse, q, k, v, &t.g)
			wantO, wantL := t.reference()
			what := fmt.Sprintf("%v on level %d", g, levels)
			b.near(what+": o", b.read(o, len(wantO)), wantO, 1e-5)
			b.near(what+": lse", b.read(lse, len(wantL)), wantL, 2e-6)
		}
	}
}

func treeAttendGrad(b *bench) {
	for _, g := range []geometry{{2, 1, 8}, {2, 2, 6}, {1, 1, 34}, {2, 1, 130}} {
		for levels := range 3 {
			treeGradAgrees(b, g, []int{3, 1, 6}, levels)
		}
	}
	treeGradAgrees(b, geometry{1, 1, 134}, []int{17, 2}, 1) // more keys than a tile of a device
}

// treeGradAgrees compares the gradients of one level of texts of these lengths.
func treeGradAgrees(b *bench, g geometry, texts []int, levels int) {
	t := newTreeBatch(b, texts, levels, 4, g.heads, g.kvHeads, g.headDim)
	rows := len(t.g.First)
	size := rows * g.heads * g.headDim
	q, k, v := t.buffers(b)
	o, lse := b.alloc(compute.F32, rows, g.heads*g.headDim), b.alloc(compute.F32, rows, g.heads)
	b.train().TreeAttend(o, lse, q, k, v, &t.g)
	do := b.random(size)
	dq := b.buffer(b.random(size), rows, g.heads*g.headDim)
	var dk, dv []compute.Buffer
	const was = 0.5 // dk and dv are added to
	for l := range t.k {
		x := make([]float32, len(t.k[l]))
		for i := range x {
			x[i] = was
		}
		dk = append(dk, b.buffer(x, k[l].Shape()...))
		dv = append(dv, b.buffer(x, k[l].Shape()...))
	}
	b.train().TreeAttendGrad(dq, dk, dv, b.buffer(do, rows, g.heads*g.headDim), o, lse, q, k, v, &t.g)
	f := func() float64 {
		o, _ := t.reference()
		return weighted(o, do)
	}
	what := fmt.Sprintf("%v on level %d", g, levels)
	b.gradient(what+": dq", b.read(dq, size), f, t.q, 1e-5)
	for l := range t.k {
		gk, gv := b.read(dk[l], len(t.k[l])), b.read(dv[l], len(t.k[l]))
		for i := range gk {
			gk[i] -= was
			gv[i] -= was
		}
		b.gradient(fmt.Sprintf("%s: dk[%d]", what, l), gk, f, t.k[l], 1e-5)
		b.gradient(fmt.Sprintf("%s: dv[%d]", what, l), gv, f, t.v[l], 1e-5)
	}
}

func softCERef(h, w []float64, l *compute.SoftLabels, n, hidden, v int) []float64 {
	loss := make([]float64, n)
	for r := range n {
		z, sum := make([]float64, v), 0.0
		for o := range v {
			for i := range hidden {
				z[o] += h[r*hidden+i] * w[o*hidden+i]
			}
			sum += math.Exp(z[o])
		}
		lse := math.Log(sum)
		if l.Full != nil {
			for o := range v {
				loss[r] -= float64(l.Full[r*v+o]) * (z[o] - lse)
			}
			continue
		}
		label := make([]bool, v)
		for i := range l.K {
			if id := l.IDs[r*l.K+i]; id >= 0 {
				loss[r] -= float64(l.Prob[r*l.K+i]) * (z[id] - lse)
				label[id] = true
			}
		}
		if l.Tail != nil {
			rest := 0.0
			for o := range v {
				if !label[o] {
					rest += math.Exp(z[o] - lse)
				}
			}
			loss[r] -= float64(l.Tail[r]) * math.Log(rest)
		}
	}
	return loss
}

// labels returns random soft labels: mode 0 ignores the tail, 1 has one, 2 is full.
func (b *bench) labels(mode, n, v, k int) *compute.SoftLabels {
	l := &compute.SoftLabels{}
	if mode == 2 {
		l.Full = make([]float32, n*v)
		for r := range n {
			for range 5 {
				l.Full[r*v+b.r.IntN(v)] += 0.2
			}
		}
		return l
	}
	l.K, l.IDs, l.Prob = k, make([]int32, n*k), make([]float32, n*k)
	if mode == 1 {
		l.Tail = make([]float32, n)
	}
	for r := range n {
		left := float32(1)
		for i, id := range b.r.Perm(v)[:k] {
			l.IDs[r*k+i], l.Prob[r*k+i] = int32(id), left/2
			left /= 2
		}
		if mode == 1 {
			l.Tail[r] = left
			if r%3 == 1 {
				l.IDs[r*k+k-1], l.Prob[r*k+k-1] = -1, 0
			}
		}
	}
	return l
}

func softCEAgrees(b *bench) {
	const hidden, k = 11, 4
	for _, s := range []struct{ n, v int }{{7, 97}, {1, 32}, {300, 45}} {
		for mode := range 3 {
			h, w := b.random(s.n*hidden), b.random(s.v*hidden)
			l := b.labels(mode, s.n, s.v, k)
			scale := make([]float32, s.n)
			for i := range scale {
				scale[i] = float32(i%4) / 4
			}
			h64, w64 := wide(h), wide(w)
			what := fmt.Sprintf("%d rows of %d, labels of mode %d", s.n, s.v, mode)
			f := func() float64 { return weighted(softCERef(h64, w64, l, s.n, hidden, s.v), scale) }

			hb := b.buffer(h, s.n, hidden)
			run := func(w compute.Buffer, dw compute.Buffer) (loss, dh []float32) {
				lb, db := b.buffer(b.random(s.n), s.n), b.buffer(b.random(s.n*hidden), s.n, hidden)
				b.train().SoftCE(lb, db, dw, hb, w, l, scale, s.n)
				return b.read(lb, s.n), b.read(db, s.n*hidden)
			}
			dwb := b.alloc(compute.F32, s.v, hidden)
			wb := b.buffer(w, s.v, hidden)
			loss, dh := run(wb, dwb)
			b.near(what+": loss", loss, softCERef(h64, w64, l, s.n, hidden, s.v), 1e-5)
			b.gradient(what+": dh", dh, f, h64, 1e-5)
			dw := b.read(dwb, s.v*hidden)
			b.gradient(what+": dw", dw, f, w64, 1e-5)
			for r := range scale {
				for i := range hidden {
					if scale[r] == 0 && dh[r*hidden+i] != 0 {
						b.Fatalf("%s: row %d has scale 0 and gradient %g", what, r, dh[r*hidden+i])
					}
				}
			}
			// A weight instead of the buffer, and dw added to itself.
			if pw, ok := b.weight(w, s.v, hidden).(compute.Buffer); ok {
				loss2, dh2 := run(pw, nil)
				b.same(what+": loss with a packed weight", loss2, loss)
				b.same(what+": dh with a packed weight", dh2, dh)
			} else {
				b.Fatal("a weight is not a buffer")
			}
			run(wb, dwb)
			twice := wide(dw)
			for i := range twice {
				twice[i] *= 2
			}
			b.near(what+": dw twice", b.read(dwb, s.v*hidden), twice, 1e-6)
		}
	}
	// A model that is sure of its labels leaves the tail bucket empty.
	l := &compute.SoftLabels{K: 1, IDs: []int32{0}, Prob: []float32{0.9}, Tail: []float32{0.1}}
	lb, db := b.alloc(compute.F32, 1), b.alloc(compute.F32, 1, 1)
	b.train().SoftCE(lb, db, nil, b.buffer([]float32{1}, 1, 1), b.buffer([]float32{500, -500, -500}, 3, 1), l, []float32{1}, 1)
	for _, x := range append(b.read(lb, 1), b.read(db, 1)...) {
		if math.IsNaN(float64(x)) || math.IsInf(float64(x), 0) {
			b.Fatalf("a sure model: loss or gradient %g", x)
		}
	}
}

func smoothL1Agrees(b *bench) {
	const n, h = 5, 29
	y, t, scale := b.random(n*h), b.random(n*h), []float32{1, 0.5, 0, 2, 1}
	for _, l1 := range []bool{false, true} {
		y64 := wide(y)
		ref := func() []float64 {
			loss := make([]float64, n)
			for i := range y64 {
				d := math.Abs(y64[i] - float64(t[i]))
				if !l1 && d < 1 {
					d = d * d / 2
				} else if !l1 {
					d -= 0.5
				}
				loss[i/h] += d / h
			}
			return loss
		}
		lb, db := b.alloc(compute.F32, n), b.alloc(compute.F32, n, h)
		b.train().SmoothL1(lb, db, b.buffer(y, n, h), b.buffer(t, n, h), scale, l1, n)
		b.near("loss", b.read(lb, n), ref(), 1e-6)
		b.gradient("dy", b.read(db, n*h), func() float64 { return weighted(ref(), scale) }, y64, 1e-5)
	}
}

func adamWAgrees(b *bench) {
	const n = 20003
	p, m, v := b.random(n), make([]float32, n), make([]float32, n)
	pb, mb, vb := b.buffer(p, n), b.buffer(m, n), b.buffer(v, n)
	p64, m64, v64 := wide(p), wide(m), wide(v)
	h := compute.AdamW{LR: 0.01, Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, Decay: 0.1, Scale: 0.7}
	for h.Step = 1; h.Step <= 4; h.Step++ {
		g := b.random(n)
		b.train().AdamW(pb, b.buffer(g, n), mb, vb, h)
		b1, b2 := float64(h.Beta1), float64(h.Beta2)
		for i := range g {
			gi := float64(g[i]) * float64(h.Scale)
			m64[i] = b1*m64[i] + (1-b1)*gi
			v64[i] = b2*v64[i] + (1-b2)*gi*gi
			p64[i] -= float64(h.LR) * float64(h.Decay) * p64[i]
			mh, vh := m64[i]/(1-math.Pow(b1, float64(h.Step))), v64[i]/(1-math.Pow(b2, float64(h.Step)))
			p64[i] -= float64(h.LR) * mh / (math.Sqrt(vh) + float64(h.Eps))
		}
	}
	b.near("p", b.read(pb, n), p64, 1e-6)
	b.near("m", b.read(mb, n), m64, 1e-6)
	b.near("v", b.read(vb, n), v64, 1e-6)
}
