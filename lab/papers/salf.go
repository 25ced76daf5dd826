package papers

import (
	"fmt"

	"talf/infer/bench"
	"talf/internal/spec"
	"talf/internal/table"
)

// The tables of SALF and TALF ("Tree-Aware Loss Function"; the README lists the papers). Table
// 1: the methods; 2: tree constructions by loss; 3: heads; 4: thresholds. Figure 2(a): nodes by
// rank. Losses and top-k are those that the run's heads were trained with.
func salf() []Exhibit {
	heads := func(label, spec string) Variant { return Variant{Label: label, Spec: spec, Ask: AskHeads} }
	speedAndTau := []string{"speed-up", "τ"}
	both := func(first string) func(v *View) []table.Table {
		return each(func(v *View, t float64) table.Table {
			return v.bySet(first, t, speedAndTau, func(r *bench.Row) string { return times(r.Speedup.Mean) }, func(r *bench.Row) string { return two(r.Pooled) })
		})
	}
	thresholds := Exhibit{
		Line: spec.Line{Name: "salf:t4", Doc: "thresholds of SALF"}, Temperatures: []float64{0},
		Figures: sweep("th"),
	}
	for i := range 10 {
		th := fmt.Sprintf("0.%d", i)
		thresholds.Variants = append(thresholds.Variants, Variant{Label: "SALF", Group: th, Spec: "salf:paper,th=" + th, Ask: AskHead})
	}
	thresholds.Tables = func(v *View) []table.Table {
		out := both("th")(v)
		for i := range out {
			for k := range out[i].Cells {
				out[i].Cells[k][0] = v.cols[k].Group
			}
		}
		return out
	}
	return []Exhibit{
		{
			Line: spec.Line{Name: "salf:t1", Doc: "speed-up by method"}, Temperatures: []float64{0, 1},
			Variants: []Variant{
				{Label: "EAGLE-2", Spec: "beam:paper", Ask: AskNamed("eagle")},
				{Label: "HASS", Spec: "beam:paper", Ask: AskNamed("hass")},
				{Label: "SALF & TALF", Spec: "salf:paper", Ask: AskNamed("talf")},
			},
			Tables: each(salfTable1),
		},
		{
			Line: spec.Line{Name: "salf:t2", Doc: "tree construction by head"}, Temperatures: []float64{0},
			Variants: []Variant{heads("Beam search", "beam:paper"), heads("Optimal tree search", "optimal:paper"), heads("SALF", "salf:paper")},
			Tables:   both("tree (head)"),
		},
		{
			Line: spec.Line{Name: "salf:t3", Doc: "τ by head, with optimal trees"}, Temperatures: []float64{0},
			Variants: []Variant{heads("optimal", "optimal:paper")},
			Tables: each(func(v *View, t float64) table.Table {
				return v.bySet("head", t, []string{"τ"}, func(r *bench.Row) string { return two(r.Pooled) })
			}),
		},
		thresholds,
		{
			Line: spec.Line{Name: "salf:fig2a", Doc: "share of tree nodes by rank among their siblings"}, Temperatures: []float64{0},
			Variants: []Variant{heads("Optimal tree search", "optimal:paper")},
			Tables:   each(ranksTable),
		},
	}
}

// salfTable1 lays out speed-ups and by how much the last method exceeds the others.
func salfTable1(v *View, t float64) table.Table {
	out := v.bySet("method", t, []string{""}, func(r *bench.Row) string { return times(r.Speedup.Mean) })
	last := v.find("SALF & TALF", "")
	for i := range out.Cells {
		if last == nil || v.cols[i].Label == last.Label {
			continue
		}
		at := len(out.Cells[i]) - 1
		out.Cells[i][at] += " (" + relative(v.mean(last, t, speedupOf), v.mean(&v.cols[i], t, speedupOf)) + ")"
	}
	return out
}

// ranksTable lays out the share of drafted nodes by rank, over all sets.
func ranksTable(v *View, t float64) table.Table {
	const most = 5
	out := table.Table{Caption: v.caption(t), Header: []string{"tree (head)"}}
	for n := 1; n < most; n++ {
		out.Header = append(out.Header, fmt.Sprintf("rank %d", n))
	}
	out.Header = append(out.Header, fmt.Sprintf("rank %d and more", most))
	for i := range v.cols {
		ranked := v.row(&v.cols[i], "", t).Ranked
		var all int
		share := make([]int, most)
		for rank, n := range ranked {
			if rank > 0 {
				all += n
				share[min(rank, most)-1] += n
			}
		}
		cells := []string{v.title(&v.cols[i])}
		for _, n := range share {
			cells = append(cells, fmt.Sprintf("%.1f%%", 100*float64(n)/float64(max(all, 1))))
		}
		out.Cells = append(out.Cells, cells)
	}
	return out
}
