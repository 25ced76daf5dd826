package kern

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"
)

// everyClass runs a benchmark for each class.
func everyClass(b *testing.B, fn func(b *testing.B, f *Funcs)) {
	for _, c := range Available() {
		f, err := For(c)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(c.String(), func(b *testing.B) { fn(b, f) })
	}
}

// everyShape is everyClass that also runs the tables whose shapes were measured here.
func everyShape(b *testing.B, fn func(b *testing.B, f *Funcs)) {
	everyClass(b, fn)
	for _, c := range Available() {
		f, err := Tuned(c)
		if err != nil {
			b.Fatal(err)
		}
		if f.cut != nil {
			b.Run(c.String()+" shapes "+f.Shapes.String(), func(b *testing.B) { fn(b, f) })
		}
	}
}

// BenchmarkGemm multiplies rows by weights of several panels, from each level of
// the memory: GFLOP/s, and GB/s of weights for each pass over them.
func BenchmarkGemm(b *testing.B) {
	const k = 256 // 32 KiB a panel
	for _, m := range []struct {
		name   string
		panels int
	}{{"L1", 1}, {"L2", 24}, {"DRAM", 16384}} {
		for _, rows := range []int{1, 8, 14, 64} {
			b.Run(fmt.Sprintf("%s/rows=%d", m.name, rows), func(b *testing.B) {
				everyClass(b, func(b *testing.B, f *Funcs) {
					if f.Class == Portable && m.panels > 24 {
						b.Skip("plain Go does not reach the memory's speed")
					}
					r := rand.New(rand.NewPCG(1, 1))
					a, w, c := fill(r, rows*k), make([]float32, m.panels*k*Panel), make([]float32, rows*Panel)
					copy(w, fill(r, min(len(w), 1<<18)))
					for i := 1 << 18; i < len(w); i *= 2 {
						copy(w[i:], w[:i])
					}
					for b.Loop() {
						for p := range m.panels {
							for i := 0; i < rows; i += f.MaxRows {
								n := min(f.MaxRows, rows-i)
								f.Gemm(c[i*Panel:], Panel, a[i*k:], 1, n, w[p*k*Panel:], Panel, n, k, false)
							}
						}
					}
					s := b.Elapsed().Seconds() / float64(b.N)
					b.ReportMetric(2*float64(rows*len(w))/s/1e9, "GFLOP/s")
					b.ReportMetric(4*float64(len(w))/s/1e9, "GB/s")
					b.ReportMetric(0, "ns/op")
				})
			})
		}
	}
}

// BenchmarkVector runs each function over 4096 elements, in the first levels of the cache, and
// reports nanoseconds per element.
func BenchmarkVector(b *testing.B) {
	const n = 4096
	r := rand.New(rand.NewPCG(2, 2))
	x, y, z, u, v := fill(r, n), fill(r, n), fill(r, n), fill(r, n), fill(r, n)
	h := &Adam{LR: 1e-3, Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, Scale: 1, C1: 1, C2: 1}
	for i := range v {
		v[i] *= v[i]
	}
	for _, c := range []struct {
		name string
		fn   func(f *Funcs)
	}{
		{"Exp", func(f *Funcs) { f.Exp(z, x) }},
		{"ExpSum", func(f *Funcs) { f.ExpSum(z, x, 3) }},
		{"ExpTotal", func(f *Funcs) { f.ExpTotal(x, 3) }},
		{"Max", func(f *Funcs) { f.Max(x) }},
		{"ArgMax", func(f *Funcs) { f.ArgMax(x) }},
		{"Mul", func(f *Funcs) { f.Mul(z, x, y) }},
		{"Axpy", func(f *Funcs) { f.Axpy(z, 0, x) }},
		{"Dot", func(f *Funcs) { f.Dot(x, y) }},
		{"SiLUMul", func(f *Funcs) { f.SiLUMul(z, x, y) }},
		{"SiLUMulGrad", func(f *Funcs) { f.SiLUMulGrad(z, u, x, y, x) }},
		{"GELU", func(f *Funcs) { f.GELU(z, x) }},
		{"AdamW", func(f *Funcs) { f.AdamW(z, x, u, v, h) }},
	} {
		b.Run(c.name, func(b *testing.B) {
			everyClass(b, func(b *testing.B, f *Funcs) {
				for b.Loop() {
					c.fn(f)
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/elem")
				b.ReportMetric(0, "ns/op")
			})
		})
	}
}

// BenchmarkPack packs a matrix of 1024×1024 and reports nanoseconds per element.
func BenchmarkPack(b *testing.B) {
	const n = 1024
	r := rand.New(rand.NewPCG(3, 3))
	src, dst := fill(r, n*n), make([]float32, n*n)
	half, stored, octets := make([]uint16, BF16Len(n, n)), make([]byte, 2*n*n), make([]byte, Q8Len(n, n))
	for i, x := range src {
		binary.LittleEndian.PutUint16(stored[2*i:], BF16(x))
	}
	for _, c := range []struct {
		name string
		fn   func()
	}{
		{"rows", func() { PackRows(dst, src, n, n, n) }},
		{"cols", func() { PackCols(dst, src, n, n, n) }},
		{"bf16", func() { PackBF16(half, src, n, n, n) }},
		{"bf16 stored", func() { PackBF16Stored(half, stored, n, n) }},
		{"q8", func() { PackQ8(octets, src, n, n, n) }},
	} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				c.fn()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/(n*n), "ns/elem")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// BenchmarkQuantA quantises rows of activations and reports nanoseconds per element.
func BenchmarkQuantA(b *testing.B) {
	const n = 4096
	x := fill(rand.New(rand.NewPCG(4, 4)), n)
	q := make([]uint32, Q8ALen(n))
	everyClass(b, func(b *testing.B, f *Funcs) {
		for planes := 1; planes <= 2; planes++ {
			b.Run(fmt.Sprintf("planes=%d", planes), func(b *testing.B) {
				for b.Loop() {
					f.QuantA(q, x, planes)
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/elem")
				b.ReportMetric(0, "ns/op")
			})
		}
	})
}
