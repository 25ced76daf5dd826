package probs

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"testing"
)

func same(a, b float64) bool { return math.Float64bits(a) == math.Float64bits(b) }

// row returns n logits of a kind: usual values, distant values, or values that no model
// should produce.
func row(r *rand.Rand, n, kind int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(r.NormFloat64() * []float64{2, 300, 2}[kind%3])
		if kind%3 == 2 && r.IntN(5) == 0 {
			x[i] = []float32{float32(math.NaN()), float32(math.Inf(-1)), 0, float32(math.Copysign(0, -1)), -math.MaxFloat32, 1e-40}[r.IntN(6)]
		}
	}
	return x
}

func doubles(r *rand.Rand, n int) []float64 {
	x := make([]float64, n)
	for i := range x {
		if x[i] = r.ExpFloat64(); r.IntN(8) == 0 {
			x[i] = []float64{0, math.NaN(), 1e-310, math.Copysign(0, -1)}[r.IntN(4)]
		}
	}
	return x
}

// guarded returns a slice with space after it, and a check that the space was not
// written to.
func guarded[T float32 | float64](n int) (x []T, check func() bool) {
	all := make([]T, n+40)
	for i := range all {
		all[i] = -77
	}
	return all[:n:n], func() bool {
		for _, v := range all[n:] {
			if v != -77 {
				return false
			}
		}
		return true
	}
}

// Every instruction set gives the bits of plain Go for rows of any length, and writes
// nothing outside them.
func TestInstructionSetsGiveTheBitsOfPlainGo(t *testing.T) {
	sets := Available()[1:]
	if len(sets) == 0 {
		t.Skip("only plain Go is available")
	}
	r := rand.New(rand.NewPCG(1, 2))
	for round := range 600 {
		n := round
		if round >= 300 {
			n = r.IntN(2000)
		}
		x, p, q := row(r, n, round), doubles(r, n), doubles(r, n)
		top := portable.Max(x)
		by := []float64{1, 1 / 0.7, 1e3, 1e-3}[r.IntN(4)]
		a, b := r.Float64()*2, r.Float64()*2
		for _, s := range sets {
			what := fmt.Sprintf("round %d, %v, %d elements", round, s, n)
			if got := s.Max(x); got != top {
				t.Fatalf("%s: Max is %v, want %v", what, got, top)
			}
			pair := func(name string, f func(s Rows, dst []float64) float64) {
				t.Helper()
				got, check := guarded[float64](n)
				want := make([]float64, n)
				sum, wanted := f(s, got), f(portable, want)
				if !same(sum, wanted) && sum == sum {
					t.Fatalf("%s: %s sums to %v, want %v", what, name, sum, wanted)
				}
				for i := range want {
					if !same(got[i], want[i]) && want[i] == want[i] {
						t.Fatalf("%s: %s, element %d is %v, want %v", what, name, i, got[i], want[i])
					}
				}
				if !check() {
					t.Fatalf("%s: %s wrote past the end", what, name)
				}
			}
			pair("SoftExp", func(s Rows, dst []float64) float64 { return s.SoftExp(dst, x, float64(top), by) })
			pair("Sum", func(s Rows, dst []float64) float64 { copy(dst, p); return s.Sum(dst) })
			pair("Residual", func(s Rows, dst []float64) float64 { return s.Residual(dst, p, q, a, b) })
			pair("Residual in place", func(s Rows, dst []float64) float64 {
				copy(dst, p)
				return s.Residual(dst, dst, q, a, b)
			})
			pair("Scale", func(s Rows, dst []float64) float64 { copy(dst, p); s.Scale(dst, a); return 0 })
			pair("Widen", func(s Rows, dst []float64) float64 { s.Widen(dst, x, a); return 0 })

			got, check := guarded[float32](n)
			want := make([]float32, n)
			bins, checkBins := guarded[float64](Bins(n))
			wanted := make([]float64, Bins(n))
			s.SoftBins(got, bins, x, top, float32(by))
			portable.SoftBins(want, wanted, x, top, float32(by))
			for i := range want {
				if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
					t.Fatalf("%s: SoftBins, element %d is %v, want %v", what, i, got[i], want[i])
				}
			}
			for i := range wanted {
				if !same(bins[i], wanted[i]) {
					t.Fatalf("%s: SoftBins, bin %d is %v, want %v", what, i, bins[i], wanted[i])
				}
			}
			if !check() || !checkBins() {
				t.Fatalf("%s: SoftBins wrote past the end", what)
			}
		}
	}
}

func TestExponentialsAreWithinTheirBounds(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	var worst, worst32 float64
	for i := range 300_000 {
		x := -r.Float64() * []float64{0.01, 1, 40, 707}[i%4]
		want := math.Exp(x)
		worst = max(worst, math.Abs(exp(x)-want)/want/0x1p-53)
		y := float32(-r.Float64() * []float64{0.01, 1, 20, 87.3}[i%4])
		want = math.Exp(float64(y))
		worst32 = max(worst32, math.Abs(float64(exp32(y))-want)/want/0x1p-24)
	}
	t.Logf("largest error %.2f·2⁻⁵³ of float64, %.2f·2⁻²⁴ of float32", worst, worst32)
	if worst > 4 || worst32 > 6 {
		t.Errorf("errors of %v·2⁻⁵³ and %v·2⁻²⁴, want at most 4 and 6", worst, worst32)
	}
	for _, c := range []struct{ x, want float64 }{
		{0, 1}, {math.Copysign(0, -1), 1}, {-707.5, 0}, {-1e300, 0}, {math.Inf(-1), 0}, {math.NaN(), 0},
	} {
		if got := exp(c.x); got != c.want {
			t.Errorf("exp(%v) = %v, want %v", c.x, got, c.want)
		}
		if got := exp32(float32(c.x)); got != float32(c.want) {
			t.Errorf("exp32(%v) = %v, want %v", c.x, got, c.want)
		}
	}
	if got := exp(-707); math.Abs(got/math.Exp(-707)-1) > 1e-15 {
		t.Errorf("exp(-707) = %v", got)
	}
}

// The bits are pinned: the test fails for a compiler that fuses operations that must
// not be fused, and for a platform that computes others.
func TestBitsArePinned(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	h := fnv.New64a()
	put := func(x float64) {
		_ = binary.Write(h, binary.LittleEndian, math.Float64bits(x))
	}
	for round := range 40 {
		x, p, q := row(r, 500, round), doubles(r, 500), doubles(r, 500)
		for i := range p {
			p[i], q[i] = max(p[i], 0), max(q[i], 0)
			if p[i] != p[i] || q[i] != q[i] {
				p[i], q[i] = 1, 1
			}
		}
		dst, w, bins := make([]float64, 500), make([]float32, 500), make([]float64, Bins(500))
		put(Best().SoftExp(dst, x, float64(Best().Max(x)), 1/0.7))
		Best().Scale(dst, 1.0/3)
		for _, v := range dst {
			put(v)
		}
		put(Best().Residual(dst, p, q, 1.1, 0.9))
		Best().SoftBins(w, bins, x, Best().Max(x), 1/0.7)
		put(Best().Sum(bins))
		for _, v := range w {
			put(float64(v))
		}
	}
	if got, want := h.Sum64(), uint64(0xc3db27f1277bc184); got != want {
		t.Errorf("bits hash to %#x, want %#x", got, want)
	}
}

func TestNothingIsAllocated(t *testing.T) {
	x, dst, w, bins := make([]float32, 1000), make([]float64, 1000), make([]float32, 1000), make([]float64, Bins(1000))
	for _, s := range Available() {
		if n := testing.AllocsPerRun(20, func() {
			s.SoftExp(dst, x, float64(s.Max(x)), 1)
			s.SoftBins(w, bins, x, 0, 1)
			s.Scale(dst, 0.5)
			s.Widen(dst, x, 0.5)
			s.Residual(dst, dst, dst, 1, s.Sum(dst))
		}); n != 0 {
			t.Errorf("%v: %v allocations, want none", s, n)
		}
	}
}

// BenchmarkRows uses the vocabulary of a Llama.
func BenchmarkRows(b *testing.B) {
	const n = 32000
	x := row(rand.New(rand.NewPCG(1, 1)), n, 0)
	dst, p, q, w, bins := make([]float64, n), make([]float64, n), make([]float64, n), make([]float32, n), make([]float64, Bins(n))
	for _, s := range Available() {
		for _, f := range []struct {
			name string
			run  func()
		}{
			{"Max", func() { s.Max(x) }},
			{"SoftExp", func() { s.SoftExp(dst, x, 10, 1) }},
			{"SoftBins", func() { s.SoftBins(w, bins, x, 10, 1) }},
			{"Sum", func() { s.Sum(dst) }},
			{"Residual", func() { s.Residual(dst, p, q, 1, 1) }},
			{"Scale", func() { s.Scale(dst, 1) }},
			{"Widen", func() { s.Widen(dst, w, 1) }},
		} {
			b.Run(fmt.Sprintf("%s/%v", f.name, s), func(b *testing.B) {
				for b.Loop() {
					f.run()
				}
			})
		}
	}
}
