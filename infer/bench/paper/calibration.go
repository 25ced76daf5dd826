package paper

import (
	"fmt"
	"math"
	"slices"

	"talf/internal/plot"
	"talf/internal/stats"
	"talf/internal/table"
)

// A RankLine is the accuracy and calibration of a head conditioned on its own token of one rank.
type RankLine struct {
	Head     string  `json:"head"`
	Rank     int     `json:"rank"`
	Items    int     `json:"items"`
	Accuracy float64 `json:"accuracy"`
	ECE      float64 `json:"ece"`     // confidence: the head's probability of the target's choice
	ECEMax   float64 `json:"ece_max"` // confidence: the head's largest probability
}

// RankLines sums up the items of ByRank, rank by rank.
func RankLines(head string, ranks [][]Item) []RankLine {
	var out []RankLine
	for rank, items := range ranks {
		c := countItems(items, eceBins)
		out = append(out, RankLine{
			Head: head, Rank: rank + 1, Items: len(items),
			Accuracy: c.accuracy(), ECE: calibration(c.own, c.items), ECEMax: calibration(c.top, c.items),
		})
	}
	return out
}

// A RankEval is a RankLine with confidence intervals (TALF, Figure 2(b) and appendix A).
type RankEval struct {
	Head     string         `json:"head"`
	Rank     int            `json:"rank"`
	Items    int            `json:"items"`
	Texts    int            `json:"texts"` // the units of the intervals
	Accuracy stats.Interval `json:"accuracy"`
	// ECE takes the probability of the target's choice as the confidence, as the publication
	// does. ECEMax takes the head's largest probability, as is usual. A sample of few items
	// has a larger error than all items together, so intervals lie above the value rather
	// than around it.
	ECE    stats.Interval `json:"ece"`
	ECEMax stats.Interval `json:"ece_max"`
}

// EvalRanks sums up the items that ByRank returned for seqs, rank by rank, with intervals over
// texts.
func EvalRanks(head string, ranks [][]Item, seqs [][]int32, b stats.Bootstrap) ([]RankEval, error) {
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
		var texts []itemCounts
		at := 0
		for _, n := range lengths {
			if at+n > len(items) {
				return nil, fmt.Errorf("%d items of rank %d, want one for every token but the first", len(items), rank+1)
			}
			texts = append(texts, countItems(items[at:at+n], eceBins))
			at += n
		}
		if at != len(items) {
			return nil, fmt.Errorf("%d items of rank %d, want %d for these texts", len(items), rank+1, at)
		}
		over := func(stat func(c *itemCounts) float64) stats.Interval {
			return b.Of(len(texts), func(times []int) float64 {
				sum := newItemCounts(eceBins)
				for i, k := range times {
					if k > 0 {
						sum.add(&texts[i], k)
					}
				}
				return stat(&sum)
			})
		}
		out = append(out, RankEval{
			Head: head, Rank: rank + 1, Items: len(items), Texts: len(texts),
			Accuracy: over((*itemCounts).accuracy),
			ECE:      over(func(c *itemCounts) float64 { return calibration(c.own, c.items) }),
			ECEMax:   over(func(c *itemCounts) float64 { return calibration(c.top, c.items) }),
		})
	}
	return out, nil
}

// eceBins is the number of bins of the expected calibration error.
const eceBins = 10

// itemCounts are what accuracy and calibration need of some items.
type itemCounts struct {
	items, hits int
	own, top    []bin // by confidence: the probability of the target's choice, the largest
}

// A bin holds items of similar confidence.
type bin struct {
	n             int
	correct, conf float64
}

func newItemCounts(bins int) itemCounts {
	return itemCounts{own: make([]bin, bins), top: make([]bin, bins)}
}

func countItems(items []Item, bins int) itemCounts {
	c := newItemCounts(bins)
	for _, it := range items {
		c.items++
		correct := 0.0
		if it.Correct {
			c.hits++
			correct = 1
		}
		c.own[binOf(it.Conf, bins)].add(1, correct, it.Conf)
		c.top[binOf(it.MaxProb, bins)].add(1, correct, it.MaxProb)
	}
	return c
}

// add adds o as if it had been counted k times.
func (c *itemCounts) add(o *itemCounts, k int) {
	c.items, c.hits = c.items+k*o.items, c.hits+k*o.hits
	for i := range c.own {
		c.own[i].add(k*o.own[i].n, float64(k)*o.own[i].correct, float64(k)*o.own[i].conf)
		c.top[i].add(k*o.top[i].n, float64(k)*o.top[i].correct, float64(k)*o.top[i].conf)
	}
}

func (b *bin) add(n int, correct, conf float64) {
	b.n, b.correct, b.conf = b.n+n, b.correct+correct, b.conf+conf
}

// accuracy is the share of correct items.
func (c *itemCounts) accuracy() float64 { return float64(c.hits) / float64(max(c.items, 1)) }

// calibration is the expected calibration error of n items over bins of equal width:
// Σ |B|/n · |mean correct − mean confidence| (Guo et al. 2017).
func calibration(bins []bin, n int) (e float64) {
	for _, b := range bins {
		if b.n > 0 {
			e += math.Abs(b.correct-b.conf) / float64(n)
		}
	}
	return e
}

// binOf returns the bin of a confidence among m of equal width, bin i being (i/m, (i+1)/m].
func binOf(conf float64, m int) int {
	return min(max(int(math.Ceil(conf*float64(m)))-1, 0), m-1)
}

// RankTables lays out Figure 2(b), a row for each head and a column for each rank.
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
		acc.Cells[k] = append(acc.Cells[k], e.Accuracy.Text(1, 100))
		cal.Cells[k] = append(cal.Cells[k], e.ECE.Text(3, 1))
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
func point(f *plot.Figure, name string, x float64, y stats.Interval) {
	f.AddInterval(name, x, y.Value, y.Low, y.High)
}
