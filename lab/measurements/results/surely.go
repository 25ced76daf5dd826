package results

import (
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/stat/distuv"
)

const level = 0.95

// A sample are the logarithms of ratios that were measured several times.
type sample struct {
	mean, err float64 // and its standard error
	free      float64 // degrees of freedom
}

func (s sample) t() distuv.StudentsT { return distuv.StudentsT{Sigma: 1, Nu: s.free} }

func sampleOf(ratios []float64) (s sample, _ error) {
	n := float64(len(ratios))
	if n < 2 {
		return s, fmt.Errorf("%d repetitions say nothing of their spread", len(ratios))
	}
	for _, x := range ratios {
		if !(x > 0) {
			return s, fmt.Errorf("a ratio of %v", x)
		}
		s.mean += math.Log(x) / n
	}
	squares := 0.0
	for _, x := range ratios {
		squares += (math.Log(x) - s.mean) * (math.Log(x) - s.mean)
	}
	s.err, s.free = math.Sqrt(squares/(n-1)/n), n-1
	return s, nil
}

// Spread returns the geometric mean of ratios and its 95% interval by Student's t, which takes their logarithms for normal.
func Spread(ratios []float64) (Interval, error) {
	s, err := sampleOf(ratios)
	if err != nil {
		return Interval{}, err
	}
	half := s.err * s.t().Quantile((1+level)/2)
	return Interval{Value: math.Exp(s.mean), Low: math.Exp(s.mean - half), High: math.Exp(s.mean + half)}, nil
}

// Surely counts samples of ratios whose mean is below a limit by one-sided t-tests of their logarithms at 95%: each for itself,
// so that one in twenty is by chance where all are at the limit; and all together, so that in one of twenty such cases
// any is (Holm, A simple sequentially rejective multiple test procedure, 1979).
func Surely(samples [][]float64, limit float64) (each, together int, err error) {
	var ps []float64
	for _, ratios := range samples {
		s, err := sampleOf(ratios)
		if err != nil {
			return 0, 0, err
		}
		below := math.Log(limit) - s.mean
		switch {
		case s.err > 0:
			ps = append(ps, s.t().Survival(below/s.err))
		case below > 0:
			ps = append(ps, 0)
		default:
			ps = append(ps, 1)
		}
	}
	slices.Sort(ps)
	for i, p := range ps {
		if p <= 1-level {
			each++
		}
		if together == i && p <= (1-level)/float64(len(ps)-i) {
			together++
		}
	}
	return each, together, nil
}

// Slow are the cells of the prompts that suit a method least: the slowest one's speed end to end; that of one in decoding, with its interval
// over repetitions; how many are below a limit in decoding, by their medians; and how many of these surely.
func (r *Row) Slow(limit float64) ([]string, error) {
	if len(r.ByPrompt) == 0 {
		return nil, fmt.Errorf("no speed-ups by prompt")
	}
	end, below, slowest := math.Inf(1), 0, 0
	var turns [][]float64
	for i, p := range r.ByPrompt {
		if p.MedianEnd == 0 || p.MedianDecoding == 0 {
			return nil, fmt.Errorf("prompt %s has no medians", p.Prompt)
		}
		end = min(end, p.MedianEnd)
		if p.MedianDecoding < r.ByPrompt[slowest].MedianDecoding {
			slowest = i
		}
		if p.MedianDecoding < limit {
			below++
		}
		turns = append(turns, p.Decodings)
	}
	each, together, err := Surely(turns, limit)
	if err != nil {
		return nil, err
	}
	spread, err := Spread(turns[slowest])
	if err != nil {
		return nil, err
	}
	return []string{
		fmt.Sprintf("%.2f", end), fmt.Sprintf("%.2f [%.2f, %.2f]", r.ByPrompt[slowest].MedianDecoding, spread.Low, spread.High),
		fmt.Sprintf("%d of %d", below, len(r.ByPrompt)), fmt.Sprintf("%d, %d", each, together),
	}, nil
}
