package heads

import (
	"cmp"
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
	// ECEMass and ECEMaxMass are the same over bins of equal numbers of items.
	ECEMass    float64 `json:"ece_equal_mass"`
	ECEMaxMass float64 `json:"ece_max_equal_mass"`
	// ByText are the items of each text that has any, in the order of the texts. Figures of several
	// heads are pooled, and compared, over equal texts.
	ByText []TextHits `json:"by_text"`
}

// TextHits counts the items of a text, and the correct ones.
type TextHits struct {
	Items   int `json:"items"`
	Correct int `json:"correct"`
}

// RankLines sums up the items that ByRank returned for texts, rank by rank.
func RankLines(head string, ranks [][]Item, texts []Text) ([]RankLine, error) {
	lengths := lengthsOf(texts)
	var out []RankLine
	for rank, items := range ranks {
		if err := checkItems(items, lengths, rank); err != nil {
			return nil, err
		}
		c := countItems(items, placesOf(items, eceBins), eceBins)
		line := RankLine{
			Head: head, Rank: rank + 1, Items: len(items), Accuracy: c.accuracy(),
			ECE: c.error(choiceWidth), ECEMax: c.error(maxWidth), ECEMass: c.error(choiceCount), ECEMaxMass: c.error(maxCount),
		}
		for _, n := range lengths {
			t := TextHits{Items: n}
			for i := range items[:n] {
				if items[i].Correct {
					t.Correct++
				}
			}
			items = items[n:]
			line.ByText = append(line.ByText, t)
		}
		out = append(out, line)
	}
	return out, nil
}

// lengthsOf are the items of a rank in each text that has any.
func lengthsOf(texts []Text) (out []int) {
	for i := range texts {
		if n := texts[i].items(); n > 0 {
			out = append(out, n)
		}
	}
	return out
}

// checkItems reports items of a rank, counted from 0, that are not those of texts with so many each.
func checkItems(items []Item, lengths []int, rank int) error {
	want := 0
	for _, n := range lengths {
		want += n
	}
	if len(items) != want {
		return fmt.Errorf("%d items of rank %d, want %d for these texts", len(items), rank+1, want)
	}
	return nil
}

// A RankEval is a RankLine with confidence intervals (TALF, Figure 2(b) and appendix A).
type RankEval struct {
	Head     string         `json:"head"`
	Rank     int            `json:"rank"`
	Items    int            `json:"items"`
	Texts    int            `json:"texts"` // the units of the intervals
	Accuracy stats.Interval `json:"accuracy"`
	// ECE takes the probability of the target's choice as the confidence, as the publication
	// does. ECEMax takes the head's largest probability, as is usual. Both have bins of equal
	// width; ECEMass and ECEMaxMass have bins of equal numbers of items, to which an item
	// belongs in every sample of the bootstrap. A sample of few items has a larger error than
	// all items together, so intervals lie above the value rather than around it.
	ECE        stats.Interval `json:"ece"`
	ECEMax     stats.Interval `json:"ece_max"`
	ECEMass    stats.Interval `json:"ece_equal_mass"`
	ECEMaxMass stats.Interval `json:"ece_max_equal_mass"`
}

// EvalRanks sums up the items that ByRank returned for seqs, rank by rank, with intervals over
// texts.
func EvalRanks(head string, ranks [][]Item, seqs []Text, b stats.Bootstrap) ([]RankEval, error) {
	if err := b.Validate(); err != nil {
		return nil, err
	}
	lengths := lengthsOf(seqs)
	var out []RankEval
	for rank, items := range ranks {
		if err := checkItems(items, lengths, rank); err != nil {
			return nil, err
		}
		var texts []itemCounts
		at, where := 0, placesOf(items, eceBins)
		for _, n := range lengths {
			texts = append(texts, countItems(items[at:at+n], where.of(at, at+n), eceBins))
			at += n
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
			Accuracy:   over((*itemCounts).accuracy),
			ECE:        over(func(c *itemCounts) float64 { return c.error(choiceWidth) }),
			ECEMax:     over(func(c *itemCounts) float64 { return c.error(maxWidth) }),
			ECEMass:    over(func(c *itemCounts) float64 { return c.error(choiceCount) }),
			ECEMaxMass: over(func(c *itemCounts) float64 { return c.error(maxCount) }),
		})
	}
	return out, nil
}

// eceBins is the number of bins of the expected calibration error.
const eceBins = 10

// The binnings: by confidence, the probability of the target's choice or the head's largest, and by
// what is equal, the width of the bins or the number of their items.
const (
	choiceWidth = iota
	maxWidth
	choiceCount
	maxCount
	binnings
)

// places are the bins of items in every binning.
type places [binnings][]int

// placesOf puts items into so many bins. Bins of equal numbers hold runs of the items sorted by
// confidence, equal ones in their order; the first ones are one item longer if need be.
func placesOf(items []Item, bins int) (p places) {
	for k := range p {
		p[k] = make([]int, len(items))
	}
	for i := range items {
		p[choiceWidth][i], p[maxWidth][i] = binOf(items[i].Conf, bins), binOf(items[i].MaxProb, bins)
	}
	for k, of := range map[int]func(*Item) float64{choiceCount: confOf, maxCount: maxProbOf} {
		order := make([]int, len(items))
		for i := range order {
			order[i] = i
		}
		slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(of(&items[a]), of(&items[b])) })
		at := 0
		for b := range bins {
			n := len(items) / bins
			if b < len(items)%bins {
				n++
			}
			for _, i := range order[at : at+n] {
				p[k][i] = b
			}
			at += n
		}
	}
	return p
}

// of are the places of items from at to end.
func (p *places) of(at, end int) (out places) {
	for k := range p {
		out[k] = p[k][at:end]
	}
	return out
}

func confOf(it *Item) float64    { return it.Conf }
func maxProbOf(it *Item) float64 { return it.MaxProb }

// itemCounts are what accuracy and calibration need of some items.
type itemCounts struct {
	items, hits int
	bins        [binnings][]bin
}

// A bin holds items of similar confidence.
type bin struct {
	n             int
	correct, conf float64
}

func newItemCounts(bins int) (c itemCounts) {
	for k := range c.bins {
		c.bins[k] = make([]bin, bins)
	}
	return c
}

func countItems(items []Item, p places, bins int) itemCounts {
	c := newItemCounts(bins)
	for i := range items {
		it := &items[i]
		c.items++
		correct := 0.0
		if it.Correct {
			c.hits++
			correct = 1
		}
		for k := range c.bins {
			conf := it.Conf
			if k == maxWidth || k == maxCount {
				conf = it.MaxProb
			}
			c.bins[k][p[k][i]].add(1, correct, conf)
		}
	}
	return c
}

// add adds o as if it had been counted k times.
func (c *itemCounts) add(o *itemCounts, k int) {
	c.items, c.hits = c.items+k*o.items, c.hits+k*o.hits
	for b := range c.bins {
		for i := range c.bins[b] {
			x := &o.bins[b][i]
			c.bins[b][i].add(k*x.n, float64(k)*x.correct, float64(k)*x.conf)
		}
	}
}

func (b *bin) add(n int, correct, conf float64) {
	b.n, b.correct, b.conf = b.n+n, b.correct+correct, b.conf+conf
}

// accuracy is the share of correct items.
func (c *itemCounts) accuracy() float64 { return float64(c.hits) / float64(max(c.items, 1)) }

// error is the expected calibration error in a binning: Σ |B|/n · |mean correct − mean confidence|
// (Guo et al. 2017).
func (c *itemCounts) error(binning int) (e float64) {
	for _, b := range c.bins[binning] {
		if b.n > 0 {
			e += math.Abs(b.correct-b.conf) / float64(c.items)
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
	const bins = "Expected calibration error, 10 bins of equal "
	kinds := []struct {
		caption string
		cell    func(e *RankEval) string
	}{
		{"Top-1 accuracy (%) when conditioned on the head's own n-th ranked token", func(e *RankEval) string { return e.Accuracy.Text(1, 100) }},
		{bins + "width; the confidence is the probability of the target's choice", func(e *RankEval) string { return e.ECE.Text(3, 1) }},
		{bins + "numbers of items; the same confidence", func(e *RankEval) string { return e.ECEMass.Text(3, 1) }},
		{bins + "width; the confidence is the head's largest probability", func(e *RankEval) string { return e.ECEMax.Text(3, 1) }},
		{bins + "numbers of items; the same confidence", func(e *RankEval) string { return e.ECEMaxMass.Text(3, 1) }},
	}
	var out []table.Table
	for _, kind := range kinds {
		t := table.Table{Caption: kind.caption, Header: []string{"head"}}
		for i := range evals {
			e := &evals[i]
			if n := fmt.Sprintf("n = %d", e.Rank); !slices.Contains(t.Header, n) {
				t.Header = append(t.Header, n)
			}
			k := len(t.Cells) - 1
			if k < 0 || t.Cells[k][0] != e.Head {
				k++
				t.Cells = append(t.Cells, []string{e.Head})
			}
			t.Cells[k] = append(t.Cells[k], kind.cell(e))
		}
		out = append(out, t)
	}
	return out
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
