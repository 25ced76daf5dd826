package detmath

import (
	"hash/fnv"
	"math"
	"math/rand/v2"
	"testing"
)

// near allows a few ulp: package math itself is within 1 ulp.
func near(got, want, ulps float64) bool {
	return math.Abs(got-want) <= ulps*0x1p-52*math.Max(math.Abs(want), 1e-300) || got == want
}

func TestAgainstMath(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 200_000 {
		x := (r.Float64() - 0.5) * 1400
		if got, want := Exp(x), math.Exp(x); !near(got, want, 3) {
			t.Fatalf("Exp(%v) = %v, want %v", x, got, want)
		}
		x = math.Exp((r.Float64() - 0.5) * 60)
		if got, want := Log(x), math.Log(x); !near(got, want, 3) {
			t.Fatalf("Log(%v) = %v, want %v", x, got, want)
		}
		x = (r.Float64() - 0.5) * 300_000
		s, c := SinCos(x)
		ws, wc := math.Sincos(x)
		// Absolute: near a multiple of π the relative error is the reduction's.
		if math.Abs(s-ws) > 4e-16 || math.Abs(c-wc) > 4e-16 {
			t.Fatalf("SinCos(%v) = %v, %v, want %v, %v", x, s, c, ws, wc)
		}
		th, y := 1e4+r.Float64()*1e6, -r.Float64()
		if got, want := Pow(th, y), math.Pow(th, y); !near(got, want, 20) {
			t.Fatalf("Pow(%v, %v) = %v, want %v", th, y, got, want)
		}
	}
}

func BenchmarkExp(b *testing.B) {
	x, w := make([]float64, 4096), make([]float64, 4096)
	for i := range x {
		x[i] = -float64(i) / 100
	}
	all := func(exp func(float64) float64) func(x []float64) float64 {
		return func(x []float64) (sum float64) {
			for _, v := range x {
				sum += exp(v)
			}
			return sum
		}
	}
	for _, f := range []struct {
		name string
		exp  func(x []float64) float64
	}{{"Exp", all(Exp)}, {"math.Exp", all(math.Exp)}} {
		b.Run(f.name, func(b *testing.B) {
			for b.Loop() {
				copy(w, x)
				if f.exp(w) < 0 {
					b.Fatal(w)
				}
			}
		})
	}
}

func TestEdges(t *testing.T) {
	for _, c := range []struct{ x, want float64 }{
		{0, 1}, {1, math.E}, {math.Inf(1), math.Inf(1)}, {math.Inf(-1), 0}, {-746, 0}, {710, math.Inf(1)},
	} {
		if got := Exp(c.x); !near(got, c.want, 2) {
			t.Errorf("Exp(%v) = %v, want %v", c.x, got, c.want)
		}
	}
	if got := Exp(math.NaN()); got == got {
		t.Errorf("Exp(NaN) = %v", got)
	}
	if s, c := SinCos(0); s != 0 || c != 1 {
		t.Errorf("SinCos(0) = %v, %v", s, c)
	}
	if Log(1) != 0 {
		t.Errorf("Log(1) = %v", Log(1))
	}
}

// TestBits pins the bits: it fails on a platform that computes others.
func TestBits(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	h := fnv.New64a()
	put := func(x float64) {
		b := math.Float64bits(x)
		for i := range 8 {
			h.Write([]byte{byte(b >> (8 * i))})
		}
	}
	for range 20_000 {
		put(Exp((r.Float64() - 0.5) * 100))
		put(Log(r.Float64() + 1e-9))
		s, c := SinCos(r.Float64() * 1e5)
		put(s)
		put(c)
	}
	if got, want := h.Sum64(), uint64(0x176309077380b8d1); got != want {
		t.Errorf("bits hash to %#x, want %#x", got, want)
	}
}
