package kern

import "math"

// The constants of exp32. With n = round(x·log₂e) and r = x − n·ln2, exp(x) =
// 2ⁿ·(1 + r + r²·q(r)); q of degree 4 interpolates (exp(r)−1−r)/r² at the
// Chebyshev nodes of |r| ≤ ln2/2, which is closer than 2⁻²⁸ relative to exp(r).
const (
	expLo    = -87.33654 // just above ln 2⁻¹²⁶: below it the result is 0
	expHi    = 88.72283  // just below ln 2¹²⁸: above it the result is +Inf
	expLog2e = 1.4426950408889634
	expMagic = 1.5 * (1 << 23) // adding it leaves a rounded integer in the low bits
	expLn2Hi = 0.693145751953125
	expLn2Lo = 1.42860676533018e-6
	expC0    = 0.5
	expC1    = 0.16666576845993972
	expC2    = 0.041666554437687707
	expC3    = 0.0083632029715759344
	expC4    = 0.0013926213466153748
	expBig   = 1 << 127 // NaN times it is NaN, anything above expHi times it is +Inf
)

// exp32 is the exp of all classes: each operation is rounded to float32 once.
func exp32(x float32) float32 {
	if !(x <= expHi) {
		return x * expBig
	}
	if x < expLo {
		return 0
	}
	t := fma32(x, expLog2e, expMagic)
	n := t - expMagic
	r := fma32(n, -expLn2Hi, x)
	r = fma32(n, -expLn2Lo, r)
	q := fma32(expC4, r, expC3)
	q = fma32(q, r, expC2)
	q = fma32(q, r, expC1)
	q = fma32(q, r, expC0)
	q = fma32(q, r, 1)
	q = fma32(q, r, 1)
	// The shift leaves n in the exponent's place; q is in [½√2, √2], and neither
	// end of [expLo, expHi] leaves the normal numbers.
	return math.Float32frombits(math.Float32bits(q) + math.Float32bits(t)<<23)
}
