package command

import (
	"errors"
	"fmt"
	"slices"

	"talf/infer/bench"
	"talf/infer/bench/paper"
	"talf/internal/plot"
	"talf/internal/table"
)

// A benchReport is the result of bench or bench replay.
type benchReport struct {
	*bench.Report
	Device string `json:"device"`
	DType  string `json:"dtype"`
	// ChatTemplate says that a chat template wrote some prompts.
	ChatTemplate bool `json:"chat_template,omitempty"`
	// Layers is the number of layers that the model was deepened to: a cost model of a larger
	// one.
	Layers int              `json:"deepened_to_layers,omitempty"`
	ByRank []paper.RankLine `json:"heads_by_rank,omitempty"`
	// Interrupted says that the run ended early and the figures cover a part of it.
	Interrupted bool `json:"interrupted,omitempty"`
	views       []*paper.View
}

// view lays the exhibits over r.
func (r *benchReport) view(exhibits []paper.Exhibit, kit *paper.Kit) {
	for i := range exhibits {
		r.views = append(r.views, exhibits[i].View(r.Report, kit))
	}
}

// reportBench draws, writes and prints r as o says.
func (a *app) reportBench(r *benchReport, o *benchOptions) error {
	err := saveFigures(o.picture, r.figures()...)
	return errors.Join(err, o.print(a, r, func(markdown bool) error { return a.printBench(r, markdown) }))
}

// printExhibits lists what --paper runs.
func (a *app) printExhibits() error {
	t := table.Table{Header: []string{"table", "what", "methods"}}
	for _, x := range paper.Exhibits().Lines {
		t.Cells = append(t.Cells, []string{x.Name, x.Doc, fmt.Sprint(len(x.Variants))})
	}
	return t.Write(a.out, false)
}

func (a *app) printBench(r *benchReport, markdown bool) error {
	a.printf("%s, weights %s", r.Device, r.DType)
	if r.Layers > 0 {
		a.printf(", deepened to %d layers that add nothing: a cost model of a larger target", r.Layers)
	}
	a.printf("; %d prompts of %d sets, %d of each for warm-up, up to %d tokens, seeds %v", r.Prompts, len(r.Sets), r.Warmup, r.MaxTokens, r.Seeds)
	if r.Repeat > 1 {
		a.printf(", %d times", r.Repeat)
	}
	if r.ChatTemplate {
		a.printf(", asked by the chat template")
	}
	if r.Interrupted {
		a.printf("; INTERRUPTED: figures of a part")
	}
	a.printf("\n\n")
	tables := r.Tables()
	if len(r.views) > 0 { // the table of everything is in --out
		tables = nil
	}
	for _, v := range r.views {
		tables = append(tables, v.Layout()...)
	}
	if err := table.Write(a.out, tables, markdown); err != nil {
		return err
	}
	a.printRanks(r.ByRank)
	return nil
}

// figures are the exhibits', or else those of everything.
func (r *benchReport) figures() []plot.Figure {
	var out []plot.Figure
	for _, v := range r.views {
		out = append(out, v.Draw()...)
	}
	if len(out) == 0 {
		out = r.Figures()
	}
	return out
}

// printRanks prints a line for each head with accuracy and calibration error by rank.
func (a *app) printRanks(lines []paper.RankLine) {
	for len(lines) > 0 {
		name := lines[0].Head
		n := slices.IndexFunc(lines, func(l paper.RankLine) bool { return l.Head != name })
		if n < 0 {
			n = len(lines)
		}
		a.printf("%s, given its own n-th ranked token:", name)
		for _, l := range lines[:n] {
			a.printf("  n=%d accuracy %.3f, ECE %.3f", l.Rank, l.Accuracy, l.ECE)
		}
		a.printf("\n")
		lines = lines[n:]
	}
}
