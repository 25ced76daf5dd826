package detmath

import "math"

const (
	steps    = 128              // of the table, a factor of two in all
	toSteps  = steps / math.Ln2 // steps in x
	stepHi   = ln2Hi / steps    // 33 bits: n·stepHi is exact
	stepLo   = ln2Lo / steps
	rounding = 3 << 51 // x + rounding − rounding is x as an integer
	lowest   = -707    // e**x is subnormal soon below it
)

// powers[j] is 2**(j/steps).
var powers = func() (p [steps]float64) {
	for j := range p {
		p[j] = Exp(float64(j) * math.Ln2 / steps)
	}
	return p
}()

// SoftExp returns e**x for x ≤ 0, as a softmax needs it for every token of a
// vocabulary: in less than half of Exp's time and within a few ulp of it. With
// x = n·ln2/steps + r it is 2**(n/steps), from a table, times a polynomial of
// degree 5, whose first omitted term is below 2^-60. NaN is no x.
func SoftExp(x float64) float64 {
	if x < lowest {
		return Exp(x)
	}
	t := float64(x*toSteps) + rounding
	n := int64(math.Float64bits(t)) - int64(math.Float64bits(rounding))
	f := t - rounding
	r := x - float64(f*stepHi)
	r -= float64(f * stepLo)
	p := float64(r*(1.0/120)) + 1.0/24
	p = float64(p*r) + 1.0/6
	p = float64(p*r) + 0.5
	p = float64(p*r) + 1
	p = float64(p * r) // e**r − 1
	w := powers[n&(steps-1)]
	w += float64(w * p)
	return math.Float64frombits(math.Float64bits(w) + uint64(n>>7)<<52) // exact
}
