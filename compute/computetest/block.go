package computetest

import (
	"math"

	"talf/compute"
)

// blocks returns the part of a device that trains block heads.
func (b *bench) blocks() compute.BlockOps {
	ops := b.q.Abilities().Block
	if ops == nil {
		b.Skip("the device does not train block heads")
	}
	return ops
}

// newBlockBatch is a block head's geometry: two texts with blocks of size rows after some of their
// positions, each row of which sees the text before it, from a window on, and rows of its block,
// all of them or those up to itself.
func newBlockBatch(b *bench, window int, causal bool) *treeBatch {
	const size, heads, kvh, hd = 3, 4, 2, 10
	t := &treeBatch{heads: heads, kvh: kvh, hd: hd}
	t.g = compute.TrainAttention{Heads: heads, KVHeads: kvh, HeadDim: hd, Anc: make([][]int32, size)}
	for _, text := range []struct{ first, from, to int }{{0, 3, 21}, {21, 22, 30}} {
		for at := text.from; at < text.to; at += 1 + at%4 {
			block := int32(len(t.g.First))
			for i := range size {
				first := text.first
				if window > 0 {
					first = max(first, at+i-window+1)
				}
				t.g.First, t.g.Last = append(t.g.First, int32(first)), append(t.g.Last, int32(at-1))
				for j := range size {
					a := block + int32(j)
					if causal && j > i {
						a = -1
					}
					t.g.Anc[j] = append(t.g.Anc[j], a)
				}
			}
		}
	}
	t.q = wide(b.random(len(t.g.First) * heads * hd))
	text, rows := wide(b.random(2*30*kvh*hd)), wide(b.random(2*len(t.g.First)*kvh*hd))
	t.k, t.v = [][]float64{text[:len(text)/2]}, [][]float64{text[len(text)/2:]}
	for range size { // the rows are all levels
		t.k, t.v = append(t.k, rows[:len(rows)/2]), append(t.v, rows[len(rows)/2:])
	}
	return t
}

func blockAttendAgrees(b *bench) {
	b.blocks()
	for _, window := range []int{0, 5} {
		for _, causal := range []bool{false, true} {
			t := newBlockBatch(b, window, causal)
			rows, width := len(t.g.First), t.heads*t.hd
			q, k, v := t.buffers(b)
			for l := range k[2:] {
				k[2+l], v[2+l] = k[1], v[1]
			}
			o, lse := b.alloc(compute.F32, rows, width), b.alloc(compute.F32, rows, t.heads)
			b.train().TreeAttend(o, lse, q, k, v, &t.g)
			wantO, wantL := t.reference()
			b.near("o", b.read(o, len(wantO)), wantO, 1e-5)
			b.near("lse", b.read(lse, len(wantL)), wantL, 2e-6)

			do := b.random(rows * width)
			dq := b.alloc(compute.F32, rows, width)
			var dk, dv []compute.Buffer
			for l := range k {
				if l < 2 {
					dk, dv = append(dk, b.alloc(compute.F32, k[l].Shape()...)), append(dv, b.alloc(compute.F32, v[l].Shape()...))
				} else {
					dk, dv = append(dk, dk[1]), append(dv, dv[1])
				}
			}
			b.train().TreeAttendGrad(dq, dk, dv, b.buffer(do, rows, width), o, lse, q, k, v, &t.g)
			f := func() float64 {
				o, _ := t.reference()
				return weighted(o, do)
			}
			b.gradient("dq", b.read(dq, rows*width), f, t.q, 1e-5)
			for l := range 2 {
				b.gradient("dk", b.read(dk[l], len(t.k[l])), f, t.k[l], 1e-5)
				b.gradient("dv", b.read(dv[l], len(t.v[l])), f, t.v[l], 1e-5)
			}
		}
	}
}

func gateAgrees(b *bench) {
	ops := b.blocks()
	const n = 1003
	gate, x, dy := b.random(n), b.random(n), b.random(n)
	gate[0], gate[1] = 90, -90
	g64, x64 := wide(gate), wide(x)
	ref := func() []float64 {
		y := make([]float64, n)
		for i := range y {
			y[i] = x64[i] / (1 + math.Exp(-g64[i]))
		}
		return y
	}
	product := make([]float64, n)
	for i := range product {
		product[i] = g64[i] * x64[i]
	}
	gb, xb, y := b.buffer(gate, n), b.buffer(x, n), b.alloc(compute.F32, n)
	ops.Mul(y, gb, xb, n)
	b.near("Mul", b.read(y, n), product, 1e-6)
	ops.Gate(y, gb, xb, n)
	b.near("Gate", b.read(y, n), ref(), 1e-6)
	dg, dx := b.alloc(compute.F32, n), b.alloc(compute.F32, n)
	ops.GateGrad(dg, dx, b.buffer(dy, n), gb, xb, n)
	f := func() float64 { return weighted(ref(), dy) }
	b.gradient("dgate", b.read(dg, n), f, g64, 1e-5)
	b.gradient("dx", b.read(dx, n), f, x64, 1e-5)
}

func logisticAgrees(b *bench) {
	ops := b.blocks()
	x, label, scale := []float32{0.3, -2, 5, 80, -80, 1}, []float32{0, 0.25, 1, 0.5, 0.5, 0.9}, []float32{1, 2, 0.5, 1, 1, 0}
	n, x64 := len(x), wide(x)
	ref := func() []float64 {
		loss := make([]float64, n)
		for i, x := range x64 {
			y := float64(label[i])
			loss[i] = y*math.Log1p(math.Exp(-x)) + (1-y)*math.Log1p(math.Exp(x))
		}
		return loss
	}
	loss, dx := b.alloc(compute.F32, n), b.alloc(compute.F32, n)
	ops.Logistic(loss, dx, b.buffer(x, n), label, scale, n)
	b.near("loss", b.read(loss, n), ref(), 1e-6)
	b.gradient("dx", b.read(dx, n), func() float64 { return weighted(ref(), scale) }, x64, 1e-5)
}

func convolveAgrees(b *bench) {
	ops := b.blocks()
	const n, w, group, size = 6, 8, 4, 3
	groups := w / group
	c := compute.Taps{Col: 2 * groups, Group: group, Base: 2 * w, Block: size}
	x, coef, base, dy := b.random(n*w), b.random(n*5*groups), b.random(4*w), b.random(n*w)
	x64, c64, b64 := wide(x), wide(coef), wide(base)
	ref := func() []float64 {
		y := make([]float64, n*w)
		for t := range n {
			for i := range w {
				k := c64[t*5*groups+c.Col:]
				y[t*w+i] = (b64[c.Base+i] + k[i/group]) * x64[t*w+i]
				if t%size > 0 {
					y[t*w+i] += (b64[c.Base+w+i] + k[groups+i/group]) * x64[(t-1)*w+i]
				}
			}
		}
		return y
	}
	xb, cb, bb := b.buffer(x, n, w), b.buffer(coef, n, 5*groups), b.buffer(base, 2, 2, w)
	y := b.alloc(compute.F32, n, w)
	ops.Convolve(y, xb, cb, bb, c, n)
	b.near("Convolve", b.read(y, n*w), ref(), 1e-6)
	dx, dc, db := b.alloc(compute.F32, n, w), b.alloc(compute.F32, n, 5*groups), b.alloc(compute.F32, 2, 2, w)
	ops.ConvolveGrad(dx, dc, db, b.buffer(dy, n, w), xb, cb, bb, c, n)
	f := func() float64 { return weighted(ref(), dy) }
	b.gradient("dx", b.read(dx, n*w), f, x64, 1e-5)
	b.gradient("dcoef", b.read(dc, n*5*groups), f, c64, 1e-5)
	b.gradient("dbase", b.read(db, 4*w), f, b64, 1e-5)
}

func candidatesAgree(b *bench) {
	ops := b.blocks()
	const n, hidden, v, k = 5, 7, 23, 4
	h, w, scale := b.random(n*hidden), b.random(v*hidden), []float32{1, 0.5, 0, 2, 1}
	h64, w64 := wide(h), wide(w)
	logit := func(r, id int) (z float64) {
		for i := range hidden {
			z += h64[r*hidden+i] * w64[id*hidden+i]
		}
		return z
	}
	hb, wb := b.buffer(h, n, hidden), b.buffer(w, v, hidden)
	ids := make([]int32, n*k)
	ops.Candidates(ids, hb, wb, k, n)
	for r := range n {
		above := 0
		for id := range v {
			if logit(r, id) > logit(r, int(ids[r*k+k-1]))+1e-6 {
				above++
			}
		}
		for i := range k - 1 {
			if logit(r, int(ids[r*k+i])) < logit(r, int(ids[r*k+i+1]))-1e-6 {
				b.Errorf("candidates %v of row %d are not in order", ids[r*k:][:k], r)
			}
		}
		if above > k-1 {
			b.Errorf("%d of %d tokens are likelier than the last candidate of row %d", above, v, r)
		}
	}
	p := make([]float32, n*k)
	for i := range p {
		p[i] = b.r.Float32()
	}
	ref := func() []float64 {
		loss := make([]float64, n)
		for r := range n {
			sum := 0.0
			for _, id := range ids[r*k:][:k] {
				sum += math.Exp(logit(r, int(id)))
			}
			for i, id := range ids[r*k:][:k] {
				loss[r] += float64(p[r*k+i]) * (math.Log(sum) - logit(r, int(id)))
			}
		}
		return loss
	}
	loss, dh, dw := b.alloc(compute.F32, n), b.alloc(compute.F32, n, hidden), b.alloc(compute.F32, v, hidden)
	ops.CandidateCE(loss, dh, dw, hb, wb, ids, p, scale, k, n)
	b.near("loss", b.read(loss, n), ref(), 1e-5)
	f := func() float64 { return weighted(ref(), scale) }
	b.gradient("dh", b.read(dh, n*hidden), f, h64, 1e-5)
	b.gradient("dw", b.read(dw, v*hidden), f, w64, 1e-5)
}

// blockProgram is what training a block head needs beside a Llama's operations.
func blockProgram(b *bench) []result {
	ops := b.q.Abilities().Block
	if ops == nil {
		return nil
	}
	var out []result
	put := func(name string, buf compute.Buffer) {
		n := 1
		for _, s := range buf.Shape() {
			n *= s
		}
		out = append(out, result{name, b.read(buf, n)})
	}
	for _, causal := range []bool{false, true} {
		t := newBlockBatch(b, 5, causal)
		rows, width := len(t.g.First), t.heads*t.hd
		q, k, v := t.buffers(b)
		for l := range k[2:] {
			k[2+l], v[2+l] = k[1], v[1]
		}
		o, lse, dq := b.alloc(compute.F32, rows, width), b.alloc(compute.F32, rows, t.heads), b.alloc(compute.F32, rows, width)
		var dk, dv []compute.Buffer
		for l := range k {
			dk, dv = append(dk, b.alloc(compute.F32, k[min(l, 1)].Shape()...)), append(dv, b.alloc(compute.F32, v[min(l, 1)].Shape()...))
			dk[l], dv[l] = dk[min(l, 1)], dv[min(l, 1)]
		}
		b.train().TreeAttend(o, lse, q, k, v, &t.g)
		b.train().TreeAttendGrad(dq, dk, dv, b.buffer(b.random(rows*width), rows, width), o, lse, q, k, v, &t.g)
		put("TreeAttend of blocks", o)
		put("dq of blocks", dq)
		for l := range 2 {
			put("dk of blocks", dk[l])
			put("dv of blocks", dv[l])
		}
	}
	const n, h, v, k, size = 60, 96, 700, 9, 6
	x, dy, gate := b.buffer(b.random(n*h), n, h), b.buffer(b.random(n*h), n, h), b.buffer(b.random(n*h), n, h)
	y, dx, dgate := b.alloc(compute.F32, n, h), b.alloc(compute.F32, n, h), b.alloc(compute.F32, n, h)
	ops.Gate(y, gate, x, n*h)
	put("Gate", y)
	ops.GateGrad(dgate, dx, dy, gate, x, n*h)
	put("dgate", dgate)
	put("dx of Gate", dx)
	ops.Mul(y, dy, x, n*h)
	put("Mul", y)
	c := compute.Taps{Group: 4, Block: size}
	coef, base := b.buffer(b.random(n*2*h/c.Group), n, 2*h/c.Group), b.buffer(b.random(2*h), 2, h)
	ops.Convolve(y, x, coef, base, c, n)
	put("Convolve", y)
	dcoef, dbase := b.alloc(compute.F32, n, 2*h/c.Group), b.alloc(compute.F32, 2, h)
	ops.ConvolveGrad(dx, dcoef, dbase, dy, x, coef, base, c, n)
	put("dx of Convolve", dx)
	put("dcoef", dcoef)
	put("dbase", dbase)
	w, ids := b.buffer(b.random(v*h), v, h), make([]int32, n*k)
	ops.Candidates(ids, x, w, k, n)
	p, scale := b.random(n*k), make([]float32, n)
	for i := range scale {
		scale[i] = 0.25
	}
	loss, dw := b.alloc(compute.F32, n), b.alloc(compute.F32, v, h)
	ops.CandidateCE(loss, dx, dw, x, w, ids, p, scale, k, n)
	put("CandidateCE loss", loss)
	put("CandidateCE dh", dx)
	put("CandidateCE dw", dw)
	dl := b.alloc(compute.F32, n)
	ops.Logistic(loss, dl, b.buffer(b.random(n), n), p, scale, n)
	put("Logistic loss", loss)
	put("Logistic dx", dl)
	return out
}
