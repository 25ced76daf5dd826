package bench

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"talf/internal/plot"
	"talf/internal/table"
)

// An Interval is a value with the ends of its bootstrap confidence interval.
type Interval struct {
	Value float64 `json:"value"`
	Low   float64 `json:"low"`
	High  float64 `json:"high"`
}

// half is half the interval's width: what figures draw.
func (i Interval) half() float64 { return (i.High - i.Low) / 2 }

// text writes the interval with so many decimals, all times scale.
func (i Interval) text(decimals int, scale float64) string {
	return fmt.Sprintf("%.*f [%.*f, %.*f]", decimals, scale*i.Value, decimals, scale*i.Low, decimals, scale*i.High)
}

// A Bootstrap says how confidence intervals are made: percentiles over Reps
// samples, drawn with replacement, of as many units as were measured (Efron 1979).
// A unit is a prompt or a text, never a token: those of one text depend on each
// other, and would make intervals that are far too narrow.
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
		return fmt.Errorf("bench: %d bootstrap samples, want 100..1000000", b.Reps)
	}
	if !(b.Level > 0 && b.Level < 1) {
		return fmt.Errorf("bench: a confidence level of %v, want more than 0 and less than 1", b.Level)
	}
	return nil
}

// Of returns a statistic of n units and its interval. The statistic is given how
// often each unit is in the sample, and must be defined for every sample. Equal n
// gives equal samples, so that what two methods make of the same prompts is
// compared on the same ones.
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
	out.Low, out.High = quantile(xs, (1-b.Level)/2), quantile(xs, (1+b.Level)/2)
	return out
}

// quantile of sorted values, linear between two of them.
func quantile(xs []float64, p float64) float64 {
	at := p * float64(len(xs)-1)
	i := min(int(at), len(xs)-2)
	return xs[i] + (at-float64(i))*(xs[i+1]-xs[i])
}

// A RankEval is what a head makes of its own token of one rank (TALF, Figure 2(b)
// and appendix A).
type RankEval struct {
	Head     string   `json:"head"`
	Rank     int      `json:"rank"`
	Items    int      `json:"items"`
	Texts    int      `json:"texts"` // that were drawn from for the intervals
	Accuracy Interval `json:"accuracy"`
	// ECE takes the probability of the target's choice as the confidence, as the
	// paper does, ECEMax the head's largest probability, as is usual. A sample of
	// few items has a larger error than the items as a whole, so intervals lie
	// above rather than around it.
	ECE    Interval `json:"ece"`
	ECEMax Interval `json:"ece_max"`
}

// eceBins is how many bins of equal width the calibration error has.
const eceBins = 10

// EvalRanks evaluates what ByRank made of seqs, rank by rank.
func EvalRanks(head string, ranks [][]Item, seqs [][]int32, b Bootstrap) ([]RankEval, error) {
	if err := b.Validate(); err != nil {
		return nil, err
	}
	var lengths []int // items of each text
	for _, x := range seqs {
		if len(x) >= 2 {
			lengths = append(lengths, len(x)-1)
		}
	}
	var out []RankEval
	for rank, items := range ranks {
		type text struct {
			hits, n  int
			own, top [eceBins]bin
		}
		texts := make([]text, len(lengths))
		at := 0
		for i, n := range lengths {
			if at+n > len(items) {
				return nil, fmt.Errorf("bench: %d items of rank %d, want one for every token but the first", len(items), rank+1)
			}
			t := &texts[i]
			for _, it := range items[at : at+n] {
				t.n++
				if it.Correct {
					t.hits++
				}
				t.own[widthBin(it.Conf, eceBins)].add(it.Correct, it.Conf)
				t.top[widthBin(it.MaxProb, eceBins)].add(it.Correct, it.MaxProb)
			}
			at += n
		}
		if at != len(items) {
			return nil, fmt.Errorf("bench: %d items of rank %d, want %d for these texts", len(items), rank+1, at)
		}
		calibration := func(bins func(t *text) *[eceBins]bin) Interval {
			return b.Of(len(texts), func(times []int) float64 {
				var sum [eceBins]bin
				n := 0
				for i, k := range times {
					if k == 0 {
						continue
					}
					n += k * texts[i].n
					for j, x := range bins(&texts[i]) {
						sum[j].n += k * x.n
						sum[j].correct += float64(k) * x.correct
						sum[j].conf += float64(k) * x.conf
					}
				}
				return ece(sum[:], n)
			})
		}
		out = append(out, RankEval{
			Head: head, Rank: rank + 1, Items: len(items), Texts: len(texts),
			Accuracy: b.Of(len(texts), func(times []int) float64 {
				hits, n := 0, 0
				for i, k := range times {
					hits, n = hits+k*texts[i].hits, n+k*texts[i].n
				}
				return float64(hits) / float64(max(n, 1))
			}),
			ECE:    calibration(func(t *text) *[eceBins]bin { return &t.own }),
			ECEMax: calibration(func(t *text) *[eceBins]bin { return &t.top }),
		})
	}
	return out, nil
}

// RankTables lays Figure 2(b) out: a row for each head, a column for each rank.
func RankTables(evals []RankEval) []table.Table {
	acc := table.Table{Caption: "Top-1 accuracy (%) when conditioned on the head's own n-th ranked token", Header: []string{"head"}}
	cal := table.Table{Caption: "Expected calibration error, 10 bins; the confidence is the probability of the target's choice", Header: []string{"head"}}
	for _, e := range evals {
		if n := fmt.Sprintf("n = %d", e.Rank); !slices.Contains(acc.Header, n) {
			acc.Header, cal.Header = append(acc.Header, n), append(cal.Header, n)
		}
		k := len(acc.Cells) - 1
		if k < 0 || acc.Cells[k][0] != e.Head {
			k++
			acc.Cells, cal.Cells = append(acc.Cells, []string{e.Head}), append(cal.Cells, []string{e.Head})
		}
		acc.Cells[k] = append(acc.Cells[k], e.Accuracy.text(1, 100))
		cal.Cells[k] = append(cal.Cells[k], e.ECE.text(3, 1))
	}
	return []table.Table{acc, cal}
}

// RankFigures draws Figure 2(b).
func RankFigures(evals []RankEval) []plot.Figure {
	acc := plot.Figure{Title: "Top-1 accuracy by the rank of the head's own token", X: "rank", Y: "accuracy"}
	cal := plot.Figure{Title: "Expected calibration error by the rank of the head's own token", X: "rank", Y: "ECE"}
	for _, e := range evals {
		point(&acc, e.Head, float64(e.Rank), e.Accuracy)
		point(&cal, e.Head, float64(e.Rank), e.ECE)
	}
	return []plot.Figure{acc, cal}
}

// point adds a value with its interval to the line of that name.
func point(f *plot.Figure, name string, x float64, y Interval) {
	f.AddError(name, x, y.Value, y.half())
}

// widthBin is the bin of a confidence among m of equal width, (i/m, (i+1)/m].
func widthBin(conf float64, m int) int {
	return min(max(int(math.Ceil(conf*float64(m)))-1, 0), m-1)
}
