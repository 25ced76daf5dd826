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
// those of a packed weight with those of a buffer.
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
	for _, s := range []struct{ m, n, k int }{{3, 2, 1}, {130, 34, 71}, {20, 133, 33}} {
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
			ops.Gemm(mc, ma, mb, float32(mode>>2))
			for i, got := range read(mc.Buf, len(c)) {
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
	const rows, v, hidden = 5, 70, 37
	w, h := random(v*hidden), random(rows*hidden)
	var data []byte
	for _, x := range w {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(x))
	}
	packed, err := d.Pack(compute.F32, compute.Matrix{Rows: v, Cols: hidden, Type: compute.F32, Data: data})
	if err != nil {
		t.Fatal(err)
	}
	labels := &compute.SoftLabels{K: 1, IDs: []int32{1, 2, 3, 4, 5}, Prob: []float32{1, 1, 1, 1, 1}}
	run := func(w compute.Buffer) []float32 {
		loss, dh := ops.Host(make([]float32, rows), rows), ops.Host(make([]float32, rows*hidden), rows, hidden)
		ops.SoftCE(loss, dh, nil, ops.Host(h, rows, hidden), w, labels, []float32{1, 1, 1, 1, 1}, rows)
		return append(read(loss, rows), read(dh, rows*hidden)...)
	}
	want := run(ops.Host(w, v, hidden))
	for i, got := range run(packed.(compute.Buffer)) {
		if math.Float32bits(got) != math.Float32bits(want[i]) {
			t.Fatalf("element %d with a packed weight is %g, with a buffer %g", i, got, want[i])
		}
	}
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
