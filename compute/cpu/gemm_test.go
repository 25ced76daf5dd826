package cpu_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"talf/compute"
	"talf/compute/cpu"
)

// The right side of a product of few rows is packed where it is multiplied, and that of many rows before: a row has the
// same bits, and nothing beside the result is written.
func TestProductsOfFewRowsHaveTheBitsOfMany(t *testing.T) {
	const most = 400 // packed before
	r := rand.New(rand.NewPCG(5, 5))
	for _, threads := range []int{1, 2, 5} {
		d := device(t, cpu.Default().Class, threads)
		ops := d.Queue().Abilities().Train
		for _, s := range []struct{ n, k int }{{1, 1}, {31, 300}, {77, 257}, {300, 512}, {1100, 40}, {40, 0}} {
			for mode := range 8 {
				ta, tb, beta := mode&1 != 0, mode&2 != 0, float32(mode>>2)
				// mat is [rows][cols], or its transpose, with three columns to spare and behind an offset.
				mat := func(rows, cols int, t bool) compute.Mat {
					m := compute.Mat{Off: 7, Rows: rows, Cols: cols, Stride: cols + 3, T: t}
					if t {
						m.Stride = rows + 3
					}
					f := make([]float32, 7+max(rows, cols)*m.Stride)
					for i := range f {
						f[i] = r.Float32() - 0.5
					}
					m.Buf = ops.Host(f, len(f))
					return m
				}
				a, b, c := mat(most, s.k, ta), mat(s.k, s.n, tb), mat(most, s.n, false)
				was := make([]float32, c.Buf.Shape()[0])
				d.Queue().Read(was, c.Buf, 0)
				product := func(m int) []float32 {
					a, c := a, c
					a.Rows, c.Rows = m, m
					f := append([]float32(nil), was...)
					c.Buf = ops.Host(f, len(f))
					ops.Gemm(c, a, b, beta)
					return f
				}
				want := product(most)
				for _, m := range []int{1, 64, 65, 255, 257, 384, 385} {
					got := product(m)
					for i, x := range got {
						w := was[i]
						if e := i - c.Off; e >= 0 && e < m*c.Stride && e%c.Stride < s.n {
							w = want[i]
						}
						if math.Float32bits(x) != math.Float32bits(w) {
							t.Fatalf("%d threads, %+v, transposed %v %v, beta %g: element %d of %d rows is %v, want %v",
								threads, s, ta, tb, beta, i, m, x, w)
						}
					}
				}
			}
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
