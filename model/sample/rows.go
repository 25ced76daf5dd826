package sample

import (
	"fmt"
	"math"

	"talf/model/internal/probs"
)

// Bin is how many tokens Weigh sums up at a time, and a good step for walking
// through a row.
const Bin = probs.Bin

// Bins returns the number of bins of n tokens.
func Bins(n int) int { return probs.Bins(n) }

// Weigh sets w [Vocab] to the softmax of logits at a temperature before it is divided
// by its sum: the largest is 1. Bins [⌈Vocab/Bin⌉] are the sums of each Bin tokens, to
// float64's precision. The weights themselves are within some 1e-6 of the softmax, as
// float32 logits are: good enough to draw from, as long as the drawing and the division by
// the probability use the same weights. It takes less than half the work of Dist64. Infinite
// logits and NaN are as in Dist. It panics unless the temperature is more than 0.
func Weigh(w []float32, bins []float64, logits []float32, temperature float64) {
	if !(temperature > 0) {
		panic(fmt.Sprintf("sample: weights at temperature %v, want more than 0", temperature))
	}
	top := rows.Max(logits)
	if !math.IsInf(float64(top), 0) {
		rows.SoftBins(w, bins, logits, top, float32(min(1/temperature, math.MaxFloat32)))
		return
	}
	share(w[:len(logits)], logits, top)
	for b := range bins[:Bins(len(logits))] {
		bins[b] = 0
		for _, v := range w[b*Bin : min((b+1)*Bin, len(logits))] {
			bins[b] += float64(v)
		}
	}
}

// Sum returns the sum of x, in a fixed order.
func Sum(x []float64) float64 { return rows.Sum(x) }

// Residual sets dst to max(a·p−b·q, 0), 0 where that is not a number, and returns its
// sum. Dst may be p or q; all are as long.
func Residual(dst, p, q []float64, a, b float64) float64 { return rows.Residual(dst, p, q, a, b) }

// Widen sets dst to x·by, as long as x.
func Widen(dst []float64, x []float32, by float64) { rows.Widen(dst, x, by) }
