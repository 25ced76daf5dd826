package kern

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
)

// exactFMA rounds the exact a·b + c once, with math/big.
func exactFMA(a, b, c float32) float32 {
	fa, fb, fc := float64(a), float64(b), float64(c)
	s := fa*fb + fc
	if math.IsNaN(s) || math.IsInf(s, 0) || s == 0 {
		return float32(s) // no rounding decides: a sum that is not zero cannot give zero here
	}
	x := new(big.Float).SetPrec(2000).SetFloat64(fa)
	x.Mul(x, new(big.Float).SetPrec(2000).SetFloat64(fb))
	x.Add(x, new(big.Float).SetPrec(2000).SetFloat64(fc))
	r, _ := x.Float32()
	return r
}

func checkFMA(t *testing.T, a, b, c float32) {
	t.Helper()
	want := exactFMA(a, b, c)
	if got := fma32(a, b, c); !sameBits(got, want) {
		t.Errorf("fma32(%x, %x, %x) = %x, want %x", a, b, c, got, want)
	}
	if got := fma32Odd(a, b, c); !sameBits(got, want) {
		t.Errorf("fma32Odd(%x, %x, %x) = %x, want %x", a, b, c, got, want)
	}
}

// sameBits reports equality of bits, with all NaNs equal.
func sameBits(a, b float32) bool {
	return math.Float32bits(a) == math.Float32bits(b) || a != a && b != b
}

// special are the values at which float32 code goes wrong.
var special = []float32{
	0, float32(math.Copysign(0, -1)), 1, -1, 0.5, 1.5, 2, -3,
	math.SmallestNonzeroFloat32, -math.SmallestNonzeroFloat32,
	0x1p-126, -0x1p-126, 0x1.fffffcp-127, 0x1p-127, 0x1p-75, 0x1p-74,
	math.MaxFloat32, -math.MaxFloat32, 0x1p127, 0x1p104, 0x1.000002p0, 0x1.fffffep0, 0x1.fffffep-1,
	0x1p24, 0x1.000002p24, 0x1p-24, 0x1p-25, -0x1p-25, 0x1.000002p-25,
	88.72283, 88.72284, -87.33654, -87.33655, -103.9, -104.1, 100, -1e30, 1e30,
	float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN()),
}

// randBits returns a float32 whose exponent is uniform over all, sometimes near
// that of the others so that sums cancel and carry.
func randBits(r *rand.Rand) float32 {
	u := r.Uint32()
	if r.IntN(3) > 0 {
		u = u&^(0xff<<23) | uint32(110+r.IntN(35))<<23
	}
	if r.IntN(4) == 0 {
		u &^= 1<<r.IntN(24) - 1 // few significant bits: halves and exact sums
	}
	return math.Float32frombits(u)
}

func TestFMARoundsTheExactSumOnce(t *testing.T) {
	for _, a := range special {
		for _, b := range special {
			for _, c := range special {
				checkFMA(t, a, b, c)
			}
		}
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range 300_000 {
		checkFMA(t, randBits(r), randBits(r), randBits(r))
	}
}

// A sum of a float32 and half of its last place, moved by a product far below:
// rounding to float64 first loses the product, and with it the direction.
func TestFMAIsRightWhereRoundingTwiceIsNot(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	twice := 0
	for range 200_000 {
		// c has 24 bits; p = (1 + 2⁻²³·i)(1 − 2⁻²³·i)·2^e lies just below 2^e, which
		// is half of c's last place.
		i := 1 + r.IntN(1000)
		a := 1 + float32(i)*0x1p-23
		b := 1 - float32(i)*0x1p-23
		e := -100 + r.IntN(200)
		a = float32(math.Ldexp(float64(a), e/2))
		b = float32(math.Ldexp(float64(b), e-e/2))
		c := float32(math.Ldexp(float64(1<<23+r.IntN(1<<23)), e+1))
		if math.IsInf(float64(c), 0) || c < 0x1p-100 {
			continue
		}
		if r.IntN(2) == 0 {
			b = -b
		}
		if r.IntN(2) == 0 {
			a, c = -a, -c
		}
		checkFMA(t, a, b, c)
		if s := float32(float64(a)*float64(b) + float64(c)); s != exactFMA(a, b, c) {
			twice++
		}
	}
	// Half of the cases have an odd last place in c, where ties-to-even moves away.
	if twice < 10_000 {
		t.Errorf("only %d cases would have been rounded wrongly in two steps: the test lost its point", twice)
	}
}

func TestFMAIsRightInTheSubnormals(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for range 200_000 {
		// products at and below the last place of the subnormals, sums around 2⁻¹²⁶
		a := float32(math.Ldexp(1+r.Float64(), -60-r.IntN(20)))
		b := float32(math.Ldexp(1+r.Float64(), -60-r.IntN(35)))
		c := math.Float32frombits(r.Uint32() & (1<<(1+r.IntN(25)) - 1))
		if r.IntN(4) == 0 { // exactly half of the last place, or a float64's last place off it
			a, b = 0x1p-75, 0x1p-75
			if r.IntN(2) == 0 {
				a, b = 0x1.000002p-75, 0x1.fffffcp-76
			}
		}
		if r.IntN(2) == 0 {
			a = -a
		}
		checkFMA(t, a, b, c)
	}
}

func FuzzFMA(f *testing.F) {
	f.Add(uint32(0x3f800001), uint32(0x3f7ffffe), uint32(0x4b800001))
	f.Add(uint32(0x1a000000), uint32(0x1a000000), uint32(1))
	f.Fuzz(func(t *testing.T, a, b, c uint32) {
		checkFMA(t, math.Float32frombits(a), math.Float32frombits(b), math.Float32frombits(c))
	})
}
