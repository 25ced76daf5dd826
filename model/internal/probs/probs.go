// Package probs computes on rows over the vocabulary, for softmax and sampling. Each
// function has the same bits on every platform. The portable version, in plain Go, is
// the oracle of the others.
//
// A lane sum adds element i to lane i%8 in ascending order and then folds the lanes
// 8→4→2→1 by adding lane i+half to lane i. Functions run on the caller's goroutine,
// allocate nothing and keep no state. A destination may be a source only where
// documented.
package probs

import (
	"math"
	"unsafe"
)

//go:generate go -C ../../../tools run ./avogen -package probs -class avx2 -dir ../model/internal/probs
//go:generate go -C ../../../tools run ./avogen -package probs -class avx512 -dir ../model/internal/probs

// Bin is the number of elements of a row that SoftBins sums at a time.
const Bin = 128

// Rows are the functions of one instruction set. Their methods run assembly on whole
// steps of 8 elements, of 16 in maxOf and of a bin in softBins, and leave the rest to
// plain Go. The calls are direct, because the caller's memory would escape through a
// function value.
type Rows uint8

const (
	portable Rows = iota
	avx2
	avx512
)

// Available returns the sets that this machine and this build can run, slowest first.
// The portable one is always included.
func Available() []Rows { return append([]Rows{portable}, machine()...) }

// Best returns the fastest set.
func Best() Rows {
	a := Available()
	return a[len(a)-1]
}

func (r Rows) String() string { return [...]string{"portable", "avx2", "avx512"}[r] }

// Max returns the largest element, −Inf if there is none. NaNs are skipped.
func (r Rows) Max(x []float32) float32 {
	most, n := float32(math.Inf(-1)), 0
	if r != portable {
		n = len(x) &^ 15
		most = r.maxOf(unsafe.SliceData(x), n)
	}
	for _, v := range x[n:] {
		if v > most {
			most = v
		}
	}
	return most
}

// SoftExp sets dst[i] = e^((x[i]−top)·by) and returns the lane sum. Exponents must be
// at most 0, as they are if top is the largest element. Results are within 2 ulp for
// the rounded exponent; those below 2⁻¹⁰²⁰ and those of NaN are 0.
func (r Rows) SoftExp(dst []float64, x []float32, top, by float64) float64 {
	dst = dst[:len(x)]
	var l lanes
	n := 0
	if r != portable {
		n = len(x) &^ 7
		r.softExp(unsafe.SliceData(dst), unsafe.SliceData(x), n, top, by, &l[0])
	}
	for i, v := range x[n:] {
		e := exp(float64(float64(v)-top) * by)
		dst[n+i] = e
		l[i&7] += e
	}
	return l.fold()
}

// SoftBins sets dst[i] = e^((x[i]−top)·by) as float32 and bins [⌈len(x)/Bin⌉] to the
// lane sums of Bin elements each. As in SoftExp, exponents must be at most 0. Results
// are within 3 ulp for the rounded exponent; those below 2⁻¹²⁶ are 0.
func (r Rows) SoftBins(dst []float32, bins []float64, x []float32, top, by float32) {
	dst, bins = dst[:len(x)], bins[:Bins(len(x))]
	n := 0
	if r != portable {
		n = len(x) / Bin
		r.softBins(unsafe.SliceData(dst), unsafe.SliceData(x), unsafe.SliceData(bins), n, top, by)
	}
	for b := n; b < len(bins); b++ {
		var l lanes
		d := dst[b*Bin : min((b+1)*Bin, len(x))]
		for i, v := range x[b*Bin:][:len(d)] {
			e := exp32(float32(v-top) * by)
			d[i] = e
			l[i&7] += float64(e)
		}
		bins[b] = l.fold()
	}
}

// Bins returns the number of bins of n elements.
func Bins(n int) int { return (n + Bin - 1) / Bin }

// Sum returns the lane sum of x.
func (r Rows) Sum(x []float64) float64 {
	var l lanes
	n := 0
	if r != portable {
		n = len(x) &^ 7
		r.sum(unsafe.SliceData(x), n, &l[0])
	}
	for i, v := range x[n:] {
		l[i&7] += v
	}
	return l.fold()
}

// Residual sets dst = max(a·p−b·q, 0), with 0 for NaN, and returns the lane sum. Dst
// may be p or q.
func (r Rows) Residual(dst, p, q []float64, a, b float64) float64 {
	p, q = p[:len(dst)], q[:len(dst)]
	var l lanes
	n := 0
	if r != portable {
		n = len(dst) &^ 7
		r.residual(unsafe.SliceData(dst), unsafe.SliceData(p), unsafe.SliceData(q), n, a, b, &l[0])
	}
	for i := n; i < len(dst); i++ {
		y := float64(a*p[i]) - float64(b*q[i])
		if !(y > 0) {
			y = 0
		}
		dst[i] = y
		l[i&7] += y
	}
	return l.fold()
}

// Scale multiplies x by a number.
func (r Rows) Scale(x []float64, by float64) {
	n := 0
	if r != portable {
		n = len(x) &^ 7
		r.scale(unsafe.SliceData(x), n, by)
	}
	for i := range x[n:] {
		x[n+i] *= by
	}
}

// Widen sets dst = x·by.
func (r Rows) Widen(dst []float64, x []float32, by float64) {
	dst = dst[:len(x)]
	n := 0
	if r != portable {
		n = len(x) &^ 7
		r.widen(unsafe.SliceData(dst), unsafe.SliceData(x), n, by)
	}
	for i, v := range x[n:] {
		dst[n+i] = float64(v) * by
	}
}

type lanes [8]float64

func (l *lanes) fold() float64 {
	for half := 4; half > 0; half /= 2 {
		for i := range half {
			l[i] += l[i+half]
		}
	}
	return l[0]
}
