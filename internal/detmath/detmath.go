// Package detmath implements a few float64 functions, of the forward path and of losses, with
// the same bits on every platform. Package math does not promise that: some ports use
// assembly, and Go fuses x*y+z where the machine can. Here every fused step is an
// explicit math.FMA, which is correctly rounded everywhere, and every other product is
// converted before it is added.
//
// Results are within 2 ulp of the true value. The exponentials of package probs and of
// the CPU's kernels are different on purpose: each is the oracle of assembly with the
// same bits, while the bits of the one here are part of every rotary table.
package detmath

import "math"

// ln 2 in two parts: the product of ln2Hi with any exponent is exact.
const (
	ln2Hi = 6.93147180369123816490e-01
	ln2Lo = 1.90821492927058770002e-10
)

// Exp returns e**x: 2**n times a degree-13 Taylor polynomial on |r| ≤ ln2/2,
// whose first omitted term is below 2^-59.
func Exp(x float64) float64 {
	switch {
	case x != x || x > 709.782712893384:
		return x + math.Inf(1) // NaN stays NaN
	case x < -745.1332191019411:
		return 0
	}
	n := math.Floor(math.FMA(x, math.Log2E, 0.5))
	r := math.FMA(-n, ln2Hi, x)
	r = math.FMA(-n, ln2Lo, r)
	p := math.FMA(1.0/6227020800, r, 1.0/479001600)
	p = math.FMA(p, r, 1.0/39916800)
	p = math.FMA(p, r, 1.0/3628800)
	p = math.FMA(p, r, 1.0/362880)
	p = math.FMA(p, r, 1.0/40320)
	p = math.FMA(p, r, 1.0/5040)
	p = math.FMA(p, r, 1.0/720)
	p = math.FMA(p, r, 1.0/120)
	p = math.FMA(p, r, 1.0/24)
	p = math.FMA(p, r, 1.0/6)
	p = math.FMA(p, r, 0.5)
	p = math.FMA(p, r, 1)
	p = math.FMA(p, r, 1)
	if e := int(n); e > -1022 && e < 1023 {
		return p * math.Float64frombits(uint64(e+1023)<<52) // exact
	}
	return math.Ldexp(p, int(n))
}

// Log returns the natural logarithm of a positive finite x: with x = 2**e·m and
// m in [√½, √2), ln m = 2·atanh(s), s = (m−1)/(m+1), as a series in s² to s^27.
func Log(x float64) float64 {
	m, e := math.Frexp(x)
	if m < math.Sqrt2/2 {
		m, e = m*2, e-1
	}
	s := (m - 1) / (m + 1)
	s2 := float64(s * s)
	var p float64
	for k := 27; k >= 3; k -= 2 {
		p = math.FMA(p, s2, 1/float64(k))
	}
	// 2s + 2s³p, small part first, then the exponent.
	t := math.FMA(float64(2*s)*s2, p, float64(float64(e)*ln2Lo))
	return math.FMA(float64(e), ln2Hi, t+float64(2*s))
}

// Pow returns x**y for a positive finite x.
func Pow(x, y float64) float64 { return Exp(float64(y * Log(x))) }

// π/2 in three parts. The first two have 33 significant bits, so n·part is
// exact for the n < 2^20 that positions reach.
const (
	pio2A = 1.57079632673412561417e+00
	pio2B = 6.07710050630396597660e-11
	pio2C = 2.02226624879595063154e-21
)

// SinCos returns the sine and cosine of x for |x| < 2^20.
func SinCos(x float64) (sin, cos float64) {
	n := math.Floor(math.FMA(x, 2/math.Pi, 0.5))
	r := math.FMA(-n, pio2A, x)
	r = math.FMA(-n, pio2B, r)
	r = math.FMA(-n, pio2C, r)
	z := float64(r * r)
	// Taylor on |r| ≤ π/4: the first omitted terms are below 2^-58.
	s := math.FMA(-1.0/1307674368000, z, 1.0/6227020800)
	s = math.FMA(s, z, -1.0/39916800)
	s = math.FMA(s, z, 1.0/362880)
	s = math.FMA(s, z, -1.0/5040)
	s = math.FMA(s, z, 1.0/120)
	s = math.FMA(s, z, -1.0/6)
	s = math.FMA(float64(r*z), s, r)
	c := math.FMA(1.0/20922789888000, z, -1.0/87178291200)
	c = math.FMA(c, z, 1.0/479001600)
	c = math.FMA(c, z, -1.0/3628800)
	c = math.FMA(c, z, 1.0/40320)
	c = math.FMA(c, z, -1.0/720)
	c = math.FMA(c, z, 1.0/24)
	c = math.FMA(c, z, -0.5)
	c = math.FMA(c, z, 1)
	switch int64(n) & 3 {
	case 0:
		return s, c
	case 1:
		return c, -s
	case 2:
		return -s, -c
	}
	return -c, s
}
