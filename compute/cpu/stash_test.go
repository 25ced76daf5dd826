package cpu_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"talf/compute"
	"talf/compute/cpu/kern"
)

// bf16 returns x rounded to bfloat16.
func bf16(x float32) float32 { return math.Float32frombits(uint32(kern.BF16(x)) << 16) }

// Stashed values come back rounded, on any number of threads, and nothing else is touched.
func TestStashedValuesComeBackRounded(t *testing.T) {
	const n, more = 3*8192 + 77, 40
	r := rand.New(rand.NewPCG(1, 1))
	for threads := 1; threads <= 3; threads++ {
		d := device(t, kern.Best(), threads)
		q := d.Queue()
		s, ops := q.Abilities().Stash, q.Abilities().Train
		x, y := make([]float32, n+more), make([]float32, n+more)
		for i := range x {
			x[i], y[i] = float32(r.NormFloat64()), 7
		}
		x[0], x[1], x[2] = float32(math.Inf(1)), float32(math.NaN()), -0x1p-140
		h := s.Stash(n)
		if h.DType() != compute.BF16 || len(h.Shape()) != 1 || h.Shape()[0] != n {
			t.Fatalf("%v %v", h.DType(), h.Shape())
		}
		s.Narrow(h, ops.Host(x, len(x)), n)
		s.Widen(ops.Host(y, len(y)), h, n)
		for i, v := range y {
			want := float32(7)
			if i < n {
				want = bf16(x[i])
			}
			if v != want && !(v != v && want != want) {
				t.Fatalf("%d threads: element %d of %v is %v, want %v", threads, i, x[i], v, want)
			}
		}
		d.Close()
	}
}

// The loss on a weight of bfloat16 has the bits of the loss on its values in
// float32, on every class.
func TestSoftCEOnHalfWeightsHasTheBitsOfTheirValues(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 2))
	const k = 3
	for _, class := range kern.Available() {
		for _, s := range []struct{ n, h, v int }{{1, 5, 9}, {20, 33, 70}, {90, 64, 131}} {
			d := device(t, class, 2)
			q := d.Queue()
			ops := q.Abilities().Train
			raw, h := make([]float32, s.v*s.h), make([]float32, s.n*s.h)
			for i := range raw {
				raw[i] = bf16(float32(r.NormFloat64()))
			}
			for i := range h {
				h[i] = float32(r.NormFloat64())
			}
			l := &compute.SoftLabels{K: k}
			scale := make([]float32, s.n)
			for i := range scale {
				scale[i] = 0.5
				at := r.IntN(s.v)
				for j := range k {
					l.IDs, l.Prob = append(l.IDs, int32((at+j)%s.v)), append(l.Prob, 0.3)
				}
				l.Tail = append(l.Tail, 0.1)
			}
			m := (&matrixOf{s.v, s.h, raw}).matrix()
			var want [2][]float32
			for i, as := range []compute.DType{compute.F32, compute.BF16} {
				w, err := d.Pack(as, m)
				if err != nil {
					t.Fatal(err)
				}
				if b := w.(compute.Buffer); b.DType() != as {
					t.Errorf("a weight packed as %v is a buffer of %v", as, b.DType())
				}
				loss, dh := make([]float32, s.n), make([]float32, s.n*s.h)
				ops.SoftCE(ops.Host(loss, s.n, 1), ops.Host(dh, s.n, s.h), nil, ops.Host(h, s.n, s.h), w.(compute.Buffer), l, scale, s.n)
				if i == 0 {
					want = [2][]float32{loss, dh}
					continue
				}
				for j, got := range [2][]float32{loss, dh} {
					for e, x := range got {
						if math.Float32bits(x) != math.Float32bits(want[j][e]) {
							t.Fatalf("%v, %+v: element %d of result %d is %v, want %v", class, s, e, j, x, want[j][e])
						}
					}
				}
			}
			d.Close()
		}
	}
}

// matrixOf returns a matrix of float32.
type matrixOf struct {
	rows, cols int
	f          []float32
}

func (m *matrixOf) matrix() compute.Matrix {
	raw := make([]byte, 4*len(m.f))
	for i, x := range m.f {
		u := math.Float32bits(x)
		raw[4*i], raw[4*i+1], raw[4*i+2], raw[4*i+3] = byte(u), byte(u>>8), byte(u>>16), byte(u>>24)
	}
	return compute.Matrix{Rows: m.rows, Cols: m.cols, Type: compute.F32, Data: raw}
}
