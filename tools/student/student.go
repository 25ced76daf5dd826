// Package student has the distribution of Student's t.
package student

import "math"

// Tail is the probability that Student's t with so many degrees of freedom exceeds x (Abramowitz and Stegun, 26.7.3 and 26.7.4).
func Tail(x float64, free int) float64 {
	sin, cos := math.Sincos(math.Atan(x / math.Sqrt(float64(free))))
	term, sum := 1.0, 0.0
	if free%2 == 1 {
		term = cos
	}
	for k := 1 + free%2; k < free; k += 2 {
		sum += term
		term *= cos * cos * float64(k) / float64(k+1)
	}
	inside := sin * sum
	if free%2 == 1 {
		inside = 2 / math.Pi * (math.Atan(x/math.Sqrt(float64(free))) + inside)
	}
	return (1 - inside) / 2
}

// Quantile is the x that Student's t exceeds with probability p < 1/2.
func Quantile(p float64, free int) float64 {
	lo, hi := 0.0, 1.0
	for Tail(hi, free) > p {
		hi *= 2
	}
	for range 60 {
		if mid := (lo + hi) / 2; Tail(mid, free) > p {
			lo = mid
		} else {
			hi = mid
		}
	}
	return hi
}
