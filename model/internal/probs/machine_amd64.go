//go:build !purego

package probs

import "talf/compute/cpu/kern"

// machine returns the sets of the classes of kernels that this process can run.
func machine() (sets []Rows) {
	best := kern.Best()
	if best >= kern.AVX2 {
		sets = append(sets, avx2)
	}
	if best >= kern.AVX512 {
		sets = append(sets, avx512)
	}
	return sets
}

func (r Rows) maxOf(x *float32, n int) float32 {
	if r == avx512 {
		return maxOfAVX512(x, n)
	}
	return maxOfAVX2(x, n)
}

func (r Rows) softExp(dst *float64, x *float32, n int, top, by float64, lanes *float64) {
	if r == avx512 {
		softExpAVX512(dst, x, n, top, by, lanes)
	} else {
		softExpAVX2(dst, x, n, top, by, lanes)
	}
}

func (r Rows) softBins(dst, x *float32, bins *float64, n int, top, by float32) {
	if r == avx512 {
		softBinsAVX512(dst, x, bins, n, top, by)
	} else {
		softBinsAVX2(dst, x, bins, n, top, by)
	}
}

func (r Rows) sum(x *float64, n int, lanes *float64) {
	if r == avx512 {
		sumAVX512(x, n, lanes)
	} else {
		sumAVX2(x, n, lanes)
	}
}

func (r Rows) residual(dst, p, q *float64, n int, a, b float64, lanes *float64) {
	if r == avx512 {
		residualAVX512(dst, p, q, n, a, b, lanes)
	} else {
		residualAVX2(dst, p, q, n, a, b, lanes)
	}
}

func (r Rows) scale(x *float64, n int, by float64) {
	if r == avx512 {
		scaleAVX512(x, n, by)
	} else {
		scaleAVX2(x, n, by)
	}
}

func (r Rows) widen(dst *float64, x *float32, n int, by float64) {
	if r == avx512 {
		widenAVX512(dst, x, n, by)
	} else {
		widenAVX2(dst, x, n, by)
	}
}
