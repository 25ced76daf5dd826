//go:build gpu && linux && cgo

package cuda_test

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"talf/compute"
	"talf/compute/cuda"
)

// TestProductsInBF16 compares tensor-core products of training with float64 products of the
// factors rounded to bfloat16, for every transposition and with addition to the result, and
// those of a packed weight with those of a buffer. Products of copies in bfloat16 have the bits of those that
// round floats, which are taken where rows are no multiples of 16 bytes.
func TestProductsInBF16(t *testing.T) {
	d, err := cuda.New(cuda.Config{BF16: true})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	q := d.Queue()
	ops := q.Abilities().Train
	r := rand.New(rand.NewPCG(1, 4))
	random := func(n int) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(r.NormFloat64())
		}
		return x
	}
	round := func(x float32) float64 {
		u := math.Float32bits(x)
		return float64(math.Float32frombits((u + 0x7fff + u>>16&1) &^ 0xffff))
	}
	read := func(b compute.Buffer, n int) []float32 {
		x := make([]float32, n)
		q.Read(x, b, 0)
		if err := q.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
		return x
	}
	shapes := []struct{ m, n, k int }{{3, 2, 1}, {130, 34, 71}, {20, 133, 33}, {8, 8, 8}, {136, 40, 72}, {129, 137, 96}, {1032, 136, 8}, {136, 24, 101}}
	if *runPTX { // takes long
		shapes = append(shapes[1:3], shapes[4:6]...)
		shapes = append(shapes, shapes[len(shapes)-1])
		shapes[4] = struct{ m, n, k int }{136, 24, 45}
	}
	for _, s := range shapes {
		for mode := range 8 {
			a, b, c := random(s.m*s.k), random(s.k*s.n), random(s.m*s.n)
			ma := compute.Mat{Buf: ops.Host(a, len(a)), Rows: s.m, Cols: s.k, Stride: s.k, T: mode&1 != 0}
			mb := compute.Mat{Buf: ops.Host(b, len(b)), Rows: s.k, Cols: s.n, Stride: s.n, T: mode&2 != 0}
			mc := compute.Mat{Buf: ops.Host(c, len(c)), Rows: s.m, Cols: s.n, Stride: s.n}
			at := func(x []float32, i, j, rows, cols int, t bool) float64 {
				if t {
					return round(x[j*rows+i])
				}
				return round(x[i*cols+j])
			}
			if ma.T {
				ma.Stride = s.m
			}
			if mb.T {
				mb.Stride = s.k
			}
			// The same matrices, with rows that are one element longer.
			apart := func(x []float32, m compute.Mat) compute.Mat {
				var y []float32
				for row := range len(x) / m.Stride {
					y = append(append(y, x[row*m.Stride:][:m.Stride]...), 0)
				}
				m.Buf, m.Stride = ops.Host(y, len(y)), m.Stride+1
				return m
			}
			mf := mc
			mf.Buf = ops.Host(c, len(c))
			ops.Gemm(mf, apart(a, ma), apart(b, mb), float32(mode>>2))
			ops.Gemm(mc, ma, mb, float32(mode>>2))
			if want := mode&3 != 3 && ma.Stride%8 == 0 && mb.Stride%8 == 0; (cuda.Halved(ma.Buf) == len(a) && cuda.Halved(mb.Buf) == len(b)) != want {
				t.Errorf("%v, mode %d: copies of %d and %d elements, want all: %v", s, mode, cuda.Halved(ma.Buf), cuda.Halved(mb.Buf), want)
			}
			got := read(mc.Buf, len(c))
			if !sameBits(got, read(mf.Buf, len(c))) {
				t.Errorf("%v, mode %d: products of copies and of floats have different bits", s, mode)
			}
			for i, got := range got {
				want := float64(mode>>2) * float64(c[i])
				for k := range s.k {
					want += at(a, i/s.n, k, s.m, s.k, ma.T) * at(b, k, i%s.n, s.k, s.n, mb.T)
				}
				if !(math.Abs(float64(got)-want) <= 1e-4) {
					t.Fatalf("%v, mode %d: element %d is %g, want %g", s, mode, i, got, want)
				}
			}
		}
	}
	const rows = 5
	labels := &compute.SoftLabels{K: 1, IDs: []int32{1, 2, 3, 4, 5}, Prob: []float32{1, 1, 1, 1, 1}}
	for _, s := range []struct{ v, hidden int }{{70, 37}, {136, 40}} {
		w, h := random(s.v*s.hidden), random(rows*s.hidden)
		packed := packed(t, d, w, s.v, s.hidden)
		run := func(w compute.Buffer, dw []float32) []float32 {
			loss, dh := ops.Host(make([]float32, rows), rows), ops.Host(make([]float32, rows*s.hidden), rows, s.hidden)
			var grad compute.Buffer
			if dw != nil {
				grad = ops.Host(dw, s.v, s.hidden)
			}
			ops.SoftCE(loss, dh, grad, ops.Host(h, rows, s.hidden), w, labels, []float32{1, 1, 1, 1, 1}, rows)
			if dw != nil {
				copy(dw, read(grad, len(dw)))
			}
			return append(read(loss, rows), read(dh, rows*s.hidden)...)
		}
		dw := make([]float32, len(w))
		want := run(ops.Host(w, s.v, s.hidden), dw)
		for i, got := range run(packed, nil) {
			if math.Float32bits(got) != math.Float32bits(want[i]) {
				t.Fatalf("%v: element %d with a packed weight is %g, with a buffer %g", s, i, got, want[i])
			}
		}
		if (cuda.Halved(packed) == len(w)) != (s.v%8 == 0) {
			t.Errorf("%v: a copy of %d elements", s, cuda.Halved(packed))
		}
		// In float64, of factors that are rounded.
		wantDH, wantDW, sum := make([]float64, rows*s.hidden), make([]float64, len(w)), make([]float64, s.v)
		for r := range rows {
			total := 0.0
			for o := range s.v {
				z := 0.0
				for k := range s.hidden {
					z += round(h[r*s.hidden+k]) * round(w[o*s.hidden+k])
				}
				sum[o] = math.Exp(z)
				total += sum[o]
			}
			for o, e := range sum {
				dz := e / total
				if o == int(labels.IDs[r]) {
					if loss := -math.Log(dz); !(math.Abs(float64(want[r])-loss) <= 1e-5*max(1, loss)) {
						t.Errorf("%v: the loss of row %d is %g, want %g", s, r, want[r], loss)
					}
					dz--
				}
				for k := range s.hidden {
					wantDH[r*s.hidden+k] += dz * round(w[o*s.hidden+k])
					wantDW[o*s.hidden+k] += dz * round(h[r*s.hidden+k])
				}
			}
		}
		far := func(what string, got []float32, want []float64) {
			var d, n float64
			for i, x := range want {
				d, n = d+(float64(got[i])-x)*(float64(got[i])-x), n+x*x
			}
			// A gradient of a logit has 8 bits.
			if off := math.Sqrt(d / n); !(off <= 1.0/256) || off < 1e-6 {
				t.Errorf("%v: %s is off by %.2g of its norm", s, what, off)
			}
		}
		far("dh", want[rows:], wantDH)
		far("dw", dw, wantDW)
	}
}

// packed returns w [out][in] as the device packs an LM head.
func packed(t *testing.T, d compute.Device, w []float32, out, in int) compute.Buffer {
	t.Helper()
	var data []byte
	for _, x := range w {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(x))
	}
	p, err := d.Pack(compute.F32, compute.Matrix{Rows: out, Cols: in, Type: compute.F32, Data: data})
	if err != nil {
		t.Fatal(err)
	}
	return p.(compute.Buffer)
}

// TestClearZeroesTheFirstElements checks that Clear leaves later elements unchanged, including
// NaN.
func TestClearZeroesTheFirstElements(t *testing.T) {
	d := device(t)
	defer d.Close()
	q := d.Queue()
	for _, n := range []int{0, 1, 255, 1000} {
		x := make([]float32, 1000)
		for i := range x {
			x[i] = float32(i + 1)
		}
		x[0], x[999] = float32(math.NaN()), float32(math.Inf(1))
		b, err := d.Alloc(compute.F32, len(x))
		if err != nil {
			t.Fatal(err)
		}
		q.Write(b, x)
		q.Abilities().Remote.Clear(b, n)
		got := make([]float32, len(x))
		q.Read(got, b, 0)
		if err := q.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
		for i, v := range got {
			want := x[i]
			if i < n {
				want = 0
			}
			if math.Float32bits(v) != math.Float32bits(want) {
				t.Fatalf("element %d is %g after %d were cleared, want %g", i, v, n, want)
			}
		}
	}
}
