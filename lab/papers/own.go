package papers

import (
	"fmt"
	"strings"

	"talf/infer"
	"talf/infer/bench"
	"talf/internal/spec"
	"talf/internal/table"
)

// own returns the project's own tables, which compare all methods.
func own() []Exhibit {
	ask := func(spec string, a Ask) Variant { return Variant{Label: spec, Spec: spec, Ask: a} }
	cold := func(spec string, a Ask) Variant {
		return Variant{Label: spec + ", cold", Spec: spec, Ask: a, Cold: true}
	}
	shapes := []string{"chain-5", "binary-5", "eagle-sparse"}
	verifiers := Exhibit{Line: spec.Line{Name: "talf:verifiers", Doc: "verifiers on trees drawn for them"}, Temperatures: []float64{1}, Tables: each(overview), Figures: bars}
	for _, s := range shapes {
		add := func(draw, verify string) {
			spec := "static:" + s
			if draw != "" {
				spec += ",draw=" + draw
			}
			verifiers.Variants = append(verifiers.Variants, Variant{Label: s + " @" + verify, Spec: spec, Verify: verify, Ask: AskLM})
		}
		add("", "target")
		add("repeated", "rrs")
		add("distinct", "rrsw")
		if s == "chain-5" {
			add("distinct", "block")
		}
		add("distinct", "traversal")
	}
	// Of a method with a table, the one that keeps it is warm, and the one with a fresh table cold.
	methods := []Variant{
		{Label: "ar", Spec: bench.Baseline},
		ask("beam:paper", AskHeads), ask("optimal:paper", AskHeads), ask("salf:paper", AskHeads), ask("dynatree", AskHead), cold("dynatree", AskHead),
		ask("dynatree:rows", AskHead), ask("linear", AskHead),
		ask("salf:paper", AskLM), ask("dynatree", AskLM), cold("dynatree", AskLM), ask("dynatree:rows", AskLM), ask("fixed", AskLM), ask("linear", AskLM),
		ask("static:chain-5", AskLM), ask("static:eagle-sparse", AskLM), ask("sequoia", AskLM),
		ask("pld", AskNone), ask("suffix", AskNone), ask("suffix:table=keep", AskNone), ask("recycle", AskNone), ask("recycle:table=keep", AskNone),
		ask("isotropic", AskNone), ask("goose", AskNone), ask("goose:table=keep", AskNone), ask("goose:N=8", AskNone), ask("lookahead", AskNone),
		ask("rest:file={datastore}", AskNone),
		ask("beam", AskHead), ask("optimal", AskHead), ask("salf", AskHead), cold("salf", AskHead), ask("salf", AskLM), cold("salf", AskLM),
		ask("auto", AskHead), cold("auto", AskHead), ask("auto", AskLM), cold("auto", AskLM), ask("auto", AskNone), cold("auto", AskNone),
	}
	budgets := Exhibit{
		Line: spec.Line{Name: "talf:budgets", Doc: "sizes of trees, root counted"}, Tables: each(groupTable("nodes")), Figures: sweep("nodes of a tree, root counted"),
	}
	for _, v := range []Variant{ask("beam:paper", AskHead), ask("salf:paper", AskHead), ask("goose", AskNone), ask("recycle:rows", AskNone)} {
		for _, n := range []int{4, 8, 16, 32, 60, 120} {
			x := v
			x.Spec, x.Group = sized(v.Spec, n), fmt.Sprint(n)
			budgets.Variants = append(budgets.Variants, x)
		}
	}
	return []Exhibit{
		{Line: spec.Line{Name: "talf:methods", Doc: "every method with its defaults, those that learn also cold"}, Tables: each(overview), Figures: bars, Variants: methods},
		{Line: spec.Line{Name: "talf:acceptance", Doc: "tokens a pass, and acceptance by depth and rank"}, Tables: each(acceptance), Variants: methods[1:]},
		{
			Line: spec.Line{Name: "talf:auto", Doc: "auto beside what it chooses from"}, Tables: each(overview), Figures: bars,
			Variants: []Variant{
				{Label: "ar", Spec: bench.Baseline},
				ask("pld", AskNone), ask("goose:harvest=rounds", AskNone), ask("recycle:rows,harvest=rounds", AskNone),
				ask("salf", AskHead), ask("salf", AskLM),
				ask("auto", AskNone), ask("auto", AskHead), ask("auto", AskLM),
			},
		},
		verifiers,
		budgets,
	}
}

// sized is a specification with trees of n nodes.
func sized(spec string, n int) string {
	if strings.Contains(spec, ":") {
		return fmt.Sprintf("%s,N=%d", spec, n)
	}
	return fmt.Sprintf("%s:N=%d", spec, n)
}

// acceptance lays out the histogram of tokens per pass, and acceptance by depth and by rank
// over all sets; sequoia takes the latter as its ranks.
func acceptance(v *View, t float64) table.Table {
	out := table.Table{
		Caption: v.caption(t),
		Header:  []string{"method", "asks", "passes that emitted 1/2/… tokens, %", "kept of passes that reached depth 1/2/…", "kept of compared siblings of rank 1/2/…"},
	}
	rates := func(rs []infer.Rate, most int) string {
		var s []string
		for i := 1; i < len(rs) && i <= most; i++ {
			s = append(s, fmt.Sprintf("%.3g", rs[i].Value()))
		}
		return strings.Join(s, "/")
	}
	for i := range v.cols {
		c := &v.cols[i]
		r := v.row(c, "", t)
		var hist []string
		for n := 1; n < len(r.Emitted); n++ {
			hist = append(hist, fmt.Sprintf("%.3g", 100*float64(r.Emitted[n])/float64(max(r.Passes, 1))))
		}
		asks := c.source
		if asks == "" {
			asks = "–"
		}
		out.Cells = append(out.Cells, []string{c.Label, asks, strings.Join(hist, "/"), rates(r.Depth, 8), rates(r.Rank, 10)})
	}
	return out
}

// overview lays out τ and speed-up by set, and what applies to all sets.
func overview(v *View, t float64) table.Table {
	out := table.Table{Caption: v.caption(t), Header: []string{"method", "asks"}}
	for _, s := range v.sets() {
		out.Header = append(out.Header, join(s, "τ"), join(s, "speed-up"))
	}
	out.Header = append(out.Header, "τ, all", "without loops", "speed-up, all", "lower 95%", "slowest prompt", "draft", "verify", "other", "loops")
	for i := range v.cols {
		c := &v.cols[i]
		asks := c.source
		if asks == "" {
			asks = "–"
		}
		cells := []string{c.Label, asks}
		for _, s := range v.sets() {
			r := v.row(c, s, t)
			cells = append(cells, two(r.Pooled), times(r.Speedup.Mean))
		}
		r := v.row(c, "", t)
		out.Cells = append(out.Cells, append(cells,
			two(r.Pooled), two(r.Straight), r.Speedup.Text(2), two(r.Low95), two(r.Slowest),
			table.Percent(r.Draft), table.Percent(r.Verified), table.Percent(r.Overhead), table.Percent(float64(r.Looping)/float64(max(r.Outputs, 1)))))
	}
	return out
}
