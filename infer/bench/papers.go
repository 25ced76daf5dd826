package bench

import (
	"fmt"
	"slices"
	"strings"

	"talf/infer"
	"talf/infer/draft"
	"talf/internal/plot"
	"talf/internal/table"
)

// A Source is a draft model that methods may ask.
type Source struct {
	Name string // of the run's own choice
	LM   bool   // a language model; otherwise a draft head
	infer.Source
}

// A Paper is one table, ablation or sweep of a publication, as what to run and how
// to lay it out. What is measured is measured here, on the run's own target and
// prompts.
type Paper struct {
	Name string // such as "goose:t2"
	Doc  string
	// Temperatures are the publication's; nil leaves them to the run.
	Temperatures []float64
	Variants     []Variant
	Tables       func(v *View) []table.Table
	Figures      func(v *View) []plot.Figure // nil where there are none
}

// A Variant is one row or column of a paper: a method by the paper's name.
type Variant struct {
	Label  string
	Group  string // heading above it, or the value of a sweep
	Spec   string // "{datastore}" stands for the run's datastore
	Verify string
	// Ask says which draft model is asked: a head or a language model, each of
	// them for want of the other; the head of that name, or the only one; all.
	Ask Ask

	Budget       int
	PromptTokens int
	// Part is the share of the run's max tokens that answers may have; 0 is all.
	Part float64
}

// An Ask says which draft model a variant asks.
type Ask string

// The draft models to ask. "head:NAME" asks the head of that name.
const (
	AskNone  Ask = ""
	AskHead  Ask = "head"
	AskLM    Ask = "lm"
	AskHeads Ask = "heads" // all
)

// AskNamed asks the head that is called name.
func AskNamed(name string) Ask { return Ask("head:" + name) }

// A View is a paper over a finished run.
type View struct {
	*Report
	paper *Paper
	temps []float64
	cols  []column
}

// A column is a variant and the method that it became.
type column struct {
	Variant
	name   string // of the method in the report
	source string
}

// Papers lists what --paper runs.
func Papers() []Paper {
	return slices.Concat(salfPapers(), goosePapers(), dynatreePapers(), traversalPapers(), ownPapers())
}

// FindPaper returns the entry called name.
func FindPaper(name string) (Paper, error) {
	var names []string
	for _, p := range Papers() {
		if p.Name == name {
			return p, nil
		}
		names = append(names, p.Name)
	}
	return Paper{}, fmt.Errorf("no paper table is called %q, want one of %s", name, strings.Join(names, ", "))
}

// A Kit is what a run has for papers.
type Kit struct {
	Sources   []Source
	Datastore string // file of a datastore; empty where there is none
	MaxTokens int    // of an answer
	// Temperatures are for papers that leave them to the run.
	Temperatures []float64
}

// At returns the temperatures that p runs at.
func (k *Kit) At(p *Paper) []float64 {
	if p.Temperatures == nil {
		return k.Temperatures
	}
	return p.Temperatures
}

// sources returns those that a variant asks; none if the kit lacks them.
func (k *Kit) sources(a Ask) []Source {
	first := func(lm bool) []Source {
		for _, s := range k.Sources {
			if s.LM == lm {
				return []Source{s}
			}
		}
		return nil
	}
	var heads []Source
	for _, s := range k.Sources {
		if !s.LM {
			heads = append(heads, s)
		}
	}
	switch a {
	case AskNone:
		return []Source{{}}
	case AskHeads:
		if len(heads) == 0 {
			return first(true)
		}
		return heads
	case AskHead, AskLM:
		if got := first(a == AskLM); got != nil {
			return got
		}
		return first(a != AskLM)
	}
	name := strings.TrimPrefix(string(a), "head:")
	for _, h := range heads {
		if strings.Contains(strings.ToLower(h.Name), name) {
			return []Source{h}
		}
	}
	if len(heads) == 1 {
		return heads
	}
	return nil
}

// resolve makes methods of p's variants. What the kit has nothing for is left out
// and named.
func (p *Paper) resolve(k *Kit) (cols []column, methods []Method, without []string) {
	for _, v := range p.Variants {
		got := k.sources(v.Ask)
		if line, _, err := draft.Find(v.Spec); err == nil && line.May && len(got) == 0 {
			got = []Source{{}} // it does without
		}
		spec := strings.ReplaceAll(v.Spec, "{datastore}", k.Datastore)
		switch {
		case len(got) == 0:
			without = append(without, fmt.Sprintf("%s: %s asks a draft model (%s)", p.Name, v.Label, v.Ask))
			continue
		case spec != v.Spec && k.Datastore == "":
			without = append(without, fmt.Sprintf("%s: %s needs a datastore", p.Name, v.Label))
			continue
		}
		for _, s := range got {
			m := Method{
				Spec: spec, Verify: v.Verify, Source: s.Source, SourceName: s.Name, Budget: v.Budget,
				PromptTokens: v.PromptTokens, Temperatures: k.At(p),
			}
			if v.Part > 0 && v.Part < 1 {
				m.MaxTokens = max(1, int(v.Part*float64(k.MaxTokens)))
			}
			if m.Spec == Baseline {
				m = m.base() // which runs at every temperature
			}
			if !slices.ContainsFunc(methods, func(o Method) bool { return o.Name() == m.Name() }) {
				methods = append(methods, m)
			}
			c := column{v, m.Name(), s.Name}
			// A head and a language model are the same where there is only one.
			if !slices.ContainsFunc(cols, func(o column) bool { return o.Label == c.Label && o.Group == c.Group && o.name == c.name }) {
				cols = append(cols, c)
			}
		}
	}
	return cols, methods, without
}

// AddPapers adds to c what the papers run, every method and temperature once, and
// returns what was left out because the kit has nothing for it.
func (c *Config) AddPapers(papers []Paper, k *Kit) (without []string) {
	for i := range papers {
		p := &papers[i]
		_, methods, left := p.resolve(k)
		without = append(without, left...)
		for _, t := range k.At(p) {
			if !slices.Contains(c.Temperatures, t) {
				c.Temperatures = append(c.Temperatures, t)
			}
		}
		for _, m := range methods {
			at := slices.IndexFunc(c.Methods, func(o Method) bool { return o.Name() == m.Name() })
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
				if !have.at(t) {
					have.Temperatures = append(have.Temperatures, t)
				}
			}
		}
	}
	return without
}

// View lays p over r, which ran with k.
func (p *Paper) View(r *Report, k *Kit) *View {
	cols, _, _ := p.resolve(k)
	return &View{Report: r, paper: p, temps: k.At(p), cols: cols}
}

// Layout returns the paper's tables.
func (v *View) Layout() []table.Table { return v.paper.Tables(v) }

// Draw returns the paper's figures; nil where it has none.
func (v *View) Draw() []plot.Figure {
	if v.paper.Figures == nil {
		return nil
	}
	return v.paper.Figures(v)
}

// at returns the paper's temperatures.
func (v *View) at() []float64 { return v.temps }

// sets returns the names of the report's sets.
func (v *View) sets() (names []string) {
	for _, s := range v.Sets {
		names = append(names, s.Name)
	}
	return names
}

// row returns a column's row, an empty one where nothing was measured.
func (v *View) row(c *column, set string, t float64) *Row {
	if r := v.Row(c.name, set, t); r != nil {
		return r
	}
	return &Row{}
}

// find returns the column of a label, nil if it was left out.
func (v *View) find(label, group string) *column {
	for i := range v.cols {
		if c := &v.cols[i]; c.Label == label && (group == "" || c.Group == group) {
			return c
		}
	}
	return nil
}

// title is what a column is called: with its draft model where several are asked.
func (v *View) title(c *column) string {
	if c.Ask == AskHeads || strings.HasPrefix(string(c.Ask), "head:") {
		return c.Label + " (" + c.source + ")"
	}
	return c.Label
}

// mean is the mean over sets of f; each set counts the same, as in the papers.
func (v *View) mean(c *column, t float64, f func(*Row) float64) float64 {
	sum := 0.0
	for _, s := range v.sets() {
		sum += f(v.row(c, s, t))
	}
	return sum / float64(max(len(v.Sets), 1))
}

func tauOf(r *Row) float64     { return r.Pooled }
func speedOf(r *Row) float64   { return r.Speed.Mean }
func speedupOf(r *Row) float64 { return r.Speedup.Mean }

func times(x float64) string { return fmt.Sprintf("%.2f×", x) }

func two(x float64) string { return fmt.Sprintf("%.2f", x) }

// relative is how much larger a is than b.
func relative(a, b float64) string {
	if b == 0 {
		return "–"
	}
	return fmt.Sprintf("%+.1f%%", 100*(a/b-1))
}

// caption names the table and what it is of.
func (v *View) caption(t float64) string {
	return fmt.Sprintf("%s, %s; temperature %g", v.paper.Name, v.paper.Doc, t)
}

// bySet is a table with a row for each column of the view and, for every set and
// their mean, the figures f gives.
func (v *View) bySet(first string, t float64, names []string, f ...func(*Row) string) table.Table {
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
		m := &Row{
			Pooled:  v.mean(c, t, tauOf),
			Speed:   Mean{Mean: v.mean(c, t, speedOf)},
			Speedup: Mean{Mean: v.mean(c, t, speedupOf)},
		}
		for _, g := range f {
			cells = append(cells, g(m))
		}
		out.Cells = append(out.Cells, cells)
	}
	return out
}

// each makes a table for every temperature.
func each(f func(v *View, t float64) table.Table) func(v *View) []table.Table {
	return func(v *View) (out []table.Table) {
		for _, t := range v.at() {
			out = append(out, f(v, t))
		}
		return out
	}
}

// sweep draws τ and speed-up, over all sets, over the numbers that groups stand
// for, a line for each label.
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
