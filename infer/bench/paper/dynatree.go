package paper

import (
	"fmt"

	"talf/infer/bench"
	"talf/internal/plot"
	"talf/internal/spec"
	"talf/internal/table"
)

// The tables and figures of DynaTree. Table 1: throughput; 2: latency; 3: verification; 4 and
// Figure 5: the ablation; 5: memory. Figure 6: lengths of answers; 7: parameters of the fixed
// tree; 8: of DynaTree; 9: lengths of prompts. The paper's answers are 1500 tokens long; here
// lengths are fractions of the run's.
func dynatree() []Exhibit {
	greedy := []float64{0}
	lm := func(label, spec string) Variant { return Variant{Label: label, Spec: spec, Ask: AskLM} }
	ar := Variant{Label: "AR", Spec: bench.Baseline}
	linear := lm("Linear Spec", "linear:K=8")
	fixed := lm("Fixed Tree (D=8, B=3, τ=0.1)", "fixed:D=8,B=3,tau=0.1")
	dyna := lm("DynaTree", "dynatree")
	main := []Variant{ar, linear, fixed, dyna}
	ablation := []Variant{
		lm("Fixed Tree (D=5, B=2)", "fixed:D=5,B=2"),
		lm("+ Dynamic Tree Breadth & Depth", "dynatree:history=off"),
		lm("+ History Adaptation", "dynatree"),
	}
	var lengths, prompts []Variant
	for _, v := range main {
		for _, part := range []float64{0.25, 0.5, 0.75, 1} {
			x := v
			x.Part, x.Group = part, fmt.Sprintf("%g", part)
			lengths = append(lengths, x)
		}
		for _, n := range []int{50, 100, 200, 400, 800} {
			x := v
			x.PromptTokens, x.Group = n, fmt.Sprint(n)
			prompts = append(prompts, x)
		}
	}
	var grid []Variant
	for _, d := range []int{4, 5, 6, 7, 8} {
		grid = append(grid, Variant{Label: "D", Group: fmt.Sprint(d), Spec: fmt.Sprintf("fixed:D=%d,B=3,tau=0.1", d), Ask: AskLM})
	}
	for _, b := range []int{1, 2, 3, 4} {
		grid = append(grid, Variant{Label: "B", Group: fmt.Sprint(b), Spec: fmt.Sprintf("fixed:D=8,B=%d,tau=0.1", b), Ask: AskLM})
	}
	for _, tau := range []string{"0.01", "0.03", "0.1", "0.3"} {
		grid = append(grid, Variant{Label: "τ", Group: tau, Spec: "fixed:D=8,B=3,tau=" + tau, Ask: AskLM})
	}
	sensitivity := []Variant{ar, fixed}
	for _, th := range [][2]string{{"0.7", "0.2"}, {"0.8", "0.3"}, {"0.8", "0.4"}, {"0.9", "0.3"}, {"0.9", "0.4"}, {"0.9", "0.5"}, {"0.95", "0.5"}} {
		sensitivity = append(sensitivity, lm("τh="+th[0]+", τl="+th[1], "dynatree:high="+th[0]+",low="+th[1]))
	}
	for _, b := range [][3]int{{1, 2, 2}, {1, 2, 3}, {1, 2, 4}, {1, 3, 4}, {2, 3, 4}} {
		sensitivity = append(sensitivity, lm(fmt.Sprintf("B=(%d,%d,%d)", b[0], b[1], b[2]), fmt.Sprintf("dynatree:Bmin=%d,Bmid=%d,Bmax=%d", b[0], b[1], b[2])))
	}
	for _, d := range [][2]int{{3, 6}, {4, 7}, {5, 8}, {6, 9}, {7, 10}} {
		sensitivity = append(sensitivity, lm(fmt.Sprintf("D0=%d, Dmax=%d", d[0], d[1]), fmt.Sprintf("dynatree:D0=%d,Dmax=%d", d[0], d[1])))
	}
	throughput := func(r *bench.Row) string { return r.Speed.Text(1) }
	speedup := func(r *bench.Row) string { return times(r.Speedup.Mean) }
	main2 := []string{"t/s", "speed-up"}
	return []Exhibit{
		{
			Line: spec.Line{Name: "dynatree:t1", Doc: "throughput and speed-up"}, Temperatures: greedy, Variants: main,
			Tables: each(func(v *View, t float64) table.Table { return v.perSet("method", t, main2, throughput, speedup) }),
		},
		{
			Line: spec.Line{Name: "dynatree:t2", Doc: "latency"}, Temperatures: greedy, Variants: main,
			Tables: each(func(v *View, t float64) table.Table {
				return v.perSet("method", t, []string{"TTFT (ms)", "TPOT (ms)"},
					func(r *bench.Row) string { return bench.Mean{Mean: 1e3 * r.TTFT.Mean, Std: 1e3 * r.TTFT.Std}.Text(1) },
					func(r *bench.Row) string { return bench.Mean{Mean: 1e3 * r.TPOT.Mean, Std: 1e3 * r.TPOT.Std}.Text(2) })
			}),
		},
		{
			Line: spec.Line{Name: "dynatree:t3", Doc: "verification: committed of drafted tokens, tokens and path per round, rounds per answer"}, Temperatures: greedy, Variants: main,
			Tables: each(func(v *View, t float64) table.Table {
				return v.perSet("method", t, []string{"Accept.", "L̄", "ℓ̄", "#Iter."},
					func(r *bench.Row) string {
						if r.Drafted == 0 {
							return "—"
						}
						return fmt.Sprintf("%.1f%%", 100*r.Committed())
					},
					func(r *bench.Row) string { return two(r.Pooled) },
					func(r *bench.Row) string {
						if r.Drafted == 0 {
							return "—"
						}
						return two(r.Accepted())
					},
					func(r *bench.Row) string { return fmt.Sprintf("%.1f", float64(r.Passes)/float64(max(r.Outputs, 1))) })
			}),
		},
		{Line: spec.Line{Name: "dynatree:t4", Doc: "ablation"}, Temperatures: greedy, Variants: ablation, Tables: each(dynatreeTable4), Figures: bars},
		{Line: spec.Line{Name: "dynatree:fig5", Doc: "ablation: rounds and progress"}, Temperatures: greedy, Variants: ablation, Tables: each(dynatreeFigure5)},
		{
			Line: spec.Line{Name: "dynatree:t5", Doc: "largest resident memory of the process, all draft models loaded"}, Temperatures: greedy, Variants: main,
			Tables: each(dynatreeTable5),
		},
		{
			Line: spec.Line{Name: "dynatree:fig6", Doc: "over parts of the length of answers"}, Temperatures: greedy, Variants: lengths,
			Tables: each(groupTable("part")), Figures: sweep("part of the longest answer"),
		},
		{
			Line: spec.Line{Name: "dynatree:fig7", Doc: "the fixed tree's parameters, one at a time"}, Temperatures: greedy, Variants: grid,
			Tables: each(groupTable("value")), Figures: sweep("value"),
		},
		{
			Line: spec.Line{Name: "dynatree:fig8", Doc: "DynaTree's thresholds, breadths and depths"}, Temperatures: greedy, Variants: sensitivity,
			Tables: each(func(v *View, t float64) table.Table {
				return v.perSet("variant", t, append(main2, "τ"), throughput, speedup, func(r *bench.Row) string { return two(r.Pooled) })
			}),
		},
		{
			Line: spec.Line{Name: "dynatree:fig9", Doc: "over lengths of prompts"}, Temperatures: greedy, Variants: prompts,
			Tables: each(groupTable("prompt")), Figures: sweep("longest prompt, tokens"),
		},
	}
}

// perSet is a table with a row for each column of the view and the figures of each set, without
// a mean over sets.
func (v *View) perSet(first string, t float64, names []string, f ...func(*bench.Row) string) table.Table {
	out := table.Table{Caption: v.caption(t), Header: []string{first}}
	for _, s := range v.sets() {
		for _, n := range names {
			out.Header = append(out.Header, join(s, n))
		}
	}
	for i := range v.cols {
		cells := []string{v.title(&v.cols[i])}
		for _, s := range v.sets() {
			for _, g := range f {
				cells = append(cells, g(v.row(&v.cols[i], s, t)))
			}
		}
		out.Cells = append(out.Cells, cells)
	}
	return out
}

func join(set, name string) string {
	if set == "" {
		return name
	}
	return set + " " + name
}

func dynatreeTable4(v *View, t float64) table.Table {
	out := table.Table{Caption: v.caption(t), Header: []string{"variant", "throughput (t/s)", "speed-up", "Δ vs fixed"}}
	for i := range v.cols {
		r := v.row(&v.cols[i], "", t)
		out.Cells = append(out.Cells, []string{
			v.cols[i].Label, r.Speed.Text(1), times(r.Speedup.Mean), relative(r.Speed.Mean, v.row(&v.cols[0], "", t).Speed.Mean),
		})
	}
	return out
}

func dynatreeFigure5(v *View, t float64) table.Table {
	out := table.Table{Caption: v.caption(t), Header: []string{"variant", "t/s", "rounds", "L̄", "committed of drafted"}}
	for i := range v.cols {
		r := v.row(&v.cols[i], "", t)
		out.Cells = append(out.Cells, []string{
			v.cols[i].Label, fmt.Sprintf("%.1f", r.Speed.Mean), fmt.Sprint(r.Passes), two(r.Pooled), fmt.Sprintf("%.1f%%", 100*r.Committed()),
		})
	}
	return out
}

func dynatreeTable5(v *View, t float64) table.Table {
	out := table.Table{Caption: v.caption(t), Header: append(append([]string{"method"}, setNames(v.sets())...), "average", "rel. change")}
	first := 0.0
	for i := range v.cols {
		c := &v.cols[i]
		cells, sum := []string{c.Label}, 0.0
		for _, s := range v.sets() {
			mb := float64(v.row(c, s, t).Peak) / (1 << 20)
			sum += mb / float64(len(v.Sets))
			cells = append(cells, fmt.Sprintf("%.1f MiB", mb))
		}
		if i == 0 {
			first = sum
		}
		out.Cells = append(out.Cells, append(cells, fmt.Sprintf("%.1f MiB", sum), relative(sum, first)))
	}
	return out
}

// groupTable gives all sets together, by label and group.
func groupTable(group string) func(v *View, t float64) table.Table {
	return func(v *View, t float64) table.Table {
		out := table.Table{Caption: v.caption(t), Header: []string{"method", group, "t/s", "speed-up", "L̄", "ℓ̄", "committed of drafted"}}
		for i := range v.cols {
			c := &v.cols[i]
			r := v.row(c, "", t)
			out.Cells = append(out.Cells, []string{
				v.title(c), c.Group, r.Speed.Text(1), times(r.Speedup.Mean), two(r.Pooled), two(r.Accepted()), fmt.Sprintf("%.1f%%", 100*r.Committed()),
			})
		}
		return out
	}
}

// bars draws τ and speed-up of every column by set.
func bars(v *View) (out []plot.Figure) {
	for _, t := range v.at() {
		a := plot.Figure{Title: fmt.Sprintf("τ, temperature %g", t), Groups: setNames(v.sets())}
		b := plot.Figure{Title: fmt.Sprintf("speed-up, temperature %g", t), Groups: setNames(v.sets())}
		for i := range v.cols {
			x, y := plot.Series{Name: v.title(&v.cols[i])}, plot.Series{Name: v.title(&v.cols[i])}
			for _, s := range v.sets() {
				r := v.row(&v.cols[i], s, t)
				x.Y, y.Y = append(x.Y, r.Pooled), append(y.Y, r.Speedup.Mean)
			}
			a.Series, b.Series = append(a.Series, x), append(b.Series, y)
		}
		out = append(out, a, b)
	}
	return out
}
