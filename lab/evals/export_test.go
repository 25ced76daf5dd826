package evals

import (
	"talf/internal/plot"
	"talf/internal/table"
)

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
