// Package history sums up the logs that training runs keep, as tables and charts.
package history

import (
	"fmt"
	"path/filepath"
	"strings"

	"talf/internal/plot"
	"talf/train"
)

// A Row sums up the steps since the previous evaluation or the start of the stage.
type Row struct {
	Step      int         `json:"step"`      // the last one
	Stage     int         `json:"stage"`     // from 1
	Loss      float64     `json:"loss"`      // mean over the steps
	Norm      float64     `json:"grad_norm"` // of the last step
	LR        float64     `json:"lr"`        // of the last step
	PerSecond float64     `json:"positions_per_second"`
	Eval      *train.Eval `json:"eval,omitempty"` // after the last step; nil: none
}

// A Run is the log of one run.
type Run struct {
	Path string `json:"path"`
	Rows []Row  `json:"rows"`
}

// Read sums up the log of the run whose checkpoints are in the directory path, or the
// log at path.
func Read(path string) (Run, error) {
	all, err := train.ReadMetrics(path)
	if err == nil && len(all) == 0 {
		err = fmt.Errorf("%s: no step was made yet", path)
	}
	return Run{path, rows(all)}, err
}

// rows sums up steps. A row ends with an evaluation, a stage or the log.
func rows(all []train.Progress) []Row {
	var rows []Row
	var loss, seconds float64
	var steps, positions int
	for i, p := range all {
		steps++
		loss, seconds, positions = loss+p.Loss, seconds+p.Seconds, positions+p.Positions
		if p.Eval == nil && i+1 < len(all) && all[i+1].Stage == p.Stage {
			continue
		}
		r := Row{Step: p.Step, Stage: p.Stage + 1, Loss: loss / float64(steps), Norm: p.Norm, LR: p.LR, Eval: p.Eval}
		if seconds > 0 {
			r.PerSecond = float64(positions) / seconds
		}
		rows = append(rows, r)
		loss, seconds, steps, positions = 0, 0, 0, 0
	}
	return rows
}

// String returns a table.
func (r Run) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n%8s %5s %9s %9s %9s %6s %7s %11s\n", r.Path, "step", "stage", "loss", "held out", "lr", "τ̂", "greedy", "positions/s")
	for _, x := range r.Rows {
		held, tau, greedy := "-", "-", "-"
		if e := x.Eval; e != nil {
			held = fmt.Sprintf("%.4f", e.Loss)
			if e.Tau > 0 {
				tau, greedy = fmt.Sprintf("%.3f", e.Tau), fmt.Sprintf("%.3f", e.TauGreedy)
			}
		}
		fmt.Fprintf(&b, "%8d %5d %9.4f %9s %9.3g %6s %7s %11.0f\n", x.Step, x.Stage, x.Loss, held, x.LR, tau, greedy, x.PerSecond)
	}
	return b.String()
}

// Figures returns charts of the runs' losses in training and on held-out data and, if
// any run estimated it, of τ̂.
func Figures(runs ...Run) []plot.Figure {
	loss := plot.Figure{Title: "Loss for each position", X: "step", Y: "loss"}
	tau := plot.Figure{Title: "Tokens of a target pass, estimated on held-out trees", X: "step", Y: "τ̂"}
	for _, r := range runs {
		name := filepath.Base(r.Path)
		for _, x := range r.Rows {
			loss.Add(name, float64(x.Step), x.Loss)
		}
		for _, x := range r.Rows {
			e := x.Eval
			if e == nil {
				continue
			}
			loss.Add(name+", held out", float64(x.Step), e.Loss)
			if e.Tau > 0 {
				tau.Add(name, float64(x.Step), e.Tau)
				tau.Add(name+", greedy", float64(x.Step), e.TauGreedy)
			}
		}
	}
	if len(tau.Series) == 0 {
		return []plot.Figure{loss}
	}
	return []plot.Figure{loss, tau}
}

// Ended says where a run ended, in a line or several.
func Ended(r train.Result) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: step %d", r.Dir, r.Step)
	if r.Loss != 0 { // there was a step left to make
		fmt.Fprintf(&b, ", loss %.4f", r.Loss)
	}
	b.WriteByte('\n')
	if e := r.Eval; e != nil {
		fmt.Fprintf(&b, "held out: loss %.4f over %d positions", e.Loss, e.Positions)
		for i, l := range e.Levels {
			fmt.Fprintf(&b, "; level %d: loss %.4f, top-1 %.1f%%", i, l.Loss, 100*l.Top1)
			if l.Covered > 0 {
				fmt.Fprintf(&b, ", %.2f%% of the labels in the draft vocabulary", 100*l.Covered)
			}
		}
		if e.Tau > 0 {
			fmt.Fprintf(&b, "; τ̂ %.3f, greedy %.3f", e.Tau, e.TauGreedy)
		}
		b.WriteByte('\n')
	}
	if r.Best != "" && r.Best != r.Dir {
		fmt.Fprintf(&b, "best: %s\n", r.Best)
	}
	return b.String()
}
