// Package stats summarises measurements: bootstrap confidence intervals and quantiles.
package stats

import (
	"fmt"
	"math/rand/v2"
	"slices"
)

// An Interval is a value with the ends of its bootstrap confidence interval.
type Interval struct {
	Value float64 `json:"value"`
	Low   float64 `json:"low"`
	High  float64 `json:"high"`
}

// Half returns half the interval's width, the length of an error bar.
func (i Interval) Half() float64 { return (i.High - i.Low) / 2 }

// Text writes the interval times scale with this many decimals.
func (i Interval) Text(decimals int, scale float64) string {
	return fmt.Sprintf("%.*f [%.*f, %.*f]", decimals, scale*i.Value, decimals, scale*i.Low, decimals, scale*i.High)
}

// A Bootstrap says how confidence intervals are computed: as percentiles over Reps samples,
// each of as many units as were measured, drawn with replacement (Efron 1979). A unit is a
// prompt or a text, never a token: the tokens of a text depend on each other, and resampling
// single tokens would give intervals far too narrow.
type Bootstrap struct {
	Reps  int     `json:"resamples"`
	Level float64 `json:"level"` // of confidence
	Seed  uint64  `json:"seed"`
}

// DefaultBootstrap returns 95% intervals over 2000 samples.
func DefaultBootstrap() Bootstrap { return Bootstrap{Reps: 2000, Level: 0.95, Seed: 1} }

// Validate reports the first field that cannot be used.
func (b Bootstrap) Validate() error {
	if b.Reps < 100 || b.Reps > 1e6 {
		return fmt.Errorf("%d bootstrap samples, want 100..1000000", b.Reps)
	}
	if !(b.Level > 0 && b.Level < 1) {
		return fmt.Errorf("a confidence level of %v, want more than 0 and less than 1", b.Level)
	}
	return nil
}

// Of returns a statistic of n units with its interval. stat gets how often each unit is in the
// sample and must be defined for every sample. Equal n gives equal samples, so methods are
// compared on the same samples of the same prompts.
func (b Bootstrap) Of(n int, stat func(times []int) float64) Interval {
	if n == 0 {
		return Interval{}
	}
	times := make([]int, n)
	for i := range times {
		times[i] = 1
	}
	out := Interval{Value: stat(times)}
	r := rand.New(rand.NewPCG(b.Seed, uint64(n)))
	xs := make([]float64, b.Reps)
	for k := range xs {
		clear(times)
		for range n {
			times[r.IntN(n)]++
		}
		xs[k] = stat(times)
	}
	slices.Sort(xs)
	out.Low, out.High = Quantile(xs, (1-b.Level)/2), Quantile(xs, (1+b.Level)/2)
	return out
}

// Quantile returns the value below which a share p in [0,1] of the sorted values lies, interpolated
// linearly between them. Of no values it is 0.
func Quantile(sorted []float64, p float64) float64 {
	switch len(sorted) {
	case 0:
		return 0
	case 1:
		return sorted[0]
	}
	at := p * float64(len(sorted)-1)
	i := min(int(at), len(sorted)-2)
	return sorted[i] + (at-float64(i))*(sorted[i+1]-sorted[i])
}
