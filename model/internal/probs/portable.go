package probs

import "math"

// With n = round(x·log₂e) and r = x − n·ln2, e^x = 2ⁿ·(1 + r + r²·q(r)); q of degree
// 10 interpolates (e^r−1−r)/r² at the Chebyshev nodes of |r| ≤ ln2/2, which is closer
// than 2⁻⁶¹ relative to e^r.
const (
	lowest = -707
	magic  = 1.5 * (1 << 52) // adding it leaves a rounded integer in the low bits
	ln2Hi  = 0x1.62e42fefa39efp-1
	ln2Lo  = 0x1.abc9e3b39803fp-56
)

// exp returns e^x for x ≤ 0, and 0 below lowest, where it is close to the smallest
// normal number, and for NaN.
func exp(x float64) float64 {
	if !(x >= lowest) {
		return 0
	}
	t := math.FMA(x, math.Log2E, magic)
	n := t - magic
	r := math.FMA(-n, ln2Hi, x)
	r = math.FMA(-n, ln2Lo, r)
	q := math.FMA(2.0914679376583935e-09, r, 2.510520637395701e-08)
	q = math.FMA(q, r, 2.7557273661348637e-07)
	q = math.FMA(q, r, 2.7557255425746435e-06)
	q = math.FMA(q, r, 2.4801587325533363e-05)
	q = math.FMA(q, r, 0.00019841269874800493)
	q = math.FMA(q, r, 0.0013888888888883752)
	q = math.FMA(q, r, 0.008333333333326141)
	q = math.FMA(q, r, 0.04166666666666667)
	q = math.FMA(q, r, 0.1666666666666667)
	q = math.FMA(q, r, 0.5)
	q = math.FMA(q, r, 1)
	q = math.FMA(q, r, 1)
	// The shift leaves n in the exponent's place.
	return math.Float64frombits(math.Float64bits(q) + math.Float64bits(t)<<52)
}

// The same for float32, by the polynomial of degree 4 of package kern. No step is
// fused, because a fused one of float32 is slow in plain Go; n·ln2Hi32 is exact.
const (
	lowest32 = -87.33654 // just above ln 2⁻¹²⁶
	magic32  = 1.5 * (1 << 23)
	ln2Hi32  = 0.693145751953125
	ln2Lo32  = 1.42860676533018e-6
)

// exp32 returns e^x for x ≤ 0, and 0 below lowest32 and for NaN.
func exp32(x float32) float32 {
	if !(x >= lowest32) {
		return 0
	}
	t := float32(x*math.Log2E) + magic32
	n := t - magic32
	r := x - float32(n*ln2Hi32)
	r -= float32(n * ln2Lo32)
	q := float32(r*0.0013926213466153748) + 0.0083632029715759344
	q = float32(q*r) + 0.041666554437687707
	q = float32(q*r) + 0.16666576845993972
	q = float32(q*r) + 0.5
	q = float32(q*r) + 1
	q = float32(q*r) + 1
	return math.Float32frombits(math.Float32bits(q) + math.Float32bits(t)<<23)
}
