package papers

import (
	"fmt"

	"talf/infer/bench"
	"talf/infer/draft"
	"talf/internal/plot"
	"talf/internal/spec"
	"talf/internal/table"
)

// The tables and figures of DynaTree. Table 1: throughput; 2: latency; 3: verification; 4 and
// Figure 5: the ablation; 5: memory. Figure 6: lengths of answers; 7: parameters of the fixed
// tree; 8: of DynaTree; 9: lengths of prompts, in characters. Settings are those of the authors'
// logs: tables 1 to 3 have others on PG-19, and Figures 6 and 9 compare with a smaller fixed tree.
// The paper's answers are 1500 tokens long; in Figure 6 lengths are fractions of the run's.
func dynatree() []Exhibit {
	greedy := []float64{0}
	lm := func(label, spec string) Variant { return Variant{Label: label, Spec: spec, Ask: AskLM} }
	ar := Variant{Label: "AR", Spec: bench.Baseline}
	fixed := lm("Fixed Tree (D=8, B=3, τ=0.1)", "fixed:D=8,B=3,tau=0.1")
	small := lm("Fixed Tree (D=5, B=2, τ=0.05)", "fixed:D=5,B=2,tau=0.05")
	dyna := lm("DynaTree", "dynatree")
	ablation := []Variant{small, lm("+ Dynamic Tree Breadth & Depth", "dynatree:history=off"), lm("+ History Adaptation", "dynatree")}
	sets := []struct {
		suffix, doc string
		variants    []Variant
	}{
		{"", "", []Variant{ar, lm("Linear Spec", "linear:K=8"), fixed, dyna}},
		{"-pg19", ", with the settings for PG-19", []Variant{ar, lm("Linear Spec", "linear:K=5"), fixed, lm("DynaTree", "dynatree:Dmax=9")}},
	}
	main := sets[0].variants
	var lengths, prompts []Variant
	for _, v := range []Variant{ar, lm("Linear Spec", "linear:K=5"), small, dyna} {
		for _, part := range []float64{0.25, 0.5, 0.75, 1} {
			x := v
			x.Part, x.Group = part, fmt.Sprintf("%g", part)
			lengths = append(lengths, x)
		}
		for n := 100; n <= 1000; n += 100 {
			x := v
			x.PromptChars, x.Group = n, fmt.Sprint(n)
			prompts = append(prompts, x)
		}
	}
	// Figure 7 has trees of 128 nodes.
	var grid []Variant
	for _, d := range []int{3, 4, 5, 6, 7, 8} {
		grid = append(grid, Variant{Label: "D", Group: fmt.Sprint(d), Spec: fmt.Sprintf("fixed:D=%d,B=3,tau=0.1,N=129", d), Ask: AskLM})
	}
	for _, b := range []int{2, 3, 4} {
		grid = append(grid, Variant{Label: "B", Group: fmt.Sprint(b), Spec: fmt.Sprintf("fixed:D=8,B=%d,tau=0.1,N=129", b), Ask: AskLM})
	}
	for _, tau := range []string{"0.01", "0.02", "0.03", "0.05", "0.1"} {
		grid = append(grid, Variant{Label: "τ", Group: tau, Spec: "fixed:D=8,B=3,N=129,tau=" + tau, Ask: AskLM})
	}
	sensitivity := []Variant{ar, small}
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
	var out []Exhibit
	for _, x := range sets {
		out = append(out, Exhibit{
			Line: spec.Line{Name: "dynatree:t1" + x.suffix, Doc: "throughput and speed-up" + x.doc}, Temperatures: greedy, Variants: x.variants,
			Tables: each(func(v *View, t float64) table.Table { return v.perSet("method", t, main2, throughput, speedup) }),
		}, Exhibit{
			Line: spec.Line{Name: "dynatree:t2" + x.suffix, Doc: "latency" + x.doc}, Temperatures: greedy, Variants: x.variants,
			Tables: each(func(v *View, t float64) table.Table {
				return v.perSet("method", t, []string{"TTFT (ms)", "TPOT (ms)"},
					func(r *bench.Row) string { return bench.Mean{Mean: 1e3 * r.TTFT.Mean, Std: 1e3 * r.TTFT.Std}.Text(1) },
					func(r *bench.Row) string { return bench.Mean{Mean: 1e3 * r.TPOT.Mean, Std: 1e3 * r.TPOT.Std}.Text(2) })
			}),
		}, Exhibit{
			Line: spec.Line{Name: "dynatree:t3" + x.suffix, Doc: "verification" + x.doc}, Temperatures: greedy, Variants: x.variants,
			Tables: each(func(v *View, t float64) table.Table {
				out := v.perSet("method", t, []string{"Accept.", "L̄", "ℓ̄", "#Iter."}, accepted, perIteration, perRound, iterations)
				out.Caption += statisticsNote
				return out
			}),
		})
	}
	return append(out, []Exhibit{
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
			Line: spec.Line{Name: "dynatree:fig9", Doc: "over lengths of prompts in characters"}, Temperatures: greedy, Variants: prompts,
			Tables: each(dynatreeFigure9), Figures: sweep("longest prompt, characters"),
		},
	}...)
}

// The statistics of the authors' code, which are not all as the paper defines them: ℓ̄ includes the
// target's own token of each round, and #Iter. is cut to a whole number before L̄ is taken.

const statisticsNote = "; ℓ̄ is tokens a round with the target's own, the mean over prompts; Accept. is ℓ̄ over the tokens that a round can have at most, D+2 (dynatree: D0+2) or K; #Iter. is rounds an answer; L̄ is tokens an answer over #Iter."

// perRound is ℓ̄.
func perRound(r *bench.Row) string {
	if r.Spec == bench.Baseline {
		return "—"
	}
	return two(r.Tau.Mean)
}

// accepted is Accept.: of a tree ℓ̄/(D+2), where D is the depth that the method was made with, whatever
// Dmax and the history are; of a chain ℓ̄/K, which can exceed 1.
func accepted(r *bench.Row) string {
	m, v, err := draft.Find(r.Spec)
	if err != nil {
		return "—"
	}
	var most float64
	switch m.Name {
	case "linear":
		most = float64(v.Int("K"))
	case "fixed":
		most = float64(v.Int("D") + 2)
	case "dynatree":
		most = v.Float("D0") + 2
	default:
		return "—"
	}
	return fmt.Sprintf("%.1f%%", 100*r.Tau.Mean/most)
}

func iterations(r *bench.Row) string { return fmt.Sprint(r.Passes / max(r.Outputs, 1)) }

func perIteration(r *bench.Row) string {
	return two(float64(r.Tokens) / float64(max(r.Outputs, 1)) / float64(max(r.Passes/max(r.Outputs, 1), 1)))
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
	out := table.Table{Caption: v.caption(t) + statisticsNote, Header: []string{"variant", "t/s", "#Iter.", "L̄", "Accept."}}
	for i := range v.cols {
		r := v.row(&v.cols[i], "", t)
		out.Cells = append(out.Cells, []string{v.cols[i].Label, fmt.Sprintf("%.1f", r.Speed.Mean), iterations(r), perIteration(r), accepted(r)})
	}
	return out
}

// dynatreeFigure9 gives all sets together, by the longest prompt. Speed-ups are over plain decoding of
// prompts cut alike.
func dynatreeFigure9(v *View, t float64) table.Table {
	out := table.Table{Caption: v.caption(t) + statisticsNote, Header: []string{"method", "characters", "t/s", "speed-up", "L̄", "ℓ̄", "Accept."}}
	for i := range v.cols {
		c := &v.cols[i]
		r := v.row(c, "", t)
		out.Cells = append(out.Cells, []string{v.title(c), c.Group, r.Speed.Text(1), times(r.Speedup.Mean), perIteration(r), perRound(r), accepted(r)})
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
