package command

import (
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"talf/internal/plot"
	"talf/train"
)

// A metricsRow is what a log says of the steps since the evaluation before.
type metricsRow struct {
	Step       int         `json:"step"`
	Stage      int         `json:"stage"` // from 1
	Loss       float64     `json:"loss"`  // mean
	Norm       float64     `json:"grad_norm"`
	LR         float64     `json:"lr"`
	PerSecond  float64     `json:"positions_per_second"`
	Eval       *train.Eval `json:"eval,omitempty"`
	sum, clock float64
	steps      int
}

// A metricsRun is the log of one run.
type metricsRun struct {
	Path string       `json:"path"`
	Rows []metricsRow `json:"rows"`
}

func newInspectMetrics(a *app) *cobra.Command {
	var asJSON bool
	var picture string
	c := &cobra.Command{
		Use:   "metrics DIR…",
		Short: "Show how training went: loss, held-out loss and the estimate of τ",
		Long: `Metrics reads the log beside the checkpoints of one or several runs and sums it up
between evaluations. τ̂ is how many tokens a target pass would give, as the held-out
trees let expect without decoding; it is a lower bound.`,
		Example: "  talf inspect metrics heads/talf\n  talf inspect metrics heads/eagle heads/talf --plot runs.svg",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if err := checkPlot(picture); err != nil {
				return err
			}
			var runs []metricsRun
			for _, path := range args {
				r, err := readRun(path)
				if err != nil {
					return err
				}
				runs = append(runs, r)
			}
			if err := saveMetrics(picture, runs); err != nil {
				return err
			}
			if asJSON {
				return a.printJSON(runs)
			}
			for _, r := range runs {
				r.print(a)
			}
			return nil
		},
	}
	c.Flags().StringVar(&picture, "plot", "", "draw losses and τ̂ to this .png or .svg")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

func readRun(path string) (metricsRun, error) {
	all, err := train.ReadMetrics(path)
	if err == nil && len(all) == 0 {
		err = fmt.Errorf("%s: no step was made yet", path)
	}
	return metricsRun{path, metricsRows(all)}, err
}

// metricsRows sums up a log between evaluations and stages.
func metricsRows(all []train.Progress) []metricsRow {
	var rows []metricsRow
	var r metricsRow
	positions := 0
	for i, p := range all {
		r.steps++
		r.sum, r.clock, positions = r.sum+p.Loss, r.clock+p.Seconds, positions+p.Positions
		if p.Eval == nil && i+1 < len(all) && all[i+1].Stage == p.Stage {
			continue
		}
		r.Step, r.Stage, r.Norm, r.LR, r.Eval = p.Step, p.Stage+1, p.Norm, p.LR, p.Eval
		r.Loss = r.sum / float64(r.steps)
		if r.clock > 0 {
			r.PerSecond = float64(positions) / r.clock
		}
		rows, r, positions = append(rows, r), metricsRow{}, 0
	}
	return rows
}

func (r *metricsRun) print(a *app) {
	a.printf("%s\n%8s %5s %9s %9s %9s %6s %7s %11s\n", r.Path, "step", "stage", "loss", "held out", "lr", "τ̂", "greedy", "positions/s")
	for _, x := range r.Rows {
		held, tau, greedy := "-", "-", "-"
		if e := x.Eval; e != nil {
			held = fmt.Sprintf("%.4f", e.Loss)
			if e.Tau > 0 {
				tau, greedy = fmt.Sprintf("%.3f", e.Tau), fmt.Sprintf("%.3f", e.TauGreedy)
			}
		}
		a.printf("%8d %5d %9.4f %9s %9.3g %6s %7s %11.0f\n", x.Step, x.Stage, x.Loss, held, x.LR, tau, greedy, x.PerSecond)
	}
}

// saveMetrics draws the runs' losses, in training and held out, and τ̂.
func saveMetrics(path string, runs []metricsRun) error {
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
		return saveFigures(path, loss)
	}
	return saveFigures(path, loss, tau)
}
