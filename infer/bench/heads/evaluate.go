package heads

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"talf/infer/bench"
	"talf/internal/plot"
	"talf/internal/spec"
	"talf/internal/stats"
	"talf/internal/table"
)

// maxRank is the first of the ranks that Figure 2(a) counts together.
const maxRank = 5

// A MethodEval is one method on one set, with confidence intervals over prompts.
type MethodEval struct {
	Method  string         `json:"method"` // by the publication's name
	Group   string         `json:"group,omitempty"`
	Head    string         `json:"head,omitempty"`
	Set     string         `json:"set,omitempty"` // empty: all sets together
	Prompts int            `json:"prompts"`
	Tau     stats.Interval `json:"tau"`     // all tokens over all passes
	Speedup stats.Interval `json:"speedup"` // mean over prompts of the ratio to plain decoding
	// Ranks are the shares of drafted nodes by rank among their siblings. The last entry
	// counts that rank and all lower ones.
	Ranks []stats.Interval `json:"nodes_by_rank"`
}

// A row is a method of an evaluation.
type row struct{ label, group, spec string }

// A column is a row that runs on a draft model, as a method of the run.
type column struct {
	row
	bench.Method
}

// columns are the methods of e on every head among the draft models, or on the first.
func (e *Evaluation) columns(sources []bench.Source) (out []column) {
	for _, x := range e.rows {
		for _, s := range sources {
			if s.LM {
				continue
			}
			out = append(out, column{x, bench.Method{Spec: x.spec, Source: s.Source, SourceName: s.Name}})
			if e.one {
				break
			}
		}
	}
	return out
}

// evaluate evaluates methods on the measurements of a run of c, at its first temperature: over all
// sets together and, if there are several, over each.
func evaluate(cols []column, c *bench.Config, got []bench.Measurement, b stats.Bootstrap) ([]MethodEval, error) {
	if err := b.Validate(); err != nil {
		return nil, err
	}
	t := c.Temperatures[0]
	// One report for each prompt. Its rows are the units of the intervals.
	type place struct{ set, prompt string }
	by := map[place][]bench.Measurement{}
	var order []place
	for i := range got {
		p := place{got[i].Set, got[i].Prompt}
		if by[p] == nil {
			order = append(order, p)
		}
		by[p] = append(by[p], got[i])
	}
	reports := make([]*bench.Report, len(order))
	for i, p := range order {
		reports[i] = c.Report(by[p])
	}
	sets := []string{""}
	if len(c.Sets) > 1 {
		for _, s := range c.Sets {
			sets = append(sets, s.Name)
		}
	}
	var out []MethodEval
	for i := range cols {
		col := &cols[i]
		for _, set := range sets {
			var rows []*bench.Row
			for k, p := range order {
				if set != "" && p.set != set {
					continue
				}
				if r := reports[k].Row(col.Name(), "", t); r != nil && r.Passes > 0 {
					rows = append(rows, r)
				}
			}
			e := MethodEval{Method: col.label, Group: col.group, Head: col.SourceName, Set: set, Prompts: len(rows)}
			e.Tau = b.Of(len(rows), func(times []int) float64 {
				tokens, passes := 0, 0
				for j, n := range times {
					tokens, passes = tokens+n*rows[j].Tokens, passes+n*rows[j].Passes
				}
				return float64(tokens) / float64(max(passes, 1))
			})
			e.Speedup = b.Of(len(rows), func(times []int) float64 {
				var sum float64
				for j, n := range times {
					sum += float64(n) * rows[j].Speedup.Mean
				}
				return sum / float64(len(rows))
			})
			for rank := 1; rank <= maxRank; rank++ {
				e.Ranks = append(e.Ranks, b.Of(len(rows), func(times []int) float64 {
					here, all := 0, 0
					for j, n := range times {
						for r, x := range rows[j].Ranked {
							if r > 0 {
								all += n * x
								if min(r, maxRank) == rank {
									here += n * x
								}
							}
						}
					}
					return float64(here) / float64(max(all, 1))
				}))
			}
			out = append(out, e)
		}
	}
	return out, nil
}

// title names the evaluation's row.
func (e *MethodEval) title() string {
	switch {
	case e.Group != "":
		return e.Group
	case e.Head != "":
		return e.Head
	}
	return e.Method
}

// An Evaluation is a figure or table of the SALF and TALF publications with confidence
// intervals, as talf eval prints it.
type Evaluation struct {
	spec.Line       // such as "table3"
	rows      []row // what runs; none for ByRank, which decodes nothing
	one       bool  // on the first head alone
	layout    func(evals []MethodEval) []table.Table
	draw      func(evals []MethodEval) []plot.Figure
}

// Decodes reports whether e decodes; otherwise it measures heads by ranks, with ByRank.
func (e *Evaluation) Decodes() bool { return len(e.rows) > 0 }

// Evaluations lists them in the publications' order.
func Evaluations() spec.Table[Evaluation] {
	line := func(name, doc string) spec.Line { return spec.Line{Name: name, Doc: doc} }
	optimal := func(label string) []row { return []row{{label: label, spec: "optimal:paper"}} }
	var thresholds []row
	for i := range 10 {
		th := fmt.Sprintf("0.%d", i)
		thresholds = append(thresholds, row{"SALF", th, "salf:paper,th=" + th})
	}
	return spec.Table[Evaluation]{Kind: "evaluation", Lines: []Evaluation{
		{line("fig2a", "share of tree nodes by rank among their siblings"), optimal("Optimal tree search"), false, shareTables, shareFigures},
		{line("fig2b", "accuracy and calibration when conditioned on the n-th ranked token, n = 1..5"), nil, false, nil, nil},
		{line("table3", "τ of heads trained with k = 1, 2, 4, one head each"), optimal("optimal"), false, tauTables, tauFigures},
		{line("table4", "τ and speed-up by SALF's threshold"), thresholds, true, thresholdTables, thresholdFigures},
	}}
}

// setColumns lays out evals with a row for each title and columns for each set.
func setColumns(caption, first string, evals []MethodEval, values []string, cells func(e *MethodEval) []string) []table.Table {
	t := table.Table{Caption: caption, Header: []string{first}}
	for i := range evals {
		e := &evals[i]
		k := slices.IndexFunc(t.Cells, func(c []string) bool { return c[0] == e.title() })
		if k < 0 {
			k = len(t.Cells)
			t.Cells = append(t.Cells, []string{e.title()})
		}
		if k == 0 {
			for _, name := range values {
				t.Header = append(t.Header, fmt.Sprintf("%s, %s (%d prompts)", bench.SetName(e.Set), name, e.Prompts))
			}
		}
		t.Cells[k] = append(t.Cells[k], cells(e)...)
	}
	return []table.Table{t}
}

func shareTables(evals []MethodEval) []table.Table {
	t := table.Table{Caption: "Share of tree nodes (%) by rank among their siblings", Header: []string{"head", "set"}}
	for n := 1; n < maxRank; n++ {
		t.Header = append(t.Header, fmt.Sprintf("rank %d", n))
	}
	t.Header = append(t.Header, fmt.Sprintf("rank %d and lower", maxRank))
	for i := range evals {
		e := &evals[i]
		cells := []string{e.title(), bench.SetName(e.Set)}
		for _, r := range e.Ranks {
			cells = append(cells, r.Text(1, 100))
		}
		t.Cells = append(t.Cells, cells)
	}
	return []table.Table{t}
}

func shareFigures(evals []MethodEval) []plot.Figure {
	f := plot.Figure{Title: fmt.Sprintf("Share of tree nodes by rank (%d: and lower)", maxRank), X: "rank", Y: "share"}
	for i := range evals {
		if e := &evals[i]; e.Set == "" {
			for n, r := range e.Ranks {
				point(&f, e.title(), float64(n+1), r)
			}
		}
	}
	return []plot.Figure{f}
}

func tauTables(evals []MethodEval) []table.Table {
	return setColumns("Tokens per target pass (τ), optimal trees", "head", evals, []string{"τ"}, func(e *MethodEval) []string {
		return []string{e.Tau.Text(2, 1)}
	})
}

// tauFigures draws τ over the number in the heads' names, such as k4, or bars if a name has
// none.
func tauFigures(evals []MethodEval) []plot.Figure {
	bars := plot.Figure{Title: "Tokens per target pass (τ), optimal trees", Y: "τ"}
	lines := plot.Figure{Title: bars.Title, X: "k", Y: "τ"}
	numbered := true
	for i := range evals {
		e := &evals[i]
		k, err := strconv.Atoi(strings.TrimLeftFunc(e.title(), func(r rune) bool { return r < '0' || r > '9' }))
		if err != nil {
			numbered = false
		}
		point(&lines, bench.SetName(e.Set), float64(k), e.Tau)
		at := slices.IndexFunc(bars.Series, func(s plot.Series) bool { return s.Name == e.title() })
		if at < 0 {
			at = len(bars.Series)
			bars.Series = append(bars.Series, plot.Series{Name: e.title()})
		}
		if at == 0 {
			bars.Groups = append(bars.Groups, bench.SetName(e.Set))
		}
		bars.Series[at].Y = append(bars.Series[at].Y, e.Tau.Value)
	}
	if numbered && len(bars.Series) > 1 {
		return []plot.Figure{lines}
	}
	return []plot.Figure{bars}
}

func thresholdTables(evals []MethodEval) []table.Table {
	caption := "Tokens per target pass (τ) and speed-up by threshold"
	if len(evals) > 0 && evals[0].Head != "" {
		caption += ", head " + evals[0].Head
	}
	return setColumns(caption, "th", evals, []string{"speed-up", "τ"}, func(e *MethodEval) []string {
		return []string{e.Speedup.Text(2, 1) + "×", e.Tau.Text(2, 1)}
	})
}

func thresholdFigures(evals []MethodEval) []plot.Figure {
	tau := plot.Figure{Title: "Tokens per target pass (τ) by threshold", X: "th", Y: "τ"}
	speed := plot.Figure{Title: "Speed-up over plain decoding by threshold", X: "th", Y: "speed-up"}
	for i := range evals {
		e := &evals[i]
		var th float64
		if _, err := fmt.Sscan(e.Group, &th); err != nil {
			continue
		}
		point(&tau, bench.SetName(e.Set), th, e.Tau)
		point(&speed, bench.SetName(e.Set), th, e.Speedup)
	}
	return []plot.Figure{tau, speed}
}
