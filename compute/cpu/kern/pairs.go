package kern

import "math"

// Products of pairs have bfloat16 on both sides, and the bits that VDPBF16PS gives them (Intel, 64 and
// IA-32 Architectures Software Developer's Manual, volume 2, VDPBF16PS): for every pair of k, the odd
// product and then the even one are added to a float32 in fused multiply-adds, which round to nearest
// even and treat subnormal factors, terms and results as zeros, whatever MXCSR says. Classes with AVX2 or
// AVX-512 alone do the two steps one by one; plain Go imitates them.

// PairsALen returns the elements of a row of k activations that RoundPairs writes. They fill an odd number
// of cache lines, as those of BF16ALen do; what a row does not need is neither written nor read.
func PairsALen(k int) int {
	const line = 16
	return (((k+1)/2+line-1)/line | 1) * line
}

// RoundPairs rounds the row x to bfloat16, to nearest, ties to even, and writes it for GemmPairs: pairs of
// consecutive k, the even one in the lower half. The partner of an odd last k is zero.
func RoundPairs(dst []uint32, x []float32) {
	dst = dst[:(len(x)+1)/2]
	for i := roundPairs(dst, x); i < len(dst); i++ {
		dst[i] = uint32(BF16(x[2*i]))
		if 2*i+1 < len(x) {
			dst[i] |= uint32(BF16(x[2*i+1])) << 16
		}
	}
}

const minNormal = 0x1p-126

// flushedWord widens a bfloat16. Subnormal numbers become zeros of their sign.
func flushedWord(h uint16) float64 {
	if h&0x7f80 == 0 {
		h &= 1 << 15
	}
	return float64(widen(h))
}

// flushedFMA returns a·b + c of float32 that are not subnormal, rounded once, where a·b is exact as a
// float64. A result that is below the normal numbers after rounding to 24 bits is a zero of its sign.
func flushedFMA(a, b float64, c float32) float32 {
	p, z := a*b, float64(c)
	s := p + z
	if !halfway(math.Float64bits(s)) {
		return float32(s)
	}
	s = sumToOdd(p, z)
	// Just below the normal numbers 24 bits reach further down than a float32 does: what is at least
	// halfway from the largest of those to the normal ones rounds up.
	switch t := math.Abs(s); {
	case t >= minNormal:
		return float32(s)
	case t < minNormal*(1-0x1p-25):
		return float32(math.Copysign(0, s))
	}
	return float32(math.Copysign(minNormal, s))
}

func gemmPairs(c []float32, ldc int, a []uint32, ars int, b []uint16, rows, k int, acc bool) {
	for r := range rows {
		cr := (*[Panel]float32)(c[r*ldc:])
		switch {
		case !acc:
			*cr = [Panel]float32{}
		case k > 0:
			for j, v := range cr {
				if math.Abs(float64(v)) < minNormal {
					cr[j] = float32(math.Copysign(0, float64(v)))
				}
			}
		}
	}
	if rows == 0 {
		return
	}
	var w [2][Panel]float64
	for i := range (k + 1) / 2 {
		line := (*[bf16Line]uint16)(b[i*bf16Line:])
		for j := range Panel {
			w[0][j], w[1][j] = flushedWord(line[2*j]), flushedWord(line[2*j+1])
		}
		for r := range rows {
			x := a[r*ars+i]
			even, odd := flushedWord(uint16(x)), flushedWord(uint16(x>>16))
			cr := (*[Panel]float32)(c[r*ldc:])
			for j, s := range cr {
				cr[j] = flushedFMA(even, w[0][j], flushedFMA(odd, w[1][j], s))
			}
		}
	}
}
