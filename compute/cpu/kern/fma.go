package kern

import "math"

// fma32 returns a·b + c, rounded once. The float64 product of two float32 is exact, so it does
// not change if a compiler fuses it with the addition. The sum is rounded to 53 bits, and
// rounding that to 24 bits goes wrong only if it lies halfway between two float32 without being
// exact.
func fma32(a, b, c float32) float32 {
	s := float64(a)*float64(b) + float64(c)
	if halfway(math.Float64bits(s)) {
		return fma32Odd(a, b, c)
	}
	return float32(s)
}

// halfway reports whether a float64 may lie halfway between two float32: the 29
// bits that a normal float32 drops are 100…0, or the result is subnormal, where
// the place of the half varies. Zero, which is common, is exact: the subtraction
// wraps it around.
func halfway(u uint64) bool {
	return u<<35 == 1<<63 || u<<1-1 < (1023-126)<<53-1
}

// fma32Odd is fma32 without the shortcut.
func fma32Odd(a, b, c float32) float32 { return float32(sumToOdd(float64(a)*float64(b), float64(c))) }

// sumToOdd returns p + z, with the last bit of an inexact sum made odd, towards the exact value.
// Rounding this to at most 51 bits gives what rounding the exact sum gives (Boldo and Melquiond,
// Emulation of FMA and correctly rounded sums: proved algorithms using rounding to odd).
func sumToOdd(p, z float64) float64 {
	s := p + z
	// The error of a sum is a float64, and this finds it (Knuth's TwoSum).
	d := s - p
	e := (p - (s - d)) + (z - d)
	if u := math.Float64bits(s); u&1 == 0 && (e > 0 || e < 0) {
		if (e > 0) == (s > 0) {
			u++
		} else {
			u--
		}
		s = math.Float64frombits(u)
	}
	return s
}
