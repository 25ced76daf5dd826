package kern

import (
	"math"
	"testing"
)

func TestGELUIsWithinItsBound(t *testing.T) {
	step := uint32(97)
	if testing.Short() {
		step = 1009
	}
	var worst float64
	var at float32
	for u := uint32(0); u <= math.Float32bits(40); u += step {
		for _, x := range []float32{math.Float32frombits(u), -math.Float32frombits(u)} {
			v := float64(x)
			want := v * 0.5 * math.Erfc(-v/math.Sqrt2)
			_, e := math.Frexp(want)
			// Half a unit in the last place is due to rounding the result.
			if d := math.Abs(float64(gelu32(x))-want) - math.Ldexp(1, max(e, -125)-25); d > worst {
				worst, at = d, x
			}
		}
	}
	t.Logf("largest error beyond rounding %.3g, at %v", worst, at)
	if worst > 7e-8 {
		t.Errorf("GELU(%v) = %v is %.3g off beyond rounding, want at most 7e-8", at, gelu32(at), worst)
	}
}

// To the left of 0 the result is small, and the error stays small relative to it.
func TestGELUKeepsItsDigitsLeftOfZero(t *testing.T) {
	for x := float32(-8); x < 0; x += 1.0 / 512 {
		v := float64(x)
		want := v * 0.5 * math.Erfc(-v/math.Sqrt2)
		// exp's argument is rounded at x²/2 ≤ 32: 2⁻¹⁹ is half its last place.
		if d := math.Abs(float64(gelu32(x))/want - 1); d > 0x1p-18 {
			t.Fatalf("GELU(%v) = %v, want %v: relative error %.2g", x, gelu32(x), want, d)
		}
	}
}

func TestGELUAtItsEnds(t *testing.T) {
	inf, negZero := float32(math.Inf(1)), float32(math.Copysign(0, -1))
	for _, c := range []struct{ x, want float32 }{
		{0, 0},
		{negZero, negZero},
		{inf, inf},
		{-inf, 0},
		{-40, 0},
		{-math.MaxFloat32, 0},
		{math.MaxFloat32, math.MaxFloat32},
		{20, 20},
	} {
		if got := gelu32(c.x); math.Float32bits(got) != math.Float32bits(c.want) {
			t.Errorf("GELU(%v) = %v, want %v", c.x, got, c.want)
		}
	}
	if got := gelu32(float32(math.NaN())); got == got {
		t.Errorf("GELU(NaN) = %v", got)
	}
}

// Each GELU kernel is compared with gelu32 over all exponents.
func TestGELUHasThePortableBitsEverywhere(t *testing.T) {
	step := uint64(4099)
	if testing.Short() {
		step = 65537
	}
	for _, f := range others(t) {
		x, y := make([]float32, 64), make([]float32, 64)
		for u := uint64(0); u < 1<<32; u += 64 * step {
			for i := range x {
				x[i] = math.Float32frombits(uint32(u + uint64(i)*step))
			}
			f.GELU(y, x)
			for i, v := range y {
				if want := gelu32(x[i]); !sameBits(v, want) {
					t.Fatalf("%v: GELU(%x) = %x, portable %x", f.Class, x[i], v, want)
				}
			}
		}
	}
}
