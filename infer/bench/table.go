package bench

import (
	"fmt"
	"slices"
	"strings"

	"talf/internal/stats"
	"talf/internal/table"
)

// depths is how many depths of acceptance a table shows.
const depths = 6

func (r *Row) cells() []string {
	var kept []string
	for d := 1; d < len(r.Depth) && d <= depths; d++ {
		kept = append(kept, fmt.Sprintf("%.2f", r.Depth[d].Value()))
	}
	return []string{
		r.Method, fmt.Sprintf("%g", r.Temperature),
		r.Tau.Text(2), r.Speed.Text(1), interval(r.EndToEnd), known(r.EndMean), interval(r.Decoding), known(r.Speedup),
		table.Percent(r.Draft), table.Percent(r.Verified), table.Percent(r.Overhead), fmt.Sprint(r.Passes),
		table.Percent(float64(r.Looping) / float64(max(r.Outputs, 1))),
		strings.Join(kept, " "),
	}
}

// interval writes a speed-up, or that it is not known.
func interval(x stats.Interval) string {
	if x.Value == 0 {
		return "–"
	}
	return x.Text(2, 1)
}

// known writes a mean unless it is of nothing.
func known(m Mean) string {
	if m.N == 0 {
		return "–"
	}
	return m.Text(2)
}

// missed is the share of the rows asked for that a replay lacked.
func (r *Row) missed() string {
	return fmt.Sprintf("%.1f%%", 100*float64(r.Missed)/float64(max(r.Asked, 1)))
}

// Tables returns the figures over all sets and, if there are several, of each one; then where
// the time goes, and the origins of nodes for methods that draft from several.
func (r *Report) Tables() []table.Table {
	header := []string{"method", "T", "τ", "tok/s", "end to end", "per prompt", "decoding", "per prompt", "draft", "verify", "other", "passes", "loops", "kept of reached at depth 1…"}
	replayed := slices.ContainsFunc(r.Rows, func(x Row) bool { return x.Asked > 0 })
	if replayed {
		header = append(header, "missed")
	}
	var out []table.Table
	for i := range r.Rows {
		x := &r.Rows[i]
		if i == 0 || x.Set != r.Rows[i-1].Set {
			t := table.Table{Header: header}
			if len(r.Sets) > 1 {
				t.Caption = "All sets"
				for _, s := range r.Sets {
					if s.Name == x.Set {
						t.Caption = s.about()
					}
				}
			}
			out = append(out, t)
		}
		t := &out[len(out)-1]
		cells := x.cells()
		if replayed {
			cells = append(cells, x.missed())
		}
		t.Cells = append(t.Cells, cells)
	}
	return slices.Concat(out, r.versus(), r.foreseen(), r.contexts(), r.parts(), r.origins())
}

func (s *SetInfo) about() string {
	t := fmt.Sprintf("%s: %d prompts, %d tokens", s.Name, s.Prompts, s.Tokens)
	if s.Cut > 0 {
		t += fmt.Sprintf(", %d prompts cut to their ends", s.Cut)
	}
	return t
}

// versus lays out how every method compares with the fastest.
func (r *Report) versus() []table.Table {
	if len(r.Compared) == 0 {
		return nil
	}
	t := table.Table{Caption: "Speed against the fastest, end to end", Header: []string{"method", "T", "against", "ratio"}}
	for _, c := range r.Compared {
		t.Cells = append(t.Cells, []string{c.Method, fmt.Sprintf("%g", c.Temperature), c.Against, interval(c.Ratio)})
	}
	return []table.Table{t}
}

// foreseen lays out what methods leave to somebody who knew the best one.
func (r *Report) foreseen() []table.Table {
	t := table.Table{
		Caption: "Speed against the other methods that ask the same draft model or none, end to end; the other repetitions say which is the best",
		Header:  []string{"method", "T", "best of each prompt", "best of all prompts", "ratio"},
	}
	for i := range r.Rows {
		if x := &r.Rows[i]; x.Hindsight != nil {
			t.Cells = append(t.Cells, []string{x.Method, fmt.Sprintf("%g", x.Temperature), interval(x.Hindsight.Each), x.Hindsight.Best, interval(x.Hindsight.One)})
		}
	}
	if len(t.Cells) == 0 {
		return nil
	}
	return []table.Table{t}
}

// contexts lays out τ by the length of the context, if that of some pass is beyond the first class.
func (r *Report) contexts() []table.Table {
	t := table.Table{Caption: "τ by the tokens before a pass, with the number of passes", Header: []string{"method", "T"}}
	var from []int
	for i := range r.Rows {
		for _, c := range r.Rows[i].Contexts {
			if !slices.Contains(from, c.From) {
				from = append(from, c.From)
			}
		}
	}
	if len(from) == 0 {
		return nil
	}
	slices.Sort(from)
	for _, n := range from {
		t.Header = append(t.Header, fmt.Sprintf("from %d", n))
	}
	for i := range r.Rows {
		x := &r.Rows[i]
		if len(x.Contexts) == 0 || x.Drafted == 0 {
			continue
		}
		cells := []string{x.Method, fmt.Sprintf("%g", x.Temperature)}
		for _, n := range from {
			at := slices.IndexFunc(x.Contexts, func(c Context) bool { return c.From == n })
			if at < 0 {
				cells = append(cells, "–")
				continue
			}
			c := &x.Contexts[at]
			cells = append(cells, fmt.Sprintf("%s of %d", c.Tau.Text(2, 1), c.Passes))
		}
		t.Cells = append(t.Cells, cells)
	}
	if len(t.Cells) == 0 {
		return nil
	}
	return []table.Table{t}
}

// parts lays out where the time goes.
func (r *Report) parts() []table.Table {
	t := table.Table{
		Caption: "By parts, µs a round: passes within decoding, and the same passes of each model alone",
		Header: []string{
			"method", "T", "set", "rounds", "of repetitions", "rows", "context", "target", "alone", "draft passes", "draft", "alone", "other", "round",
			"τ", "speed-up", "allowed by the passes", "of allowed",
		},
	}
	us := func(s float64) string { return fmt.Sprintf("%.0f", 1e6*s) }
	for i := range r.Rows {
		x := &r.Rows[i]
		p := x.Parts
		if p == nil {
			continue
		}
		of := "the mean"
		if p.Best {
			of = "the best"
		}
		t.Cells = append(t.Cells, []string{
			x.Method, fmt.Sprintf("%g", x.Temperature), SetName(x.Set), fmt.Sprint(p.Rounds), of, fmt.Sprintf("%.1f", p.Rows), fmt.Sprintf("%.0f", p.At),
			us(p.Target), us(p.TargetAlone), fmt.Sprintf("%.1f", p.Steps), us(p.Draft), us(p.DraftAlone), us(p.Other), us(p.Total()),
			fmt.Sprintf("%.2f", x.Pooled), fmt.Sprintf("%.2f", p.Speedup), fmt.Sprintf("%.2f", p.Allowed), fmt.Sprintf("%.2f", p.Of),
		})
	}
	if len(t.Cells) == 0 {
		return nil
	}
	return []table.Table{t}
}

// origins lays out what each origin of nodes contributes.
func (r *Report) origins() []table.Table {
	t := table.Table{
		Caption: "By origin of the nodes",
		Header:  []string{"method", "T", "set", "origin", "drafted", "kept of drafted", "kept of reached", "rounds by path"},
	}
	for i := range r.Rows {
		x := &r.Rows[i]
		if x.Paths == nil {
			continue
		}
		for o, name := range x.Paths.Origins {
			kept, reached := x.Paths.Rate(name)
			kinds := ""
			if o == 0 {
				kinds = x.Paths.kinds()
			}
			t.Cells = append(t.Cells, []string{
				x.Method, fmt.Sprintf("%g", x.Temperature), SetName(x.Set), name, fmt.Sprint(x.Paths.Drafted[o]),
				fmt.Sprintf("%.3f", kept), fmt.Sprintf("%.3f", reached), kinds,
			})
		}
	}
	if len(t.Cells) == 0 {
		return nil
	}
	return []table.Table{t}
}

// SetName names a set in tables; an empty name stands for all sets.
func SetName(s string) string {
	if s == "" {
		return "all"
	}
	return s
}
