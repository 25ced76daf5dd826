package papers

import (
	"fmt"
	"math"
	"slices"

	"talf/infer/bench"

	"talf/internal/spec"
	"talf/internal/table"
)

// The tables and figures of GOOSE. Table 1: spine and isotropic trees; 2: the ablation; 3: all
// methods. Figure 4(a): what the spine tree adds; 4(b): its parameters; 5: acceptance by
// origin. Appendix E.4: the bound of Proposition 1.
func goose() []Exhibit {
	greedy := []float64{0}
	goose := Variant{Label: "GOOSE", Spec: "goose"}
	params := Exhibit{Line: spec.Line{Name: "goose:fig4b", Doc: "parameters of GOOSE, one at a time"}, Temperatures: greedy}
	for _, p := range []struct {
		name, label string
		values      []string
	}{
		{"N", "B", []string{"15", "30", "60", "90", "120"}},
		{"D", "D", []string{"2", "4", "6", "8"}},
		{"r", "r", []string{"0.15", "0.30", "0.50", "auto"}},
		{"rho", "ρ", []string{"0.25", "0.5", "0.75"}},
	} {
		for _, x := range p.values {
			params.Variants = append(params.Variants, Variant{Label: p.label, Group: x, Spec: fmt.Sprintf("goose:%s=%s", p.name, x)})
		}
	}
	params.Tables = each(func(v *View, t float64) table.Table {
		out := v.bySet("parameter", t, []string{""}, func(r *bench.Row) string { return two(r.Pooled) })
		for i := range out.Cells {
			out.Cells[i][0] += " = " + v.cols[i].Group
		}
		return out
	})
	params.Figures = sweep("value")
	return []Exhibit{
		{
			Line: spec.Line{Name: "goose:t1", Doc: "τ of spine and isotropic trees of 60 nodes"}, Temperatures: greedy,
			Variants: []Variant{goose, {Label: "Iso(3)", Spec: "isotropic:k=3"}, {Label: "Iso(5)", Spec: "isotropic:k=5"}},
			Tables:   each(gooseTable1),
		},
		{
			Line: spec.Line{Name: "goose:t2", Doc: "τ without one idea at a time"}, Temperatures: greedy,
			Variants: []Variant{
				goose,
				{Label: "w/o spine branches", Group: "Idea 1: anisotropic topology", Spec: "goose:branches=off"},
				{Label: "w/o bigram adjacency", Group: "Idea 1: anisotropic topology", Spec: "goose:bigram=off"},
				{Label: "w/o consensus bypass", Group: "Idea 2: confidence-adaptive budget", Spec: "goose:consensus=off"},
				{Label: "w/o context-match spine", Group: "Idea 2: confidence-adaptive budget", Spec: "goose:spine=0"},
				{Label: "w/o PLD tokens (shape kept)", Group: "Control", Spec: "goose:from=table"},
			},
			Tables: each(gooseTable2),
		},
		{
			Line: spec.Line{Name: "goose:t3", Doc: "all training-free methods, and a head"}, Temperatures: greedy,
			Variants: []Variant{
				{Label: "AR", Spec: bench.Baseline},
				{Label: "PLD", Spec: "pld"},
				{Label: "TR", Spec: "recycle:table=keep"},
				{Label: "Lookahead", Spec: "lookahead"},
				{Label: "REST", Spec: "rest:file={datastore}"},
				{Label: "EAGLE-2", Spec: "beam:paper", Ask: AskHead},
				goose,
			},
			Tables: each(func(v *View, t float64) table.Table {
				return v.bySet("method", t, []string{"Spd", "τ"}, func(r *bench.Row) string { return two(r.Speedup.Mean) }, func(r *bench.Row) string { return two(r.Pooled) })
			}),
		},
		{
			Line: spec.Line{Name: "goose:fig4a", Doc: "τ of GOOSE beside the best of its parts alone"}, Temperatures: greedy,
			Variants: []Variant{goose, {Label: "PLD", Spec: "pld"}, {Label: "TR", Spec: "recycle:table=keep"}},
			Tables:   each(gooseFigure4a),
		},
		params,
		{
			Line: spec.Line{Name: "goose:fig5", Doc: "acceptance by origin and rounds by kind of path"}, Temperatures: greedy,
			Variants: []Variant{goose}, Tables: each(gooseFigure5),
		},
		{
			Line: spec.Line{Name: "goose:e4", Doc: "the bound of Proposition 1 and the measured τ"}, Temperatures: greedy,
			Variants: []Variant{goose}, Tables: each(gooseE4),
		},
	}
}

func gooseTable1(v *View, t float64) table.Table {
	out := table.Table{Caption: v.caption(t), Header: []string{"dataset"}}
	for i := range v.cols {
		out.Header = append(out.Header, v.title(&v.cols[i]))
	}
	out.Header = append(out.Header, "Δ over Iso(3)")
	line := func(name string, f func(c *column) float64) {
		cells := []string{name}
		for i := range v.cols {
			cells = append(cells, two(f(&v.cols[i])))
		}
		out.Cells = append(out.Cells, append(cells, relative(f(v.find("GOOSE", "")), f(v.find("Iso(3)", "")))))
	}
	for _, s := range v.sets() {
		line(bench.SetName(s), func(c *column) float64 { return v.row(c, s, t).Pooled })
	}
	line("average", func(c *column) float64 { return v.mean(c, t, tauOf) })
	return out
}

// gooseTable2 adds the mean relative change over sets as its last column.
func gooseTable2(v *View, t float64) table.Table {
	out := table.Table{Caption: v.caption(t), Header: append(append([]string{"config"}, setNames(v.sets())...), "Δ")}
	full := v.find("GOOSE", "")
	group := ""
	for i := range v.cols {
		c := &v.cols[i]
		if c.Group != group {
			group = c.Group
			out.Cells = append(out.Cells, append([]string{group}, make([]string, len(v.Sets)+1)...))
		}
		cells, sum := []string{c.Label}, 0.0
		for _, s := range v.sets() {
			cells = append(cells, two(v.row(c, s, t).Pooled))
			if b := v.row(full, s, t).Pooled; b > 0 {
				sum += v.row(c, s, t).Pooled/b - 1
			}
		}
		delta := "—"
		if c != full {
			delta = fmt.Sprintf("%+.1f%%", 100*sum/float64(max(len(v.Sets), 1)))
		}
		out.Cells = append(out.Cells, append(cells, delta))
	}
	return out
}

// setNames names sets, including the one without a name.
func setNames(sets []string) (out []string) {
	for _, s := range sets {
		out = append(out, bench.SetName(s))
	}
	return out
}

func gooseFigure4a(v *View, t float64) table.Table {
	out := table.Table{Caption: v.caption(t), Header: []string{"dataset", "best part", "τ of it", "τ of GOOSE", "gain"}}
	for _, s := range v.sets() {
		best := slices.MaxFunc(v.cols[1:], func(a, b column) int {
			if v.row(&a, s, t).Pooled < v.row(&b, s, t).Pooled {
				return -1
			}
			return 1
		})
		g, b := v.row(&v.cols[0], s, t).Pooled, v.row(&best, s, t).Pooled
		out.Cells = append(out.Cells, []string{bench.SetName(s), best.Label, two(b), two(g), relative(g, b)})
	}
	return out
}

func gooseFigure5(v *View, t float64) table.Table {
	out := table.Table{
		Caption: v.caption(t) + "; ps and pt are the shares of drafted spine and branch nodes that were accepted, in brackets of those whose parent was",
		Header:  []string{"dataset", "ps", "pt", "ps/pt", "pure PLD", "continuation", "pure TR", "nothing accepted"},
	}
	for _, s := range v.sets() {
		p := v.row(&v.cols[0], s, t).Paths
		if p == nil {
			continue
		}
		ps, psReached := p.Rate(bench.Spine)
		pt, ptReached := p.Rate(bench.Branch)
		ratio := "–"
		if pt > 0 {
			ratio = fmt.Sprintf("%.1f", ps/pt)
		}
		out.Cells = append(out.Cells, []string{
			bench.SetName(s), fmt.Sprintf("%.3f (%.3f)", ps, psReached), fmt.Sprintf("%.3f (%.3f)", pt, ptReached), ratio,
			table.Percent(p.Share(bench.Spine)), table.Percent(p.Share(bench.Spine + "+" + bench.Branch)), table.Percent(p.Share(bench.Branch)), table.Percent(p.Share(bench.Nothing)),
		})
	}
	return out
}

// The shape that the paper's bounds are computed for.
const (
	gooseDepth  = 6
	gooseBudget = 60
)

func gooseE4(v *View, t float64) table.Table {
	out := table.Table{
		Caption: v.caption(t) + "; iso is the yield of a tree of 60 transitions, three to a node",
		Header:  []string{"dataset", "bound", "iso", "bound/iso", "measured τ", "bound/τ", "holds"},
	}
	for _, s := range v.sets() {
		r := v.row(&v.cols[0], s, t)
		if r.Paths == nil {
			continue
		}
		bound, iso := Bound(r.Paths, gooseDepth), IsotropicBound(r.Paths, 3, gooseBudget)
		holds := "yes"
		if bound > r.Pooled {
			holds = "no"
		}
		out.Cells = append(out.Cells, []string{
			bench.SetName(s), two(bound), two(iso), times(bound / iso), two(r.Pooled), table.Percent(bound / max(r.Pooled, 1)), holds,
		})
	}
	return out
}

// Bound returns the lower bound on τ in Proposition 1 of GOOSE (equation 1), averaged over the
// shapes of the proposed trees:
//
//	Σ_{i=1..m} ps^i + Σ_{i<m} ps^i (1−ps) φ_i (1+ℓ) + 1
//	φ_i = 1 − (1−pt)^{w_i},  ℓ = Σ_{k=1..depth−1} pt^k
//
// ps and pt are the shares of drafted spine and branch nodes that were accepted, as in the
// publication. A tree without a spine has its branches at the root.
func Bound(p *bench.Paths, depth int) float64 {
	ps, _ := p.Rate(bench.Spine)
	pt, _ := p.Rate(bench.Branch)
	on := 0.0
	for k := 1; k < depth; k++ {
		on += math.Pow(pt, float64(k))
	}
	rounds, sum := 0, 0.0
	for m, n := range p.Length {
		rounds += n
		for i := 1; i <= m; i++ {
			sum += float64(n) * math.Pow(ps, float64(i))
		}
	}
	if rounds == 0 {
		return 1
	}
	branch := func(w int) float64 { return (1 - math.Pow(1-pt, float64(w))) * (1 + on) }
	for i, fan := range p.Fan {
		for w, n := range fan {
			sum += float64(n) * math.Pow(ps, float64(i)) * (1 - ps) * branch(w)
		}
	}
	for w, n := range p.Bare {
		sum += float64(n) * branch(w)
	}
	return sum/float64(rounds) + 1
}

// IsotropicBound returns the same bound for a tree of transitions alone with k children per
// node and budget nodes, the root included: Σ_d Π_{j≤d} (1 − (1−pt)^{k}) + 1.
func IsotropicBound(p *bench.Paths, k, budget int) float64 {
	pt, _ := p.Rate(bench.Branch)
	phi := 1 - math.Pow(1-pt, float64(k))
	sum, reach := 0.0, 1.0
	for width, left := k, budget-1; left > 0; width *= k {
		if width > left { // the last level is not full
			phi = 1 - math.Pow(1-pt, float64(k)*float64(left)/float64(width))
		}
		reach *= phi
		sum += reach
		left -= width
	}
	return sum + 1
}
