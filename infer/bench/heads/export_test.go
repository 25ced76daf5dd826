package heads

import (
	"talf/internal/plot"
	"talf/internal/table"
)

// Calibration returns the accuracy of items and their calibration errors over this many bins: by the
// probability of the target's choice and by the largest one, in bins of equal width and, behind
// them, of equal numbers.
func Calibration(items []Item, bins int) (accuracy float64, errors [4]float64) {
	c := countItems(items, placesOf(items, bins), bins)
	return c.accuracy(), [4]float64{c.error(choiceWidth), c.error(maxWidth), c.error(choiceCount), c.error(maxCount)}
}

// Tables lays out evaluations, and Figures draws them.
func (e *Evaluation) Tables(evals []MethodEval) []table.Table  { return e.layout(evals) }
func (e *Evaluation) Figures(evals []MethodEval) []plot.Figure { return e.draw(evals) }

// Specs are the methods that e runs.
func (e *Evaluation) Specs() (specs []string) {
	for _, x := range e.rows {
		specs = append(specs, x.spec)
	}
	return specs
}
