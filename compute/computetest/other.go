package computetest

import (
	"fmt"
	"math"

	"talf/compute"
)

// layerNorm returns a LayerNorm over h elements with random weights.
func (b *bench) layerNorm(h int) *compute.Norm {
	return &compute.Norm{Weight: b.buffer(b.random(h), h), Bias: b.buffer(b.random(h), h), Eps: 1e-5, Center: true}
}

func layerNormRef(x, w, bias []float64, eps float64) []float64 {
	h := len(w)
	c := make([]float64, len(x))
	for r := 0; r < len(x); r += h {
		mean := 0.0
		for _, v := range x[r : r+h] {
			mean += v / float64(h)
		}
		for i := range h {
			c[r+i] = x[r+i] - mean
		}
	}
	y := normRef(c, w, eps)
	for i := range y {
		y[i] += bias[i%h]
	}
	return y
}

func layerNormAgrees(b *bench) {
	for _, h := range []int{1, 20, 64, 97, 600} {
		for _, n := range []int{1, 5, 40} {
			x, w, bias := b.random(n*h), b.random(h), b.random(h)
			for i := range x {
				x[i] += 3 // a mean that matters
			}
			norm := &compute.Norm{Weight: b.buffer(w, h), Bias: b.buffer(bias, h), Eps: 1e-5, Center: true}
			dst, xb := b.alloc(compute.F32, n, h), b.buffer(x, n, h)
			b.q.Norm(dst, xb, norm, n)
			got := b.read(dst, n*h)
			// The mean of elements of size 4 is off by some 2⁻²³, whatever they differ
			// by: a few rows of 20 differ little.
			b.near("LayerNorm", got, layerNormRef(wide(x), wide(w), wide(bias), float64(float32(1e-5))), 4e-6)
			b.q.Norm(xb, xb, norm, n)
			b.same("LayerNorm in place", b.read(xb, n*h), got)
			one := b.alloc(compute.F32, 1, h)
			b.q.Norm(one, b.buffer(x[(n-1)*h:], 1, h), norm, 1)
			b.same("LayerNorm of one row", b.read(one, h), got[(n-1)*h:])

			// A bias without a mean to subtract.
			norm = &compute.Norm{Weight: norm.Weight, Bias: norm.Bias, Eps: 1e-5}
			b.q.Norm(dst, b.buffer(x, n, h), norm, n)
			want := normRef(wide(x), wide(w), float64(float32(1e-5)))
			for i := range want {
				want[i] += float64(bias[i%h])
			}
			b.near("Norm with a bias", b.read(dst, n*h), want, 4e-6)
		}
	}
}

func activationRef(act compute.Activation, x float64) float64 {
	switch act {
	case compute.SiLU:
		return x / (1 + math.Exp(-x))
	case compute.GELU:
		return x / 2 * math.Erfc(-x/math.Sqrt2)
	case compute.GELUTanh:
		return x / 2 * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(x+0.044715*x*x*x)))
	}
	return x
}

// activationsAgree compares what follows a product with the reference applied to the
// product's own bits, and the fused norm with the bits of Norm.
func activationsAgree(b *bench) {
	acts := []compute.Activation{compute.Identity, compute.SiLU, compute.GELU}
	if b.q.Abilities().Variants != nil {
		acts = append(acts, compute.GELUTanh)
	}
	for _, s := range shapes {
		for _, n := range []int{1, 3, 65, 150} {
			x, old := b.random(n*s.in), b.random(n*s.out)
			norm := b.layerNorm(s.in)
			w, up := b.weight(b.random(s.out*s.in), s.out, s.in), b.weight(b.random(s.out*s.in), s.out, s.in)
			bias := b.buffer(b.random(s.out), s.out)
			xb, normed := b.buffer(x, n, s.in), b.alloc(compute.F32, n, s.in)
			b.q.Norm(normed, xb, norm, n)
			run := func(x compute.Buffer, n int, l *compute.Linear, epi compute.Epilogue) []float32 {
				dst := b.buffer(old[:n*s.out], n, s.out)
				b.q.Linear(dst, x, l, epi, n)
				return b.read(dst, n*s.out)
			}
			plain := run(normed, n, &compute.Linear{W: w, Bias: bias}, compute.Store)
			second := run(normed, n, &compute.Linear{W: up}, compute.Store)
			if b.q.Abilities().Variants != nil {
				l := &compute.Linear{Norm: norm, W: w, Bias: bias, Up: up, Act: compute.ClampedSwiGLU, Limit: 0.8}
				want := make([]float64, len(plain))
				for i, v := range plain {
					g, u := min(float64(v), float64(l.Limit)), max(min(float64(second[i]), float64(l.Limit)), -float64(l.Limit))
					want[i] = g / (1 + math.Exp(-1.702*g)) * (u + 1)
				}
				got := run(xb, n, l, compute.Store)
				b.near(fmt.Sprintf("clamped SwiGLU of [%d][%d]·[%d][%d]", n, s.in, s.out, s.in), got, want, 1e-6)
				b.same("clamped SwiGLU, one row", run(b.buffer(x[(n-1)*s.in:], 1, s.in), 1, l, compute.Store), got[(n-1)*s.out:])
			}
			for _, act := range acts {
				what := fmt.Sprintf("activation %d of [%d][%d]·[%d][%d]", act, n, s.in, s.out, s.in)
				want, gated := make([]float64, len(plain)), make([]float64, len(plain))
				for i, v := range plain {
					want[i] = activationRef(act, float64(v))
					gated[i] = want[i] * float64(second[i])
				}
				l := &compute.Linear{Norm: norm, W: w, Bias: bias, Act: act}
				got := run(xb, n, l, compute.Store)
				b.near(what, got, want, 1e-6)
				b.same(what+", one row", run(b.buffer(x[(n-1)*s.in:], 1, s.in), 1, l, compute.Store), got[(n-1)*s.out:])
				sum := make([]float32, len(got))
				for i := range sum {
					sum[i] = old[i] + got[i]
				}
				b.same(what+", accumulated", run(xb, n, l, compute.Accumulate), sum)
				l.Up = up
				b.near(what+", gated", run(xb, n, l, compute.Store), gated, 1e-6)
			}
		}
	}
}
