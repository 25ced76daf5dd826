package computetest

import (
	"fmt"
	"math"
	"slices"

	"talf/compute"
)

// variantsAgree compares the operations of a compute.Varier with the reference, and the bits of
// a row alone with those beside others.
func variantsAgree(b *bench) {
	v := b.q.Abilities().Variants
	if v == nil {
		b.Skip("the device has no variants")
	}
	gatedAgree(b)
	for _, h := range []int{1, 30, 64, 333} {
		for _, n := range []int{1, 5, 40} {
			weight, bias := b.random(h), b.random(h)
			for name, norm := range map[string]*compute.Norm{
				"without a norm": nil,
				"RMSNorm":        {Weight: b.buffer(weight, h), Eps: 1e-5},
				"LayerNorm":      {Weight: b.buffer(weight, h), Bias: b.buffer(bias, h), Eps: 1e-5, Center: true},
			} {
				for _, scale := range []float32{1, 0.22} {
					dst, x := b.random(n*h), b.random(n*h)
					d := b.buffer(dst, n, h)
					v.AddScaled(d, b.buffer(x, n, h), norm, scale, n)
					got := b.read(d, n*h)
					var want []float64
					for r := range n {
						y := wide(x[r*h:][:h])
						switch {
						case norm == nil:
						case norm.Center:
							y = layerNormRef(y, wide(weight), wide(bias), float64(float32(1e-5)))
						default:
							y = normRef(y, wide(weight), float64(float32(1e-5)))
						}
						for i := range y {
							want = append(want, float64(dst[r*h+i])+float64(scale)*y[i])
						}
					}
					what := fmt.Sprintf("AddScaled of %d rows of %d by %v, %s", n, h, scale, name)
					b.near(what, got, want, 4e-6)
					last := b.buffer(dst[(n-1)*h:], 1, h)
					v.AddScaled(last, b.buffer(x[(n-1)*h:], 1, h), norm, scale, 1)
					b.same(what+", the last row alone", b.read(last, h), got[(n-1)*h:])
				}
			}
			columnsAgree(b, n, h, weight)
			scatterAgrees(b, n, h)
			for _, c := range []struct{ scale, limit float32 }{{0.0625, 0}, {1, 5}, {1, 30}, {7, 2}} {
				capAgrees(b, n, h, c.scale, c.limit)
			}
		}
	}
}

// gatedAgree compares the gated products of variants with the reference applied to the bits of their two products.
func gatedAgree(b *bench) {
	const n, out, in = 5, 33, 20
	x, dst := b.buffer(b.random(n*in), n, in), b.alloc(compute.F32, n, out)
	w, up := b.weight(b.random(out*in), out, in), b.weight(b.random(out*in), out, in)
	product := func(l compute.Linear) []float32 {
		b.q.Linear(dst, x, &l, compute.Store, n)
		return b.read(dst, n*out)
	}
	gate, second := product(compute.Linear{W: w}), product(compute.Linear{W: up})
	const limit = 3
	tanh, clamped := make([]float64, n*out), make([]float64, n*out)
	for i, v := range gate {
		tanh[i] = activationRef(compute.GELUTanh, float64(v)) * float64(second[i])
		g := min(float64(v), limit)
		clamped[i] = g / (1 + math.Exp(-1.702*g)) * (max(min(float64(second[i]), limit), -limit) + 1)
	}
	b.near("a gate with GELU by tanh", product(compute.Linear{W: w, Up: up, Act: compute.GELUTanh}), tanh, 1e-6)
	b.near("clamped SwiGLU", product(compute.Linear{W: w, Up: up, Act: compute.ClampedSwiGLU, Limit: limit}), clamped, 1e-6)
}

// absorbersAgree compares the operations of a compute.Absorber with the reference.
func absorbersAgree(b *bench) {
	if b.q.Abilities().Latent == nil {
		b.Skip("the device has no latent attention")
	}
	for _, h := range []int{1, 30, 64, 333} {
		for _, n := range []int{1, 5, 40} {
			headsAgree(b, n, h)
		}
	}
}

func columnsAgree(b *bench, n, h int, weight []float32) {
	v := b.q.Abilities().Variants
	for _, col := range []int{0, 7} {
		ld := h + col + 3
		x := b.random(n * ld)
		want := wide(x)
		for r := range n {
			copy(want[r*ld+col:], normRef(want[r*ld+col:][:h], wide(weight), float64(float32(1e-6))))
		}
		buf := b.buffer(x, n, ld)
		v.NormColumns(buf, col, &compute.Norm{Weight: b.buffer(weight, h), Eps: 1e-6}, n)
		b.near(fmt.Sprintf("NormColumns [%d,%d) of %d", col, col+h, ld), b.read(buf, n*ld), want, 4e-6)
	}
}

// headsAgree compares products and copies of parts of rows with the reference, and the last row alone
// with the same one beside others. What lies between the parts stays.
func headsAgree(b *bench, n, out int) {
	v := b.q.Abilities().Latent
	const heads, in = 3, 45
	x := b.random(n * (heads*(in+4) + 2))
	wx, wd := heads*(in+4)+2, heads*(out+7)+5
	dst := b.random(n * wd)
	for _, as := range []compute.DType{compute.F32, compute.BF16} {
		var ws []compute.Weight
		want := wide(dst)
		for h := range heads {
			m := b.random(out * in)
			if as == compute.BF16 {
				for i := range m {
					m[i] = float32(math.Round(float64(m[i])*16) / 16)
				}
			}
			ws = append(ws, b.packed(as, m, out, in))
			for r := range n {
				for o := range out {
					sum := 0.0
					for k := range in {
						sum += float64(x[r*wx+2+h*(in+4)+k]) * float64(m[o*in+k])
					}
					want[r*wd+5+h*(out+7)+o] = sum
				}
			}
		}
		buf := b.buffer(dst, n, wd)
		v.LinearHeads(compute.Columns{Buf: buf, Col: 5, Step: out + 7}, compute.Columns{Buf: b.buffer(x, n, wx), Col: 2, Step: in + 4}, ws, n)
		what := fmt.Sprintf("LinearHeads of %d rows with %d outputs as %v", n, out, as)
		got := b.read(buf, n*wd)
		b.near(what, got, want, 1e-5)
		last := b.buffer(dst[(n-1)*wd:], 1, wd)
		v.LinearHeads(compute.Columns{Buf: last, Col: 5, Step: out + 7}, compute.Columns{Buf: b.buffer(x[(n-1)*wx:], 1, wx), Col: 2, Step: in + 4}, ws, 1)
		b.same(what+", the last row alone", b.read(last, wd), got[(n-1)*wd:])
	}
	copied := slices.Clone(dst)
	for r := range n {
		for h := range heads {
			copy(copied[r*wd+1+h*2:][:2], x[r*wx+3:])
		}
	}
	buf := b.buffer(dst, n, wd)
	v.CopyHeads(compute.Columns{Buf: buf, Col: 1, Step: 2}, compute.Columns{Buf: b.buffer(x, n, wx), Col: 3}, heads, 2, n)
	b.same(fmt.Sprintf("CopyHeads of %d rows", n), b.read(buf, n*wd), copied)
}

func scatterAgrees(b *bench, n, h int) {
	v := b.q.Abilities().Variants
	const rows = 50
	dst, src, weights := b.random(rows*h), b.random(n*h), b.random(n)
	var to []int32
	for _, r := range b.r.Perm(rows)[:n] {
		to = append(to, int32(r))
	}
	want := wide(dst)
	for i, r := range to {
		for j := range h {
			want[int(r)*h+j] += float64(weights[i]) * float64(src[i*h+j])
		}
	}
	buf := b.buffer(dst, rows, h)
	v.ScatterAdd(buf, b.buffer(src, n, h), to, weights)
	got := b.read(buf, rows*h)
	b.near(fmt.Sprintf("ScatterAdd of %d rows of %d", n, h), got, want, 1e-6)
	one := b.buffer(dst, rows, h)
	for i := range to {
		v.ScatterAdd(one, b.buffer(src[i*h:][:h], 1, h), to[i:i+1], weights[i:])
	}
	b.same("ScatterAdd row by row", b.read(one, rows*h), got)
}

func capAgrees(b *bench, n, h int, scale, limit float32) {
	v := b.q.Abilities().Variants
	x := b.random(n * h)
	for i := range x {
		x[i] *= 10
	}
	x[0] = 0
	per := (h + compute.PeakLen - 1) / compute.PeakLen
	buf, peaks := b.buffer(x, n, h), b.alloc(compute.F32, n, per)
	v.ScaleCap(buf, peaks, scale, limit, n)
	got := b.read(buf, n*h)
	var want []float64
	for _, e := range x {
		y := float64(e) * float64(scale)
		if limit != 0 {
			y = float64(limit) * math.Tanh(y/float64(limit))
		}
		want = append(want, y)
	}
	what := fmt.Sprintf("ScaleCap of %d rows of %d by %v to %v", n, h, scale, limit)
	b.near(what, got, want, 1e-6)
	var most []float32
	for r := range n {
		for p := range slices.Chunk(got[r*h:][:h], compute.PeakLen) {
			most = append(most, slices.Max(p))
		}
	}
	b.same(what+": peaks", b.read(peaks, n*per), most)
	plain := b.buffer(x, n, h)
	v.ScaleCap(plain, nil, scale, limit, n)
	b.same(what+", without peaks", b.read(plain, n*h), got)
}

// variantsProgram is what models with the variants do.
func variantsProgram(b *bench) []result {
	v := b.q.Abilities().Variants
	if v == nil {
		return nil
	}
	var out []result
	const n, h = 9, 300
	for i := range 3 {
		norm := &compute.Norm{Weight: b.buffer(b.random(h), h), Eps: 1e-5}
		d := b.buffer(b.random(n*h), n, h)
		v.AddScaled(d, b.buffer(b.random(n*h), n, h), norm, float32(i+1)/4, n)
		out = append(out, result{"AddScaled", b.read(d, n*h)})
		v.NormColumns(d, i, &compute.Norm{Weight: b.buffer(b.random(h-5), h-5), Eps: 1e-6}, n)
		out = append(out, result{"NormColumns", b.read(d, n*h)})
		v.ScaleCap(d, nil, 3, float32(i)*2, n)
		out = append(out, result{"ScaleCap", b.read(d, n*h)})
	}
	l := &compute.Linear{W: b.weight(b.random(97*h), 97, h), Up: b.weight(b.random(97*h), 97, h), Act: compute.GELUTanh}
	d := b.alloc(compute.F32, n, 97)
	b.q.Linear(d, b.buffer(b.random(n*h), n, h), l, compute.Store, n)
	out = append(out, result{"GELUTanh", b.read(d, n*97)})
	for _, x := range variants {
		w := newWorld(b, geometries[2], false, x)
		out = append(out, result{fmt.Sprintf("prompt with %+v", x), w.run(w.chain(w.text(90), 0, 90))})
		a, c := w.tree(90, 60, 0.5, w.free), w.tree(13, 30, 0.8, w.free[60:])
		out = append(out, result{fmt.Sprintf("trees with %+v", x), w.run(a, c)})
	}
	l.Act, l.Limit = compute.ClampedSwiGLU, 2
	b.q.Linear(d, b.buffer(b.random(n*h), n, h), l, compute.Store, n)
	out = append(out, result{"ClampedSwiGLU", b.read(d, n*97)})
	return out
}
