package stats_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"talf/internal/stats"
)

// 95% intervals contain the truth in about 95 of 100 experiments: here in 360 to 396 of 400
// with 40 units each. Percentile intervals of so few units are slightly narrow; either bound is
// four standard deviations of a binomial from 0.94.
func TestIntervalsHoldTheTruthAsOftenAsTheySay(t *testing.T) {
	b := stats.DefaultBootstrap()
	b.Reps = 400
	r := rand.New(rand.NewPCG(4, 4))
	held := 0
	const experiments, n, truth = 400, 40, 3.0
	for e := range experiments {
		xs := make([]float64, n)
		for i := range xs {
			xs[i] = truth + r.NormFloat64()
		}
		b.Seed = uint64(e)
		i := b.Of(n, func(times []int) float64 {
			var sum float64
			for k, w := range times {
				sum += float64(w) * xs[k]
			}
			return sum / n
		})
		if i.Low > i.Value || i.Value > i.High {
			t.Fatalf("%+v does not contain its own value", i)
		}
		if i.Low <= truth && truth <= i.High {
			held++
		}
	}
	if held < 360 || held > 396 {
		t.Errorf("%d of %d intervals contain the truth, want about 95%%", held, experiments)
	}
}

func TestIntervalsOfFewUnits(t *testing.T) {
	b := stats.DefaultBootstrap()
	if got := b.Of(0, func([]int) float64 { panic("asked") }); got != (stats.Interval{}) {
		t.Errorf("of nothing: %+v", got)
	}
	if got := b.Of(1, func(times []int) float64 { return float64(7 * times[0]) }); got != (stats.Interval{Value: 7, Low: 7, High: 7}) {
		t.Errorf("of one: %+v", got)
	}
	draw := func() stats.Interval {
		return b.Of(5, func(times []int) float64 { return float64(times[0] - times[4]) })
	}
	if a, c := draw(), draw(); a != c {
		t.Errorf("equal seeds give %+v and %+v", a, c)
	}
	for _, bad := range []stats.Bootstrap{{Reps: 99, Level: 0.9}, {Reps: 200, Level: 1}, {Reps: 200, Level: math.NaN()}} {
		if bad.Validate() == nil {
			t.Errorf("%+v is accepted", bad)
		}
	}
}

func TestQuantilesInterpolate(t *testing.T) {
	for _, c := range []struct {
		xs   []float64
		p    float64
		want float64
	}{{nil, 0.5, 0}, {[]float64{3}, 0.99, 3}, {[]float64{1, 2, 4}, 0.5, 2}, {[]float64{1, 2, 4}, 0.75, 3}, {[]float64{1, 2, 4}, 1, 4}, {[]float64{1, 2, 4}, 0, 1}} {
		if got := stats.Quantile(c.xs, c.p); got != c.want {
			t.Errorf("quantile %v of %v is %v, want %v", c.p, c.xs, got, c.want)
		}
	}
}
