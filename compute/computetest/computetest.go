// Package computetest is the conformance suite of compute devices: a device's
// test is one call of Run, and one of Same for every pair that promises equal
// bits.
//
// The reference is plain float64 code of this package's own, and gradients are
// held against central differences of that reference, so nothing is shared with
// what is tested.
package computetest

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"talf/compute"
)

// Run checks the devices that newDevice makes: agreement with the reference,
// batch invariance in raw bits and, where the queue has TrainOps, gradients.
// Each subtest gets a device of its own and closes it.
func Run(t *testing.T, newDevice func() compute.Device) {
	for _, c := range []struct {
		name string
		f    func(*bench)
	}{
		{"Linear agrees with the reference", linearAgrees},
		{"Linear agrees with the reference for every format of weights", formatsAgree},
		{"Linear has the same bits for any number of rows", linearInvariant},
		{"a fused Linear has the bits of its pieces", linearFused},
		{"Embed and Gather copy rows", rowsAreCopied},
		{"Pack refuses what does not fit", packRefuses},
		{"Norm and SwiGLU agree with the reference", pointwiseAgrees},
		{"LayerNorm agrees with the reference", layerNormAgrees},
		{"activations agree with the reference", activationsAgree},
		{"TopK agrees with the reference", topKAgrees},
		{"peaks find what TopK finds", peaksAgree},
		{"Attend agrees with the reference", func(b *bench) { attendAgrees(b, variation{}) }},
		{"Attend with norms, windows and partial rotation agrees with the reference", func(b *bench) { b.varied(attendAgrees) }},
		{"a prompt has the same bits in chunks of any size", func(b *bench) { chunksInvariant(b, variation{}) }},
		{"a prompt has the same bits in chunks of any size, with norms, windows and partial rotation", func(b *bench) { b.varied(chunksInvariant) }},
		{"tree nodes have the bits of plain decoding", func(b *bench) { treesInvariant(b, variation{}) }},
		{"tree nodes have the bits of plain decoding, with norms, windows and partial rotation", func(b *bench) { b.varied(treesInvariant) }},
		{"MoveKV moves keys and values", moveInvariant},
		{"passes without rows do nothing", emptyPasses},
		{"queues of several goroutines do not disturb each other", queuesSideBySide},
	} {
		t.Run(c.name, func(t *testing.T) { c.f(newBench(t, newDevice())) })
	}
	d := newDevice()
	trains := d.Queue().Abilities().Train != nil
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if !trains {
		return
	}
	for _, c := range []struct {
		name string
		f    func(*bench)
	}{
		{"Gemm agrees with the reference", gemmAgrees},
		{"sums and biases agree with the reference", sumsAgree},
		{"NormGrad is Norm's derivative", normGrad},
		{"Rope rotates there and back", ropeTurns},
		{"SwiGLUGrad is SwiGLU's derivative", swigluGrad},
		{"TreeAttend agrees with the reference", treeAttendAgrees},
		{"TreeAttendGrad is TreeAttend's derivative", treeAttendGrad},
		{"SoftCE agrees with the reference and its derivative", softCEAgrees},
		{"SmoothL1 agrees with the reference and its derivative", smoothL1Agrees},
		{"AdamW agrees with the reference", adamWAgrees},
	} {
		t.Run(c.name, func(t *testing.T) { c.f(newBench(t, newDevice())) })
	}
}

// A bench is a device under test and a source of random values. Seeds are fixed
// and derive from the test's name, so a failure repeats.
type bench struct {
	*testing.T
	dev   compute.Device
	q     compute.Queue
	r     *rand.Rand
	worst float64 // difference that near has seen, of the largest value or of 1
}

func newBench(t *testing.T, d compute.Device) *bench {
	b := &bench{T: t, dev: d, q: d.Queue(), r: rand.New(rand.NewPCG(7, 11))}
	t.Cleanup(func() {
		if b.worst > 0 {
			t.Logf("within %.2g of the largest value", b.worst)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

func (b *bench) train() compute.TrainOps { return b.q.Abilities().Train }

// random returns n values of a normal distribution.
func (b *bench) random(n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(b.r.NormFloat64())
	}
	return x
}

func (b *bench) alloc(t compute.DType, shape ...int) compute.Buffer {
	b.Helper()
	buf, err := b.dev.Alloc(t, shape...)
	if err != nil {
		b.Fatal(err)
	}
	return buf
}

// buffer returns a new buffer that holds x.
func (b *bench) buffer(x []float32, shape ...int) compute.Buffer {
	b.Helper()
	buf := b.alloc(compute.F32, shape...)
	b.q.Write(buf, x)
	return buf
}

// read waits for and returns the first n elements.
func (b *bench) read(buf compute.Buffer, n int) []float32 {
	b.Helper()
	x := make([]float32, n)
	b.q.Read(x, buf, 0)
	if err := b.q.Sync(b.Context()); err != nil {
		b.Fatal(err)
	}
	return x
}

// formats are the types that weights are packed as.
var formats = []compute.DType{compute.F32, compute.BF16, compute.Q8}

func (b *bench) weight(w []float32, out, in int) compute.Weight {
	b.Helper()
	return b.packed(compute.F32, w, out, in)
}

func (b *bench) packed(as compute.DType, w []float32, out, in int) compute.Weight {
	b.Helper()
	p, err := b.dev.Pack(as, matrix(w, out, in, compute.F32))
	if err != nil {
		b.Fatal(err)
	}
	return p
}

// matrix encodes w as a checkpoint would.
func matrix(w []float32, rows, cols int, t compute.DType) compute.Matrix {
	var data []byte
	for _, v := range w {
		switch t {
		case compute.BF16:
			data = binary.LittleEndian.AppendUint16(data, uint16(math.Float32bits(v)>>16))
		case compute.F16:
			data = binary.LittleEndian.AppendUint16(data, half(v))
		default:
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits(v))
		}
	}
	return compute.Matrix{Rows: rows, Cols: cols, Type: t, Data: data}
}

// half encodes a v that binary16 holds exactly as a normal number.
func half(v float32) uint16 {
	u := math.Float32bits(v)
	if u<<1 == 0 {
		return uint16(u >> 16)
	}
	return uint16(u>>16&0x8000 | (u>>23&0xff-112)<<10 | u>>13&0x3ff)
}

// near fails unless each |got−want| ≤ tol·max(1, largest |want|).
func (b *bench) near(what string, got []float32, want []float64, tol float64) {
	b.Helper()
	if len(got) != len(want) {
		b.Fatalf("%s: %d values, want %d", what, len(got), len(want))
	}
	big := 1.0
	for _, w := range want {
		big = max(big, math.Abs(w))
	}
	for i, w := range want {
		d := math.Abs(float64(got[i]) - w)
		b.worst = max(b.worst, d/big)
		if !(d <= tol*big) {
			b.Fatalf("%s[%d] = %g, want %g: off by %.2g, allowed %.2g", what, i, got[i], w, d, tol*big)
		}
	}
}

// same fails unless a and c are equal as raw bits.
func (b *bench) same(what string, got, want []float32) {
	b.Helper()
	if len(got) != len(want) {
		b.Fatalf("%s: %d values, want %d", what, len(got), len(want))
	}
	for i := range want {
		if g, w := math.Float32bits(got[i]), math.Float32bits(want[i]); g != w {
			b.Fatalf("%s[%d] = %g (%08x), want %g (%08x)", what, i, got[i], g, want[i], w)
		}
	}
}

func wide(x []float32) []float64 {
	y := make([]float64, len(x))
	for i, v := range x {
		y[i] = float64(v)
	}
	return y
}

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
						b.Fatal("Linear wrote behind its rows")
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
	for _, as := range formats {
		// Of a weight: half a unit of bfloat16's 8 bits; half a step of the 127 of a
		// block's largest, which is the row's at most, and what the scale's own
		// rounding takes. Of a product: bfloat16 weights may meet activations of 16
		// bits, Q8 weights do.
		weightTol, tol := 0.0, 1e-5
		switch as {
		case compute.BF16:
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
				want := make([]float64, 0, n*s.out)
				for r := range n {
					for o := range s.out {
						sum := 0.0
						for i := range s.in {
							sum += float64(x[r*s.in+i]) * float64(stored[o*s.in+i])
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
	for _, as := range formats {
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
	for _, as := range formats {
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

func rowsAreCopied(b *bench) {
	const v1, v2, w = 60, 37, 21
	// Values that every element type holds exactly.
	tab := make([]float32, (v1+v2)*w)
	for i := range tab {
		tab[i] = float32(b.r.IntN(255)-127) / 16
	}
	for _, typ := range []compute.DType{compute.F32, compute.F16, compute.BF16} {
		table, err := b.dev.Pack(compute.F32, matrix(tab[:v1*w], v1, w, typ), matrix(tab[v1*w:], v2, w, typ))
		if err != nil {
			b.Fatal(err)
		}
		ids := []int32{0, 96, 59, 60, 31, 32, 5, 5}
		dst := b.alloc(compute.F32, len(ids)+1, w+4)
		b.q.Embed(dst, 3, table, ids)
		got := b.read(dst, (len(ids)+1)*(w+4))
		want := make([]float32, len(got))
		for r, id := range ids {
			copy(want[r*(w+4)+3:], tab[int(id)*w:][:w])
		}
		b.same("embedding rows of "+typ.String(), got, want)
	}
	src := b.buffer(tab, v1+v2, w)
	dst := b.alloc(compute.F32, 7, w+2)
	b.q.Gather(dst, 2, 1, src, []int32{90, 0, 3})
	want := make([]float32, 7*(w+2))
	for i, r := range []int{90, 0, 3} {
		copy(want[(2+i)*(w+2)+1:], tab[r*w:][:w])
	}
	b.same("gathered rows", b.read(dst, len(want)), want)

	// Write and Read of integers, from an offset.
	ib := b.alloc(compute.I32, 5)
	b.q.Write(ib, []int32{1, 2, 3, 4, 5})
	got := make([]int32, 2)
	b.q.Read(got, ib, 3)
	if err := b.q.Sync(b.Context()); err != nil {
		b.Fatal(err)
	}
	if got[0] != 4 || got[1] != 5 {
		b.Fatalf("read %v, want [4 5]", got)
	}
}

func packRefuses(b *bench) {
	ok := matrix(b.random(6), 2, 3, compute.F32)
	short := ok
	short.Data = short.Data[:20]
	for name, parts := range map[string][]compute.Matrix{
		"no matrix":         {},
		"missing bytes":     {short},
		"differing columns": {ok, matrix(b.random(4), 2, 2, compute.F32)},
		"integers":          {{Rows: 2, Cols: 3, Type: compute.I32, Data: ok.Data}},
		"no rows":           {{Rows: 0, Cols: 3, Type: compute.F32}},
	} {
		if _, err := b.dev.Pack(compute.F32, parts...); err == nil {
			b.Errorf("Pack accepts %s", name)
		}
	}
	if _, err := b.dev.Alloc(compute.F32, 2, -1); err == nil {
		b.Error("Alloc accepts a negative size")
	}
	if _, err := b.dev.NewKV(compute.KVConfig{Layers: 1, KVHeads: 0, HeadDim: 8}); err == nil {
		b.Error("NewKV accepts no heads")
	}
}

func normRef(x, w []float64, eps float64) []float64 {
	h := len(w)
	y := make([]float64, len(x))
	for r := 0; r < len(x); r += h {
		ss := 0.0
		for _, v := range x[r : r+h] {
			ss += v * v
		}
		inv := 1 / math.Sqrt(ss/float64(h)+eps)
		for i := range h {
			y[r+i] = x[r+i] * inv * w[i]
		}
	}
	return y
}

func swigluRef(gu []float64, f int) []float64 {
	var y []float64
	for r := 0; r < len(gu); r += 2 * f {
		for i := range f {
			g := gu[r+i]
			y = append(y, g/(1+math.Exp(-g))*gu[r+f+i])
		}
	}
	return y
}

func pointwiseAgrees(b *bench) {
	for _, h := range []int{1, 20, 64, 97, 600} {
		for _, n := range []int{1, 5, 40} {
			x, w := b.random(n*h), b.random(h)
			dst, xb := b.alloc(compute.F32, n, h), b.buffer(x, n, h)
			norm := &compute.Norm{Weight: b.buffer(w, h), Eps: 1e-5}
			b.q.Norm(dst, xb, norm, n)
			got := b.read(dst, n*h)
			b.near("Norm", got, normRef(wide(x), wide(w), float64(float32(1e-5))), 2e-6)
			b.q.Norm(xb, xb, norm, n)
			b.same("Norm in place", b.read(xb, n*h), got)
			one := b.alloc(compute.F32, 1, h)
			b.q.Norm(one, b.buffer(x[(n-1)*h:], 1, h), norm, 1)
			b.same("Norm of one row", b.read(one, h), got[(n-1)*h:])

			gu := b.random(2 * n * h)
			dst = b.alloc(compute.F32, n, h)
			b.q.SwiGLU(dst, b.buffer(gu, n, 2*h), n)
			got = b.read(dst, n*h)
			b.near("SwiGLU", got, swigluRef(wide(gu), h), 2e-6)
			b.q.SwiGLU(one, b.buffer(gu[2*(n-1)*h:], 1, 2*h), 1)
			b.same("SwiGLU of one row", b.read(one, h), got[(n-1)*h:])
		}
	}
}

func topKAgrees(b *bench) {
	for _, v := range []int{5, 97, 512, 5000} {
		for _, k := range []int{1, 4, 5} {
			const n = 4
			x := b.random(n * v)
			for i := range x {
				x[i] = float32(math.Round(float64(x[i])*4)) / 4 // ties
			}
			if v > 4000 {
				x[4999] = 30 // a late and large one
			}
			ids, logp := b.alloc(compute.I32, n, k), b.alloc(compute.F32, n, k)
			b.q.TopK(ids, logp, b.buffer(x, n, v), k, n)
			gotID := make([]int32, n*k)
			b.q.Read(gotID, ids, 0)
			gotP := b.read(logp, n*k)
			want := make([]float64, 0, n*k)
			for r := range n {
				row := x[r*v:][:v]
				sum := 0.0
				for _, l := range row {
					sum += math.Exp(float64(l))
				}
				used := make([]bool, v)
				for i := range k {
					best := -1
					for j, l := range row {
						if !used[j] && (best < 0 || l > row[best]) {
							best = j
						}
					}
					used[best] = true
					if gotID[r*k+i] != int32(best) {
						b.Fatalf("row %d of %d logits: choice %d is %d, want %d", r, v, i, gotID[r*k+i], best)
					}
					want = append(want, float64(row[best])-math.Log(sum))
				}
			}
			b.near("log-probabilities", gotP, want, 1e-6)
		}
	}
}

// peaksAgree compares a Peaker with Linear and TopK, bit for bit.
func peaksAgree(b *bench) {
	p := b.q.Abilities().Peaks
	if p == nil {
		return
	}
	for _, s := range []struct{ n, v, in int }{{1, 32, 8}, {3, 5, 3}, {5, 40, 2}, {9, 97, 16}, {17, 3000, 4}, {130, 333, 12}, {2, 5000, 1}} {
		w := b.random(s.v * s.in)
		for i := range w {
			w[i] = float32(math.Round(float64(w[i]) * 2)) // ties
		}
		x := b.random(s.n * s.in)
		for i := range x {
			x[i] = float32(math.Round(float64(x[i]) * 2))
		}
		l := &compute.Linear{W: b.weight(w, s.v, s.in)}
		if s.n%2 == 1 {
			bias := b.random(s.v)
			for i := range bias { // some rows have few numbers, or none
				switch odd := b.r.IntN(8); {
				case s.n == 5, s.n == 9 && (odd < 3 || i%compute.PeakLen == 0), s.n == 17 && i > 9 && odd > 0:
					bias[i] = float32(math.NaN())
				case s.n == 3, s.n == 9 && odd < 6, s.n == 17 && i > 4:
					bias[i] = float32(math.Inf(-1))
				}
			}
			l.Bias = b.buffer(bias, s.v)
		}
		in, want, got := b.buffer(x, s.n, s.in), b.alloc(compute.F32, s.n, s.v), b.alloc(compute.F32, s.n, s.v)
		np := (s.v + compute.PeakLen - 1) / compute.PeakLen
		peaks := b.alloc(compute.F32, s.n, np)
		b.q.Linear(want, in, l, compute.Store, s.n)
		p.LinearPeaks(got, peaks, in, l, s.n)
		rows := b.read(want, s.n*s.v)
		b.same(fmt.Sprintf("%d rows of %d outputs", s.n, s.v), b.read(got, s.n*s.v), rows)
		var most []float32
		for r := range s.n {
			for i := 0; i < s.v; i += compute.PeakLen {
				top := float32(math.Inf(-1))
				for _, v := range rows[r*s.v:][i:min(i+compute.PeakLen, s.v)] {
					if v > top {
						top = v
					}
				}
				most = append(most, top)
			}
		}
		b.same(fmt.Sprintf("peaks of %d rows of %d outputs", s.n, s.v), b.read(peaks, s.n*np), most)
		for _, k := range []int{1, 2, 10, 40, min(s.v, 100)} {
			if k > s.v {
				continue
			}
			ids, logp := b.alloc(compute.I32, s.n, k), b.alloc(compute.F32, s.n, k)
			b.q.TopK(ids, logp, want, k, s.n)
			wantID, wantP := make([]int32, s.n*k), b.read(logp, s.n*k)
			b.q.Read(wantID, ids, 0)
			if best := sorted(rows, s.v, k); !slices.Equal(wantID, best) {
				b.Fatalf("TopK of %d of %d outputs: %v, want %v", k, s.v, wantID, best)
			}
			for row := range min(3, s.n) {
				n := s.n - row
				for _, values := range []compute.Buffer{b.alloc(compute.F32, n, k), nil} {
					ids := b.alloc(compute.I32, n, k)
					p.TopPeaks(ids, values, got, peaks, row, k, n)
					gotID := make([]int32, n*k)
					b.q.Read(gotID, ids, 0)
					if !slices.Equal(gotID, wantID[row*k:]) {
						b.Fatalf("%d of %d outputs of rows from %d: %v, want %v", k, s.v, row, gotID, wantID[row*k:])
					}
					if values != nil {
						b.same("their log-probabilities", b.read(values, n*k), wantP[row*k:])
					}
				}
			}
		}
	}
}

// sorted returns the k largest of each row of v elements, ties to the lower index
// and NaNs last.
func sorted(rows []float32, v, k int) (ids []int32) {
	for ; len(rows) > 0; rows = rows[v:] {
		all := make([]int32, v)
		for i := range all {
			all[i] = int32(i)
		}
		slices.SortStableFunc(all, func(i, j int32) int { return cmp.Compare(rows[j], rows[i]) })
		ids = append(ids, all[:k]...)
	}
	return ids
}

func emptyPasses(b *bench) {
	w := newWorld(b, geometry{4, 2, 8}, false, variation{})
	keep := b.random(12)
	buf := b.buffer(keep, 3, 4)
	pw := b.weight(b.random(16), 4, 4)
	b.q.Embed(buf, 0, pw, nil)
	b.q.Gather(buf, 0, 0, buf, nil)
	b.q.Linear(buf, buf, &compute.Linear{W: pw}, compute.Store, 0)
	b.q.Norm(buf, buf, &compute.Norm{Weight: b.buffer(keep[:4], 4), Eps: 1e-5}, 0)
	b.q.SwiGLU(buf, b.alloc(compute.F32, 3, 8), 0)
	b.q.TopK(b.alloc(compute.I32, 1, 2), buf, buf, 2, 0)
	b.q.MoveKV(w.kv, nil, nil)
	s := &compute.Step{Heads: 4, Spans: []compute.Span{{Prefix: 7, Blocks: w.blocks[:1]}}}
	b.q.Attend(buf, buf, w.kv, 0, &w.attn, s)
	b.same("a buffer after passes without rows", b.read(buf, 12), keep)

	// A span without rows among others takes nothing and changes nothing.
	text := w.text(9)
	want := w.run(w.chain(text, 0, 9))
	none := w.chain(text, 0, 5)
	none.from = 5
	b.same("rows beside a span without", w.run(none, w.chain(text, 0, 9), none), want)
}

func queuesSideBySide(b *bench) {
	const goroutines, rounds, n, out, in = 4, 20, 9, 200, 96
	x, pw := b.random(n*in), b.weight(b.random(out*in), out, in)
	dst := b.alloc(compute.F32, n, out)
	b.q.Linear(dst, b.buffer(x, n, in), &compute.Linear{W: pw}, compute.Store, n)
	want := b.read(dst, n*out)
	var wg sync.WaitGroup
	for range goroutines {
		xb, dst, q := b.buffer(x, n, in), b.alloc(compute.F32, n, out), b.dev.Queue()
		wg.Go(func() {
			got := make([]float32, n*out)
			for range rounds {
				q.Linear(dst, xb, &compute.Linear{W: pw}, compute.Store, n)
				q.Read(got, dst, 0)
				if err := q.Sync(b.Context()); err != nil {
					b.Error(err)
					return
				}
				for i := range want {
					if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
						b.Errorf("output %d is %g beside other queues, %g alone", i, got[i], want[i])
						return
					}
				}
			}
		})
	}
	wg.Wait()
}
