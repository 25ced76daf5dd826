package papers

import (
	"fmt"
	"slices"

	"talf/infer/bench"
	"talf/internal/spec"
	"talf/internal/table"
)

// The tables and figure of Traversal Verification, which compare token-level verification
// (rrsw) and traversal on the same trees, drawn without replacement. Tables 2 and 3: with two
// language models, of which the paper's second is the smaller (Llama-68M for Llama2-7B); 4: by
// temperature. Figure 3: by depth.
func traversal() []Exhibit {
	pair := func(label, group, shape string, ask Ask) []Variant {
		spec := "static:" + shape + ",draw=distinct"
		return []Variant{
			{Label: label + " Tok.V", Group: group, Spec: spec, Verify: "rrsw", Ask: ask},
			{Label: label + " Tra.V", Group: group, Spec: spec, Verify: "traversal", Ask: ask},
		}
	}
	three := func(ask Ask) []Variant {
		return slices.Concat(pair("Chain", "", "chain-5", ask), pair("Binary Tree", "", "binary-5", ask), pair("EAGLE Sparse Tree", "", "eagle-sparse", ask))
	}
	var depths []Variant
	for _, d := range []int{2, 4, 6, 8} {
		depths = append(depths, pair("Chain", fmt.Sprint(d), fmt.Sprintf("chain-%d", d), AskLM)...)
	}
	for d := 2; d <= 5; d++ {
		depths = append(depths, pair("Binary Tree", fmt.Sprint(d), fmt.Sprintf("binary-%d", d), AskLM)...)
	}
	return []Exhibit{
		{
			Line: spec.Line{Name: "traversal:t2", Doc: "accepted lengths, a small language model as draft"}, Temperatures: []float64{1},
			Variants: three(AskLM), Tables: each(traversalBySet),
		},
		{
			Line: spec.Line{Name: "traversal:t3", Doc: "accepted lengths, the last of several language models as draft"}, Temperatures: []float64{1},
			Variants: three(AskLastLM), Tables: each(traversalBySet),
		},
		{
			Line: spec.Line{Name: "traversal:t4", Doc: "accepted lengths over temperatures"}, Temperatures: []float64{0.2, 0.4, 0.6, 0.8, 1},
			Variants: three(AskLM), Tables: traversalByTemperature,
		},
		{
			Line: spec.Line{Name: "traversal:fig3", Doc: "accepted lengths over depths"}, Temperatures: []float64{1},
			Variants: depths, Tables: each(traversalByDepth), Figures: sweep("depth"),
		},
	}
}

// pairs appends accepted lengths of both verifiers and the change, for every pair
// of columns.
func (v *View) pairs(cells []string, f func(c *column) (bench.Mean, int)) []string {
	for i := 0; i+1 < len(v.cols); i += 2 {
		a, digits := f(&v.cols[i])
		b, _ := f(&v.cols[i+1])
		cells = append(cells,
			fmt.Sprintf("%.*f ± %.*f", digits, a.Mean, digits, a.Error()), fmt.Sprintf("%.*f ± %.*f", digits, b.Mean, digits, b.Error()),
			relative(b.Mean, a.Mean))
	}
	return cells
}

func (v *View) pairHeader(first string) (h []string) {
	h = append(h, first)
	for i := 0; i+1 < len(v.cols); i += 2 {
		h = append(h, v.cols[i].Label, v.cols[i+1].Label, "Δ")
	}
	return h
}

// traversalNote explains what follows the means.
const traversalNote = "; ± is the standard error over prompts"

func traversalBySet(v *View, t float64) table.Table {
	out := table.Table{Caption: v.caption(t) + traversalNote, Header: v.pairHeader("task")}
	for _, s := range v.sets() {
		out.Cells = append(out.Cells, v.pairs([]string{bench.SetName(s)}, func(c *column) (bench.Mean, int) { return v.row(c, s, t).Tau, 2 }))
	}
	out.Cells = append(out.Cells,
		v.pairs([]string{"Avg. Accept."}, func(c *column) (bench.Mean, int) { return v.row(c, "", t).Tau, 2 }),
		v.pairs([]string{"Avg. Token/s"}, func(c *column) (bench.Mean, int) { return v.row(c, "", t).Speed, 1 }))
	return out
}

func traversalByTemperature(v *View) []table.Table {
	out := table.Table{Caption: v.exhibit.Name + ", " + v.exhibit.Doc + traversalNote, Header: v.pairHeader("temp.")}
	for _, t := range v.at() {
		out.Cells = append(out.Cells, v.pairs([]string{fmt.Sprintf("%g", t)}, func(c *column) (bench.Mean, int) { return v.row(c, "", t).Tau, 2 }))
	}
	return []table.Table{out}
}

func traversalByDepth(v *View, t float64) table.Table {
	out := table.Table{Caption: v.caption(t) + traversalNote, Header: []string{"tree", "depth", "Tok.V", "Tra.V", "Δ"}}
	for i := 0; i+1 < len(v.cols); i += 2 {
		a, b := v.row(&v.cols[i], "", t).Tau, v.row(&v.cols[i+1], "", t).Tau
		out.Cells = append(out.Cells, []string{
			v.cols[i].Label[:len(v.cols[i].Label)-len(" Tok.V")], v.cols[i].Group,
			fmt.Sprintf("%.2f ± %.2f", a.Mean, a.Error()), fmt.Sprintf("%.2f ± %.2f", b.Mean, b.Error()), relative(b.Mean, a.Mean),
		})
	}
	return out
}
