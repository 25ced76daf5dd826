package bench

import "fmt"

// The project's own tables: every method beside every other.
func ownPapers() []Paper {
	ask := func(spec string, a Ask) Variant { return Variant{Label: spec, Spec: spec, Ask: a} }
	shapes := []string{"chain-5", "binary-5", "eagle-sparse"}
	verifiers := Paper{Name: "talf:verifiers", Doc: "verifiers on trees drawn for them", Temperatures: []float64{1}, Tables: each(overview), Figures: bars}
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
	return []Paper{
		{
			Name: "talf:methods", Doc: "every method with its defaults", Tables: each(overview), Figures: bars,
			Variants: []Variant{
				{Label: "ar", Spec: Baseline},
				ask("beam", AskHead), ask("optimal", AskHead), ask("salf", AskHead), ask("dynatree", AskHead),
				ask("linear", AskLM), ask("static:eagle-sparse", AskLM), ask("fixed", AskLM), ask("dynatree", AskLM),
				ask("pld", AskNone), ask("recycle", AskNone), ask("lookahead", AskNone), ask("isotropic", AskNone), ask("goose", AskNone), ask("rest:file={datastore}", AskNone),
			},
		},
		verifiers,
	}
}

// overview gives τ and speed-up by set, and what can be said of all of them.
func overview(v *View, t float64) Table {
	out := Table{Caption: v.caption(t), Header: []string{"method", "asks"}}
	for _, s := range v.sets() {
		out.Header = append(out.Header, join(s, "τ"), join(s, "speed-up"))
	}
	out.Header = append(out.Header, "τ, all", "without loops", "speed-up, all", "lower 95%", "draft", "verify", "other", "loops")
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
			two(r.Pooled), two(r.Straight), fmt.Sprintf("%.2f ± %.2f", r.Speedup.Mean, r.Speedup.Std), two(r.Low95),
			percent(r.Draft), percent(r.Verified), percent(r.Overhead), percent(float64(r.Looping)/float64(max(r.Outputs, 1)))))
	}
	return out
}
