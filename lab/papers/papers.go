// Package papers reproduces tables and figures of publications, and sweeps of this project's
// own, on the models and prompts at hand: it defines what each of them runs and how it is laid
// out.
package papers

import (
	"fmt"
	"slices"
	"strings"

	"talf/infer/bench"
	"talf/infer/draft"
	"talf/internal/plot"
	"talf/internal/spec"
	"talf/internal/table"
)

// An Exhibit is one table, figure, ablation or sweep: what to run and how to lay it out. Its
// figures are measured on the run's own target and prompts.
type Exhibit struct {
	spec.Line // such as "goose:t2"
	// Temperatures are the publication's; nil leaves them to the run.
	Temperatures []float64
	Variants     []Variant
	Tables       func(v *View) []table.Table
	Figures      func(v *View) []plot.Figure // nil if there are none
}

// A Variant is one row or column of an exhibit.
type Variant struct {
	Label  string // the publication's name for the method
	Group  string // heading above it, or the value of a sweep
	Spec   string // "{datastore}" stands for the run's datastore
	Verify string
	Ask    Ask // which draft model is asked

	Budget      int
	PromptChars int // first characters of a prompt; 0: all
	// Cold: every answer begins without what earlier ones taught the method.
	Cold bool
	// Part is the share of the run's max tokens that an answer may have; 0 is all.
	Part float64
}

// An Ask says which draft model a variant asks.
type Ask string

// The draft models to ask. AskHead, AskLM and AskLastLM fall back to the other kind if there is none
// of their own.
const (
	AskNone   Ask = ""
	AskHead   Ask = "head"
	AskLM     Ask = "lm"      // a language model
	AskLastLM Ask = "lm:last" // the language model that was given last, perhaps the only one
	AskHeads  Ask = "heads"   // every head
)

// AskNamed asks the head whose name contains name, or the only head.
func AskNamed(name string) Ask { return Ask("head:" + name) }

// A View is an exhibit of a finished run.
type View struct {
	*bench.Report
	exhibit *Exhibit
	temps   []float64
	cols    []column
}

// A column is a variant and the method that it became.
type column struct {
	Variant
	name   string // of the method in the report
	source string
}

// Exhibits lists all exhibits, by publication.
func Exhibits() spec.Table[Exhibit] {
	return spec.Table[Exhibit]{Kind: "paper table", Lines: slices.Concat(salf(), goose(), dynatree(), traversal(), own())}
}

// Select returns the exhibits with these names. "all" selects every one, and the name of a
// publication, such as "goose", all of its own.
func Select(names []string) ([]Exhibit, error) {
	all := Exhibits()
	var out []Exhibit
	for _, n := range names {
		before := len(out)
		for _, x := range all.Lines {
			if n == "all" || strings.HasPrefix(x.Name, n+":") {
				out = append(out, x)
			}
		}
		if len(out) > before {
			continue
		}
		x, err := all.Find(n)
		if err != nil {
			return nil, err
		}
		out = append(out, x)
	}
	return out, nil
}

// A Kit is what a run offers to exhibits.
type Kit struct {
	Sources   []bench.Source
	Datastore string // file of a datastore; empty if there is none
	MaxTokens int    // of an answer
	// Temperatures are for exhibits that leave them to the run.
	Temperatures []float64
}

// At returns the temperatures that x runs at.
func (k *Kit) At(x *Exhibit) []float64 {
	if x.Temperatures == nil {
		return k.Temperatures
	}
	return x.Temperatures
}

// sources returns the draft models that a variant asks, none if the kit lacks them.
func (k *Kit) sources(a Ask) []bench.Source {
	first := func(lm bool) []bench.Source {
		for _, s := range k.Sources {
			if s.LM == lm {
				return []bench.Source{s}
			}
		}
		return nil
	}
	var heads []bench.Source
	for _, s := range k.Sources {
		if !s.LM {
			heads = append(heads, s)
		}
	}
	switch a {
	case AskNone:
		return []bench.Source{{}}
	case AskHeads:
		if len(heads) == 0 {
			return first(true)
		}
		return heads
	case AskLastLM:
		for _, s := range slices.Backward(k.Sources) {
			if s.LM {
				return []bench.Source{s}
			}
		}
		return first(false)
	case AskHead, AskLM:
		if got := first(a == AskLM); got != nil {
			return got
		}
		return first(a != AskLM)
	}
	name := strings.TrimPrefix(string(a), "head:")
	for _, h := range heads {
		if strings.Contains(strings.ToLower(h.Name), name) {
			return []bench.Source{h}
		}
	}
	if len(heads) == 1 {
		return heads
	}
	return nil
}

// resolve turns x's variants into methods. without names the variants for which the kit lacks
// something.
func (x *Exhibit) resolve(k *Kit) (cols []column, methods []bench.Method, without []string) {
	for _, v := range x.Variants {
		got := k.sources(v.Ask)
		if line, _, err := draft.Find(v.Spec); err == nil && line.May && len(got) == 0 {
			got = []bench.Source{{}} // it works without one
		}
		spec := strings.ReplaceAll(v.Spec, "{datastore}", k.Datastore)
		switch {
		case len(got) == 0:
			without = append(without, fmt.Sprintf("%s: %s asks a draft model (%s)", x.Name, v.Label, v.Ask))
			continue
		case spec != v.Spec && k.Datastore == "":
			without = append(without, fmt.Sprintf("%s: %s needs a datastore", x.Name, v.Label))
			continue
		}
		for _, s := range got {
			m := bench.Method{
				Spec: spec, Verify: v.Verify, Source: s.Source, SourceName: s.Name, Budget: v.Budget,
				PromptChars: v.PromptChars, Temperatures: k.At(x), Cold: v.Cold,
			}
			if v.Part > 0 && v.Part < 1 {
				m.MaxTokens = max(1, int(v.Part*float64(k.MaxTokens)))
			}
			if m.Spec == bench.Baseline {
				m = m.Plain() // which runs at every temperature
			}
			if !slices.ContainsFunc(methods, func(o bench.Method) bool { return o.Name() == m.Name() }) {
				methods = append(methods, m)
			}
			c := column{v, m.Name(), s.Name}
			// If there is only one draft model, AskHead and AskLM mean the same.
			if !slices.ContainsFunc(cols, func(o column) bool { return o.Label == c.Label && o.Group == c.Group && o.name == c.name }) {
				cols = append(cols, c)
			}
		}
	}
	return cols, methods, without
}

// Add adds what the exhibits run to c, each method and temperature once, and returns the
// variants that are left out because the kit lacks something for them.
func Add(c *bench.Config, exhibits []Exhibit, k *Kit) (without []string) {
	for i := range exhibits {
		x := &exhibits[i]
		_, methods, left := x.resolve(k)
		without = append(without, left...)
		for _, t := range k.At(x) {
			if !slices.Contains(c.Temperatures, t) {
				c.Temperatures = append(c.Temperatures, t)
			}
		}
		for _, m := range methods {
			at := slices.IndexFunc(c.Methods, func(o bench.Method) bool { return o.Name() == m.Name() })
			if at < 0 {
				c.Methods = append(c.Methods, m)
				continue
			}
			have := &c.Methods[at]
			if have.Temperatures == nil || m.Temperatures == nil {
				have.Temperatures = nil
				continue
			}
			have.Temperatures = slices.Clone(have.Temperatures)
			for _, t := range m.Temperatures {
				if !have.RunsAt(t) {
					have.Temperatures = append(have.Temperatures, t)
				}
			}
		}
	}
	return without
}

// View returns x over r, the report of a run with kit k.
func (x *Exhibit) View(r *bench.Report, k *Kit) *View {
	cols, _, _ := x.resolve(k)
	return &View{Report: r, exhibit: x, temps: k.At(x), cols: cols}
}

// Layout returns the exhibit's tables.
func (v *View) Layout() []table.Table { return v.exhibit.Tables(v) }

// Draw returns the exhibit's figures, nil if it has none.
func (v *View) Draw() []plot.Figure {
	if v.exhibit.Figures == nil {
		return nil
	}
	return v.exhibit.Figures(v)
}

// at returns the exhibit's temperatures.
func (v *View) at() []float64 { return v.temps }

// sets returns the names of the report's sets.
func (v *View) sets() (names []string) {
	for _, s := range v.Sets {
		names = append(names, s.Name)
	}
	return names
}

// row returns a column's row, an empty one if nothing was measured.
func (v *View) row(c *column, set string, t float64) *bench.Row {
	if r := v.Row(c.name, set, t); r != nil {
		return r
	}
	return &bench.Row{}
}

// find returns the column with a label, nil if it was left out.
func (v *View) find(label, group string) *column {
	for i := range v.cols {
		if c := &v.cols[i]; c.Label == label && (group == "" || c.Group == group) {
			return c
		}
	}
	return nil
}

// title names a column. It names the draft model too if the variant asks a particular one.
func (v *View) title(c *column) string {
	if c.Ask == AskHeads || strings.HasPrefix(string(c.Ask), "head:") {
		return c.Label + " (" + c.source + ")"
	}
	return c.Label
}

// mean returns the mean of f over sets. Each set counts the same, as in the publications.
func (v *View) mean(c *column, t float64, f func(*bench.Row) float64) float64 {
	sum := 0.0
	for _, s := range v.sets() {
		sum += f(v.row(c, s, t))
	}
	return sum / float64(max(len(v.Sets), 1))
}

func tauOf(r *bench.Row) float64     { return r.Pooled }
func speedOf(r *bench.Row) float64   { return r.Speed.Mean }
func speedupOf(r *bench.Row) float64 { return r.Speedup.Mean }

func times(x float64) string { return fmt.Sprintf("%.2f×", x) }

func two(x float64) string { return fmt.Sprintf("%.2f", x) }

// relative writes by how much a exceeds b.
func relative(a, b float64) string {
	if b == 0 {
		return "–"
	}
	return fmt.Sprintf("%+.1f%%", 100*(a/b-1))
}

// caption names the exhibit and its temperature.
func (v *View) caption(t float64) string {
	return fmt.Sprintf("%s, %s; temperature %g", v.exhibit.Name, v.exhibit.Doc, t)
}

// bySet returns a table with a row for each column of the view. Each set, and the mean over
// sets, has a column for every function of f.
func (v *View) bySet(first string, t float64, names []string, f ...func(*bench.Row) string) table.Table {
	out := table.Table{Caption: v.caption(t), Header: []string{first}}
	for _, s := range append(v.sets(), "mean") {
		for _, n := range names {
			out.Header = append(out.Header, strings.TrimSpace(s+" "+n))
		}
	}
	for i := range v.cols {
		c := &v.cols[i]
		cells := []string{v.title(c)}
		for _, s := range v.sets() {
			for _, g := range f {
				cells = append(cells, g(v.row(c, s, t)))
			}
		}
		m := &bench.Row{
			Pooled:  v.mean(c, t, tauOf),
			Speed:   bench.Mean{Mean: v.mean(c, t, speedOf)},
			Speedup: bench.Mean{Mean: v.mean(c, t, speedupOf)},
		}
		for _, g := range f {
			cells = append(cells, g(m))
		}
		out.Cells = append(out.Cells, cells)
	}
	return out
}

// each lays out one table per temperature.
func each(f func(v *View, t float64) table.Table) func(v *View) []table.Table {
	return func(v *View) (out []table.Table) {
		for _, t := range v.at() {
			out = append(out, f(v, t))
		}
		return out
	}
}

// sweep draws τ and speed-up of all sets together over the values of a sweep, a line for each
// label.
func sweep(x string) func(v *View) []plot.Figure {
	return func(v *View) (out []plot.Figure) {
		for _, t := range v.at() {
			a := plot.Figure{Title: fmt.Sprintf("τ, temperature %g", t), X: x, Y: "τ"}
			b := plot.Figure{Title: fmt.Sprintf("speed-up, temperature %g", t), X: x, Y: "speed-up"}
			for i := range v.cols {
				c := &v.cols[i]
				var at float64
				if _, err := fmt.Sscan(c.Group, &at); err != nil {
					continue
				}
				r := v.row(c, "", t)
				a.AddError(v.title(c), at, r.Tau.Mean, r.Tau.Error())
				b.AddError(v.title(c), at, r.Speedup.Mean, r.Speedup.Error())
			}
			out = append(out, a, b)
		}
		return out
	}
}
