package sample

import (
	"fmt"
	"math"

	"talf/model/internal/probs"
)

// Bin is the number of tokens that Weigh sums at a time, and a good step size for
// scanning a row.
const Bin = probs.Bin

// Bins returns the number of bins of n tokens.
func Bins(n int) int { return probs.Bins(n) }

// Weigh sets w [Vocab] to the softmax of logits at a temperature before division by its
// sum: the largest weight is 1. Bins [⌈Vocab/Bin⌉] are the sums over Bin tokens each,
// to float64's precision. The weights themselves are within about 1e-6 of the softmax,
// as float32 logits are. That is good enough to draw from as long as drawing and
// division by the probability use the same weights. It takes less than half the time of
// Dist64. Infinite logits and NaN are handled as in Dist. It panics unless the
// temperature is more than 0.
func Weigh(w []float32, bins []float64, logits []float32, temperature float64) {
	if !(temperature > 0) {
		panic(fmt.Sprintf("sample: weights at temperature %v, want more than 0", temperature))
	}
	top := rows().Max(logits)
	if !math.IsInf(float64(top), 0) {
		rows().SoftBins(w, bins, logits, top, float32(min(1/temperature, math.MaxFloat32)))
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
func Sum(x []float64) float64 { return rows().Sum(x) }

// Residual sets dst to max(a·p−b·q, 0), with 0 in place of NaN, and returns its sum.
// Dst may be p or q; all have the same length.
func Residual(dst, p, q []float64, a, b float64) float64 { return rows().Residual(dst, p, q, a, b) }

// Widen sets dst to x·by. Both have the same length.
func Widen(dst []float64, x []float32, by float64) { rows().Widen(dst, x, by) }
