package report

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strings"

	"talf/infer/bench"
	"talf/infer/trace"
	"talf/internal/plot"
	"talf/internal/stats"
	"talf/internal/table"
	"talf/internal/version"
)

// MostBytes bounds a page.
const MostBytes = 2 << 20

// A part is what a page shows under a heading.
type part struct {
	Title, Note string
	Run         int // whose it is; −1: of all
	Charts      []figure
	Tables      []table.Table
	Answer      []span
	Trees       []treeView
}

// A figure is a chart with its legend and, in Header and Cells, its values.
type figure struct {
	Title, Note string
	SVG         template.HTML
	Legend      []legend
	Header      []string
	Cells       [][]string
}

type legend struct{ Class, Name string }

// A span is a piece of an answer.
type span struct {
	Class, Text string
}

type treeView struct {
	Title string
	SVG   template.HTML
}

type section struct {
	ID, Title, Intro string
	Parts            []part
}

type runView struct {
	Index int
	Class string
	Name  string
}

type page struct {
	Title    string
	Policy   string
	Style    template.CSS
	Version  string
	Runs     []runView
	Sections []section
}

// A detail says how much a page shows of what is long.
type detail struct {
	rounds int // drawn of a trace
	tokens int // of an answer
	values bool
}

// details are tried one after the other until a page is small enough.
var details = []detail{{12, 4000, true}, {6, 1500, true}, {2, 400, true}, {1, 100, false}}

//go:embed page.html
var layout string

//go:embed style.css
var style string

// Write writes the page of runs. If it would be larger than MostBytes it shows fewer rounds of
// traces, and then no tables of charts.
func Write(w io.Writer, runs []*Run) error {
	if len(runs) == 0 || len(runs) > MostRuns {
		return fmt.Errorf("%d runs, want 1 to %d", len(runs), MostRuns)
	}
	t, err := template.New("page").Funcs(template.FuncMap{"inc": func(i int) int { return i + 1 }}).Parse(layout)
	if err != nil {
		return err
	}
	size := 0
	for _, d := range details {
		var b bytes.Buffer
		if err := t.Execute(&b, newPage(runs, d)); err != nil {
			return err
		}
		if size = b.Len(); size <= MostBytes {
			_, err := b.WriteTo(w)
			return err
		}
	}
	return fmt.Errorf("the page takes %d bytes, want at most %d: give fewer runs", size, MostBytes)
}

func newPage(runs []*Run, d detail) *page {
	css := strings.TrimSpace(style)
	p := &page{Title: "talf report", Version: version.Read().String()}
	var names []string
	for i, r := range runs {
		p.Runs = append(p.Runs, runView{i, fmt.Sprintf("c%d", i%colours), r.Name})
		names = append(names, r.Name)
		css += fmt.Sprintf("\nbody:has(#run%d:not(:checked)) .r%[1]d { display: none; }", i)
	}
	if len(names) <= 3 {
		p.Title += ": " + strings.Join(names, ", ")
	}
	// The hash is of what stands between the tags.
	p.Style = template.CSS("\n" + css + "\n")
	sum := sha256.Sum256([]byte(p.Style))
	p.Policy = "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'; base-uri 'none'; form-action 'none'"
	for _, s := range []section{speed(runs), acceptance(runs), training(runs), evaluations(runs), trees(runs, d), origins(runs)} {
		if len(s.Parts) == 0 {
			continue
		}
		if !d.values {
			for i := range s.Parts {
				for k := range s.Parts[i].Charts {
					s.Parts[i].Charts[k].Cells = nil
				}
			}
		}
		p.Sections = append(p.Sections, s)
	}
	return p
}

// title names a part of a run.
func title(runs []*Run, run int, name string) string {
	if name == "" || len(runs) == 1 && runs[run].Name == name {
		return runs[run].Name
	}
	if len(runs) == 1 {
		return name
	}
	return runs[run].Name + " · " + name
}

// figure draws c.
func (c *chart) figure() (figure, bool) {
	f := figure{Title: c.Title, Note: c.Note, SVG: c.SVG(), Header: c.Header(), Cells: c.Cells()}
	for i := range c.Lines {
		f.Legend = append(f.Legend, legend{c.Lines[i].class(), c.Lines[i].Name})
	}
	return f, f.SVG != ""
}

// add draws c into p, unless it is empty.
func (p *part) add(c chart) {
	if f, ok := c.figure(); ok {
		p.Charts = append(p.Charts, f)
	}
}

func (p *part) addMarks(m marks) {
	if svg := m.SVG(); svg != "" {
		p.Charts = append(p.Charts, figure{Title: m.Title, Note: m.Note, SVG: svg})
	}
}

// draw adds figures of other packages.
func (p *part) draw(figures []plot.Figure, run int) {
	for i := range figures {
		f := &figures[i]
		if f.Groups != nil || !slices.ContainsFunc(f.Series, func(s plot.Series) bool { return s.X != nil }) {
			p.addMarks(ofBars(f, run))
			continue
		}
		p.add(ofFigure(f, run))
	}
}

// speed compares methods over runs.
func speed(runs []*Run) section {
	s := section{ID: "speed", Title: "Speed and tokens per pass", Intro: bench.Definition}
	kinds := []struct {
		title, note string
		from        float64
		of          func(*bench.Row) stats.Interval
	}{
		{"Speed-up end to end", "with 95% intervals over prompts; the line is plain decoding", 1, func(r *bench.Row) stats.Interval { return r.EndToEnd }},
		{"Speed-up of decoding", "with 95% intervals over prompts; the line is plain decoding", 1, func(r *bench.Row) stats.Interval { return r.Decoding }},
		{"Tokens per pass (τ)", "with 95% intervals over prompts", 1, func(r *bench.Row) stats.Interval {
			if r.TauOf.Value == 0 { // of an earlier release
				return stats.Interval{Value: r.Pooled}
			}
			return r.TauOf
		}},
	}
	all := part{Run: -1}
	for _, t := range temperatures(runs) {
		for _, k := range kinds {
			m := marks{Title: fmt.Sprintf("%s, temperature %g", k.title, t), Note: k.note, From: k.from}
			for i, r := range runs {
				for _, b := range r.Benches {
					for j := range b.Report.Rows {
						x := &b.Report.Rows[j]
						if x.Set != "" || x.Temperature != t || x.Spec == bench.Baseline {
							continue
						}
						if v := k.of(x); v.Value > 0 {
							m.add(x.Method, mark{v, i})
						}
					}
				}
			}
			all.addMarks(m)
		}
	}
	if len(all.Charts) > 0 {
		s.Parts = append(s.Parts, all)
	}
	for i, r := range runs {
		for _, b := range r.Benches {
			p := part{Title: title(runs, i, b.Name), Run: i, Note: b.Report.Conditions(), Tables: b.Report.Tables()}
			p.addShares(&b)
			s.Parts = append(s.Parts, p)
		}
	}
	return s
}

func temperatures(runs []*Run) (out []float64) {
	for _, r := range runs {
		for _, b := range r.Benches {
			for _, x := range b.Report.Rows {
				if !slices.Contains(out, x.Temperature) {
					out = append(out, x.Temperature)
				}
			}
		}
	}
	slices.Sort(out)
	return out
}

// addShares draws where the time of decoding goes.
func (p *part) addShares(b *Bench) {
	const line, from, to = 34.0, 4.0, width - 4
	body := new(strings.Builder)
	y := top
	f := figure{Title: "Where the time of decoding goes", Header: []string{"method", "draft", "verify", "other"}}
	for i, name := range []string{"passes of the draft model", "passes of the target", "the rest"} {
		f.Legend = append(f.Legend, legend{fmt.Sprintf("c%d", []int{1, 0, 6}[i]), name})
	}
	for i := range b.Report.Rows {
		x := &b.Report.Rows[i]
		if x.Set != "" {
			continue
		}
		name := x.Method
		if len(b.Report.Temperature) > 1 {
			name += fmt.Sprintf(", temperature %g", x.Temperature)
		}
		fmt.Fprintf(body, `<text class="name" x="4" y="%.1f">%s</text>`, y+10, escape(short(name, 62)))
		at := from
		for k, share := range []float64{x.Draft, x.Verified, x.Overhead} {
			w := (to - from) * min(max(share, 0), 1)
			fmt.Fprintf(body, `<rect class="c%d" x="%.1f" y="%.1f" width="%.1f" height="11"/>`, []int{1, 0, 6}[k], at, y+15, w)
			at += w
		}
		f.Cells = append(f.Cells, []string{name, table.Percent(x.Draft), table.Percent(x.Verified), table.Percent(x.Overhead)})
		y += line
	}
	f.SVG = template.HTML(fmt.Sprintf(`<svg class="chart" viewBox="0 0 %g %g" role="img" aria-label="%s">%s</svg>`, width, y, f.Title, body))
	p.Charts = append(p.Charts, f)
}

// acceptance shows by depth, by rank and by tokens of a pass what was kept, run beside run.
func acceptance(runs []*Run) section {
	s := section{
		ID: "acceptance", Title: "Acceptance",
		Intro: "By depth: of the passes whose accepted path reached a depth and had children there, the share that kept one of them. By rank: of the children that were compared, the share kept, by their rank among siblings. Bars are 95% intervals over prompts.",
	}
	for i, r := range runs {
		for _, b := range r.Benches {
			p := part{Title: title(runs, i, b.Name), Run: i}
			for _, t := range b.Report.Temperature {
				depth := chart{Title: fmt.Sprintf("Kept by depth, temperature %g", t), X: "depth", FromZero: true, MaxY: 1}
				rank := chart{Title: fmt.Sprintf("Kept by rank, temperature %g", t), X: "rank among siblings", FromZero: true, MaxY: 1}
				emitted := chart{Title: fmt.Sprintf("Share of passes by the tokens they give, temperature %g", t), X: "tokens", FromZero: true}
				n := 0
				for k := range b.Report.Rows {
					x := &b.Report.Rows[k]
					if x.Set != "" || x.Temperature != t || x.Drafted == 0 {
						continue
					}
					l := line{Name: x.Method, Colour: n % colours, Dash: n/colours%2 == 1, Run: -1, Points: true}
					n++
					depth.Lines = append(depth.Lines, l.rates(x.DepthOf, x.Depth))
					rank.Lines = append(rank.Lines, l.rates(x.RankOf, x.Rank))
					for d := 1; d < len(x.Emitted); d++ {
						l.X, l.Y = append(l.X, float64(d)), append(l.Y, float64(x.Emitted[d])/float64(max(x.Passes, 1)))
					}
					emitted.Lines = append(emitted.Lines, l)
				}
				p.add(depth)
				p.add(rank)
				p.add(emitted)
			}
			if len(p.Charts) > 0 {
				s.Parts = append(s.Parts, p)
			}
		}
	}
	return s
}

// training shows how losses went, all runs in one chart.
func training(runs []*Run) section {
	s := section{
		ID: "training", Title: "Training",
		Intro: "Losses for each position. A line is the mean of the steps around it, the area behind it the middle 90% of them; dashed lines are held-out data. τ̂ is how many tokens a target pass would give, as the held-out trees let expect without decoding.",
	}
	loss := chart{Title: "Loss", X: "step"}
	tau := chart{Title: "τ̂ on held-out trees", X: "step"}
	norm := chart{Title: "Norm of the gradients", X: "step", FromZero: true}
	rate := chart{Title: "Learning rate", X: "step", FromZero: true}
	pace := chart{Title: "Positions per second", X: "step", FromZero: true}
	var tables []part
	n := 0
	for i, r := range runs {
		for k := range r.Training {
			t := &r.Training[k]
			name := title(runs, i, t.Name)
			l := line{Name: name, Colour: n % colours, Run: i}
			n++
			loss.Lines = append(loss.Lines, l.binned(t.Steps, lossOf, true))
			norm.Lines = append(norm.Lines, l.binned(t.Steps, normOf, true))
			rate.Lines = append(rate.Lines, l.binned(t.Steps, rateOf, false))
			pace.Lines = append(pace.Lines, l.binned(t.Steps, paceOf, false))
			held, sampled, greedy := l, l, l
			held.Name, held.Dash, held.Points = name+", held out", true, true
			sampled.Name, sampled.Points = name, true
			greedy.Name, greedy.Dash, greedy.Points = name+", greedy", true, true
			levels := table.Table{Caption: "Evaluations on held-out sequences", Header: []string{"step", "loss", "τ̂", "τ̂ greedy", "top-1 by level"}}
			for _, x := range t.Steps {
				e := x.Eval
				if e == nil {
					continue
				}
				held.X, held.Y = append(held.X, float64(x.Step)), append(held.Y, e.Loss)
				cells := []string{fmt.Sprint(x.Step), fmt.Sprintf("%.4f", e.Loss), "–", "–", ""}
				if e.Tau > 0 {
					sampled.X, sampled.Y = append(sampled.X, float64(x.Step)), append(sampled.Y, e.Tau)
					greedy.X, greedy.Y = append(greedy.X, float64(x.Step)), append(greedy.Y, e.TauGreedy)
					cells[2], cells[3] = fmt.Sprintf("%.3f", e.Tau), fmt.Sprintf("%.3f", e.TauGreedy)
				}
				var top []string
				for _, v := range e.Levels {
					top = append(top, fmt.Sprintf("%.1f%%", 100*v.Top1))
				}
				cells[4] = strings.Join(top, " ")
				levels.Cells = append(levels.Cells, cells)
			}
			loss.Lines = append(loss.Lines, held)
			tau.Lines = append(tau.Lines, sampled, greedy)
			if drop := len(levels.Cells) - mostCells; drop > 0 {
				levels.Caption += fmt.Sprintf(", the last %d", mostCells)
				levels.Cells = levels.Cells[drop:]
			}
			if len(levels.Cells) > 0 {
				tables = append(tables, part{Title: name, Run: i, Tables: []table.Table{levels}})
			}
		}
	}
	all := part{Run: -1}
	for _, c := range []chart{loss, tau, norm, rate, pace} {
		c.Lines = slices.DeleteFunc(c.Lines, func(l line) bool { return len(l.X) == 0 })
		all.add(c)
	}
	if len(all.Charts) > 0 {
		s.Parts = append([]part{all}, tables...)
	}
	return s
}

// evaluations shows the tables and figures of the publications.
func evaluations(runs []*Run) section {
	s := section{ID: "evaluations", Title: "Evaluations"}
	for i, r := range runs {
		for _, e := range r.Evals {
			p := part{Title: title(runs, i, e.Report.Name+": "+e.Report.Doc), Run: i, Note: e.Report.Conditions(), Tables: e.Report.Tables()}
			p.draw(e.Report.Figures(), -1)
			s.Parts = append(s.Parts, p)
		}
	}
	return s
}

// trees shows answers and the trees of chosen rounds.
func trees(runs []*Run, d detail) section {
	s := section{
		ID: "trees", Title: "Draft trees",
		Intro: "The answer, with the tokens marked that had been drafted; then some of its rounds. The accepted path is highlighted, the target's own token at its end stands out. q is the draft's probability of a token, p the target's.",
	}
	for i, r := range runs {
		for _, t := range r.Traces {
			tokens := 0
			for k := range t.Steps {
				tokens += t.Steps[k].Kept
			}
			p := part{
				Title: title(runs, i, t.Name), Run: i, Answer: answer(t.Steps, d.tokens),
				Note: trace.Summary{Header: t.Header, Rounds: len(t.Steps), Tokens: tokens, Shown: min(d.rounds, len(t.Steps))}.String(),
			}
			for _, k := range chosen(t.Steps, d.rounds) {
				v := trace.NewSVG(io.Discard)
				v.Add(&t.Steps[k], k+1)
				p.Trees = append(p.Trees, treeView{t.Steps[k].Title(k + 1), template.HTML(v.Element())})
			}
			s.Parts = append(s.Parts, p)
		}
	}
	return s
}

// chosen are up to n rounds: the one that kept most, the one that drafted most for nothing, and
// others at equal distances.
func chosen(steps []trace.Step, n int) (out []int) {
	best, worst := 0, -1
	for i := range steps {
		if len(steps[i].Path) > len(steps[best].Path) {
			best = i
		}
		if len(steps[i].Path) == 1 && (worst < 0 || len(steps[i].Nodes) > len(steps[worst].Nodes)) {
			worst = i
		}
	}
	take := func(i int) {
		if i >= 0 && len(out) < n && !slices.Contains(out, i) {
			out = append(out, i)
		}
	}
	take(best)
	take(worst)
	for k := range n {
		take(k * len(steps) / n)
	}
	slices.Sort(out)
	return out
}

// answer is the text of an answer, up to so many tokens.
func answer(steps []trace.Step, most int) (out []span) {
	add := func(class string, t trace.Token) {
		text := t.Text
		if text == "" {
			text = "⟨" + fmt.Sprint(t.ID) + "⟩"
		}
		if n := len(out); n > 0 && out[n-1].Class == class {
			out[n-1].Text += text
			return
		}
		out = append(out, span{class, text})
	}
	n := 0
	for i := range steps {
		x := &steps[i]
		for k := 1; k <= x.Kept; k++ {
			if n++; n > most {
				return append(out, span{"own", " …"})
			}
			if k < len(x.Path) {
				add("drafted", x.Nodes[x.Path[k]].Token)
			} else {
				add("own", x.Next)
			}
		}
	}
	return out
}

// origins lists settings and files.
func origins(runs []*Run) section {
	s := section{ID: "origins", Title: "Settings and files"}
	for i, r := range runs {
		p := part{Title: r.Name, Run: i}
		add := func(caption string, of []Setting) {
			if len(of) == 0 {
				return
			}
			t := table.Table{Caption: caption, Header: []string{"setting", "value"}}
			for _, x := range of {
				t.Cells = append(t.Cells, []string{x.Name, x.Value})
			}
			p.Tables = append(p.Tables, t)
		}
		for _, t := range r.Training {
			add(strings.TrimSpace("Training "+t.Name), t.Settings)
		}
		for _, b := range r.Benches {
			add(strings.TrimSpace("Measurements "+b.Name), b.Settings)
		}
		files := table.Table{Caption: "Files", Header: []string{"file", "what", "bytes", "SHA-256"}}
		for _, f := range r.Files {
			files.Cells = append(files.Cells, []string{f.Path, f.Kind, fmt.Sprint(f.Bytes), f.SHA256})
		}
		p.Tables = append(p.Tables, files)
		s.Parts = append(s.Parts, p)
	}
	return s
}
