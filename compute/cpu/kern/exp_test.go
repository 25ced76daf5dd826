package kern

import (
	"math"
	"testing"
)

// ulps returns |got − want| in units of want's last place as a float32.
func ulps(got float32, want float64) float64 {
	_, e := math.Frexp(want)
	return math.Abs(float64(got)-want) / math.Ldexp(1, max(e, -125)-24)
}

func TestExpIsWithinItsBound(t *testing.T) {
	step := uint32(97)
	if testing.Short() {
		step = 1009
	}
	var worst float64
	var at float32
	for _, end := range []float32{expHi, -expLo} {
		for u := uint32(0); u <= math.Float32bits(end); u += step {
			x := math.Float32frombits(u)
			if end == -expLo {
				x = -x
			}
			if e := ulps(exp32(x), math.Exp(float64(x))); e > worst {
				worst, at = e, x
			}
		}
	}
	t.Logf("largest error %.4f ulp, at %v", worst, at)
	if worst > 1.1 {
		t.Errorf("exp(%v) = %v is %.3f ulp off, want at most 1.1", at, exp32(at), worst)
	}
}

func TestExpEndsWhereItSays(t *testing.T) {
	inf := float32(math.Inf(1))
	lo, hi := float32(expLo), float32(expHi)
	for _, c := range []struct{ x, want float32 }{
		{0, 1},
		{float32(math.Copysign(0, -1)), 1},
		{math.SmallestNonzeroFloat32, 1},
		{inf, inf},
		{-inf, 0},
		{math.Nextafter32(hi, inf), inf},
		{math.MaxFloat32, inf},
		{math.Nextafter32(lo, -inf), 0},
		{-math.MaxFloat32, 0},
		{-1e30, 0},
	} {
		if got := exp32(c.x); math.Float32bits(got) != math.Float32bits(c.want) {
			t.Errorf("exp(%v) = %v, want %v", c.x, got, c.want)
		}
	}
	if got := exp32(float32(math.NaN())); got == got {
		t.Errorf("exp(NaN) = %v, want NaN", got)
	}
	if got := exp32(lo); got < 0x1p-126 || got > 0x1.001p-126 {
		t.Errorf("exp(%v) = %x, want the smallest normal numbers", lo, got)
	}
	if got := exp32(hi); got < 0x1.fff8p127 || got > math.MaxFloat32 {
		t.Errorf("exp(%v) = %x, want the largest numbers", hi, got)
	}
}
