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

// SoftExp replaces every x ≤ 0 by e**x and NaN by 0, as a softmax needs it for the
// tokens of a vocabulary, and returns their sum in order: in less than half of
// Exp's time and within a few ulp of it. With x = n·ln2/steps + r it is
// 2**(n/steps), from a table, times a polynomial of degree 5, whose first omitted
// term is below 2^-60.
func SoftExp(xs []float64) (sum float64) {
	for i, x := range xs {
		if !(x >= lowest) {
			if xs[i] = 0; x < lowest {
				xs[i] = Exp(x)
				sum += xs[i]
			}
			continue
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
		w = math.Float64frombits(math.Float64bits(w) + uint64(n>>7)<<52) // exact
		xs[i] = w
		sum += w
	}
	return sum
}
