package evals

import (
	"fmt"
	"slices"

	"talf/infer/bench/heads"
	"talf/internal/plot"
	"talf/internal/stats"
	"talf/internal/table"
)

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

// EvalRanks sums up the items that heads.ByRank returned for texts, rank by rank, with intervals over
// texts.
func EvalRanks(head string, ranks [][]heads.Item, texts []heads.Text, b stats.Bootstrap) ([]RankEval, error) {
	if err := b.Validate(); err != nil {
		return nil, err
	}
	var out []RankEval
	for rank, items := range ranks {
		counts, err := heads.CountTexts(rank, items, texts)
		if err != nil {
			return nil, err
		}
		over := func(stat func(c *heads.Counts) float64) stats.Interval {
			return b.Of(len(counts), func(times []int) float64 {
				sum := heads.NewCounts()
				for i, k := range times {
					if k > 0 {
						sum.Add(&counts[i], k)
					}
				}
				return stat(&sum)
			})
		}
		off := func(binning int) stats.Interval {
			return over(func(c *heads.Counts) float64 { return c.Error(binning) })
		}
		out = append(out, RankEval{
			Head: head, Rank: rank + 1, Items: len(items), Texts: len(counts),
			Accuracy: over((*heads.Counts).Accuracy),
			ECE:      off(heads.ChoiceWidth), ECEMax: off(heads.MaxWidth), ECEMass: off(heads.ChoiceCount), ECEMaxMass: off(heads.MaxCount),
		})
	}
	return out, nil
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
