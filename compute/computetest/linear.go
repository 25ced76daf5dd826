package computetest

import (
	"fmt"
	"math"
	"testing"

	"talf/compute"
)

// shapes are odd sizes, whole panels and the sizes of small models.
var shapes = []struct{ out, in int }{{1, 1}, {97, 20}, {32, 64}, {33, 5}, {160, 300}, {64, 1}, {100, 513}}

func linearAgrees(b *bench) {
	ns := []int{1, 3, 17, 64, 65, 150}
	if testing.Short() {
		ns = []int{3, 65}
	}
	for _, s := range shapes {
		for _, n := range ns {
			w, x, bias, old := b.random(s.out*s.in), b.random(n*s.in), b.random(s.out), b.random(n*s.out)
			pw := b.weight(w, s.out, s.in)
			if pw.Out() != s.out || pw.In() != s.in {
				b.Fatalf("weight is [%d][%d], want [%d][%d]", pw.Out(), pw.In(), s.out, s.in)
			}
			for _, epi := range []compute.Epilogue{compute.Store, compute.Accumulate} {
				for _, withBias := range []bool{false, true} {
					want := make([]float64, n*s.out)
					for r := range n {
						for o := range s.out {
							sum := 0.0
							for i := range s.in {
								sum += float64(x[r*s.in+i]) * float64(w[o*s.in+i])
							}
							if withBias {
								sum += float64(bias[o])
							}
							if epi == compute.Accumulate {
								sum += float64(old[r*s.out+o])
							}
							want[r*s.out+o] = sum
						}
					}
					var bb compute.Buffer
					if withBias {
						bb = b.buffer(bias, s.out)
					}
					// One row more than is live: it must stay as it is.
					dst := b.buffer(append(append([]float32{}, old...), 42), n*s.out+1)
					b.q.Linear(dst, b.buffer(x, n, s.in), &compute.Linear{W: pw, Bias: bb}, epi, n)
					got := b.read(dst, n*s.out+1)
					if got[n*s.out] != 42 {
						b.Fatal("Linear wrote past its rows")
					}
					// A chain of k rounded steps on terms of size 1 with random signs:
					// ~√k·2⁻²⁴ relative to a result of size ~√k.
					b.near(fmt.Sprintf("[%d][%d]·[%d][%d]", n, s.in, s.out, s.in), got[:n*s.out], want, 1e-5)
				}
			}
		}
	}
}

// formatsAgree compares products with float64 ones of the weights that Embed
// gives back, and those with what was packed.
func formatsAgree(b *bench) {
	for _, as := range b.formats() {
		// Of a weight: half a unit of bfloat16's 8 bits; half a step of the 127 of a
		// block's largest, which is the row's at most, and what the scale's own
		// rounding takes. Of a product: bfloat16 weights may meet activations of 16
		// bits, Q8 weights do. Where a device rounds to bfloat16, as BF16DP asks, so does the reference.
		weightTol, tol := 0.0, 1e-5
		switch as {
		case compute.BF16, compute.BF16DP:
			weightTol, tol = 0x1p-8, 2e-5
		case compute.Q8:
			weightTol, tol = 0.51/127, 1e-4
		}
		for _, s := range shapes {
			w, ids := b.random(s.out*s.in), make([]int32, s.out)
			for i := range ids {
				ids[i] = int32(i)
			}
			pw := b.packed(as, w, s.out, s.in)
			if pw.Bytes() < s.out*s.in {
				b.Fatalf("%v [%d][%d] takes %d bytes", as, s.out, s.in, pw.Bytes())
			}
			rows := b.alloc(compute.F32, s.out, s.in)
			b.q.Embed(rows, 0, pw, ids)
			stored := b.read(rows, s.out*s.in)
			for i, v := range stored {
				size := math.Abs(float64(w[i]))
				if as == compute.Q8 {
					for k := i / s.in * s.in; k < (i/s.in+1)*s.in; k++ {
						size = max(size, math.Abs(float64(w[k])))
					}
				}
				if d := math.Abs(float64(v) - float64(w[i])); !(d <= weightTol*size) {
					b.Fatalf("%v [%d][%d]: weight %d is %g, want %g", as, s.out, s.in, i, v, w[i])
				}
			}
			for _, n := range []int{1, 7, 70} {
				x := b.random(n * s.in)
				met := x // by the weights
				if rounding := b.dev.Abilities().Rounding; rounding != nil && rounding(as) == "bf16" {
					met = make([]float32, len(x))
					for i, v := range x {
						u := math.Float32bits(v)
						met[i] = math.Float32frombits((u + 0x7fff + u>>16&1) &^ 0xffff)
					}
				}
				want := make([]float64, 0, n*s.out)
				for r := range n {
					for o := range s.out {
						sum := 0.0
						for i := range s.in {
							sum += float64(met[r*s.in+i]) * float64(stored[o*s.in+i])
						}
						want = append(want, sum)
					}
				}
				dst := b.alloc(compute.F32, n, s.out)
				b.q.Linear(dst, b.buffer(x, n, s.in), &compute.Linear{W: pw}, compute.Store, n)
				b.near(fmt.Sprintf("%v [%d][%d]·[%d][%d]", as, n, s.in, s.out, s.in), b.read(dst, n*s.out), want, tol)
			}
		}
	}
}

// linearFused holds Linear with all that can be fused to it to the same bits as
// its pieces one by one.
func linearFused(b *bench) {
	for _, as := range b.formats() {
		linearFusedAs(b, as)
	}
}

func linearFusedAs(b *bench, as compute.DType) {
	for _, s := range shapes {
		for _, n := range []int{1, 3, 64, 65, 150} {
			x, old := b.buffer(b.random(n*s.in), n, s.in), b.random(n*s.out)
			norm := &compute.Norm{Weight: b.buffer(b.random(s.in), s.in), Eps: 1e-5}
			gate, up := b.packed(as, b.random(s.out*s.in), s.out, s.in), b.packed(as, b.random(s.out*s.in), s.out, s.in)
			gateBias, upBias := b.buffer(b.random(s.out), s.out), b.buffer(b.random(s.out), s.out)
			normed := b.alloc(compute.F32, n, s.in)
			b.q.Norm(normed, x, norm, n)
			one := func(w compute.Weight, bias compute.Buffer) []float32 {
				dst := b.alloc(compute.F32, n, s.out)
				b.q.Linear(dst, normed, &compute.Linear{W: w, Bias: bias}, compute.Store, n)
				return b.read(dst, n*s.out)
			}
			g, u := one(gate, gateBias), one(up, upBias)
			gu := make([]float32, 0, 2*n*s.out)
			for r := range n {
				gu = append(append(gu, g[r*s.out:][:s.out]...), u[r*s.out:][:s.out]...)
			}
			want := b.alloc(compute.F32, n, s.out)
			b.q.SwiGLU(want, b.buffer(gu, n, 2*s.out), n)

			l := &compute.Linear{Norm: norm, W: gate, Bias: gateBias, Act: compute.SiLU, Up: up, UpBias: upBias}
			got := b.alloc(compute.F32, n, s.out)
			b.q.Linear(got, x, l, compute.Store, n)
			b.same(fmt.Sprintf("%v gated [%d][%d]·[%d][%d]", as, n, s.in, s.out, s.in), b.read(got, n*s.out), b.read(want, n*s.out))
			b.q.Write(got, old)
			b.q.Linear(got, x, l, compute.Accumulate, n)
			sum := b.read(want, n*s.out)
			for i := range sum {
				sum[i] += old[i]
			}
			b.same("gated, accumulated", b.read(got, n*s.out), sum)
		}
	}
}

func linearInvariant(b *bench) {
	for _, as := range b.formats() {
		linearInvariantAs(b, as)
	}
}

func linearInvariantAs(b *bench, as compute.DType) {
	for _, s := range shapes {
		const most = 200
		x, pw := b.random(most*s.in), b.packed(as, b.random(s.out*s.in), s.out, s.in)
		bias := b.buffer(b.random(s.out), s.out)
		run := func(x []float32, n int) []float32 {
			dst := b.alloc(compute.F32, n, s.out)
			b.q.Linear(dst, b.buffer(x[:n*s.in], n, s.in), &compute.Linear{W: pw, Bias: bias}, compute.Store, n)
			return b.read(dst, n*s.out)
		}
		var want []float32
		for r := range most {
			want = append(want, run(x[r*s.in:][:s.in], 1)...)
		}
		ns := []int{65, 100, 129, most}
		for n := 2; n <= 64; n++ {
			if n < 20 || n%7 == 0 || !testing.Short() {
				ns = append(ns, n)
			}
		}
		for _, n := range ns {
			b.same(fmt.Sprintf("%d rows at once, weight [%d][%d]", n, s.out, s.in), run(x, n), want[:n*s.out])
		}
	}
}
