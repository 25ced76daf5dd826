package bench

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

// depths is how many depths of acceptance a table shows.
const depths = 6

// A Table is a report's figures laid out for people.
type Table struct {
	Caption string
	Header  []string
	Cells   [][]string
}

// Write writes t for a terminal, or for a document.
func (t *Table) Write(w io.Writer, markdown bool) error {
	if t.Caption != "" {
		if _, err := fmt.Fprintf(w, "%s\n\n", t.Caption); err != nil {
			return err
		}
	}
	return writeTable(w, t.Header, t.Cells, markdown)
}

// WriteTables writes tables with a blank line between them.
func WriteTables(w io.Writer, tables []Table, markdown bool) error {
	for i := range tables {
		if i > 0 {
			if _, err := fmt.Fprintln(w); err != nil {
				return err
			}
		}
		if err := tables[i].Write(w, markdown); err != nil {
			return err
		}
	}
	return nil
}

func (r *Row) cells() []string {
	var kept []string
	for d := 1; d < len(r.Depth) && d <= depths; d++ {
		kept = append(kept, fmt.Sprintf("%.2f", r.Depth[d].Value()))
	}
	return []string{
		r.Method, fmt.Sprintf("%g", r.Temperature),
		plusMinus(r.Tau, 2), plusMinus(r.Speed, 1), plusMinus(r.Speedup, 2),
		percent(r.Draft), percent(r.Verified), percent(r.Overhead), fmt.Sprint(r.Passes),
		percent(float64(r.Looping) / float64(max(r.Outputs, 1))),
		strings.Join(kept, " "),
	}
}

// missed is the share of the rows asked for that a replay lacked.
func (r *Row) missed() string {
	return fmt.Sprintf("%.1f%%", 100*float64(r.Missed)/float64(max(r.Asked, 1)))
}

// Tables returns the figures over all sets and, where there are several, of each
// one; then where the time goes, and those of methods that draft from several
// origins.
func (r *Report) Tables() []Table {
	header := []string{"method", "T", "τ", "tok/s", "speed-up", "draft", "verify", "other", "passes", "loops", "kept of reached at depth 1…"}
	replayed := slices.ContainsFunc(r.Rows, func(x Row) bool { return x.Asked > 0 })
	if replayed {
		header = append(header, "missed")
	}
	var out []Table
	for i := range r.Rows {
		x := &r.Rows[i]
		if i == 0 || x.Set != r.Rows[i-1].Set {
			t := Table{Header: header}
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
	return append(append(out, r.parts()...), r.origins()...)
}

func (s *SetInfo) about() string {
	t := fmt.Sprintf("%s: %d prompts, %d tokens", s.Name, s.Prompts, s.Tokens)
	if s.Cut > 0 {
		t += fmt.Sprintf(", %d prompts cut to their ends", s.Cut)
	}
	return t
}

// origins tells what each origin contributes.
func (r *Report) origins() []Table {
	t := Table{
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
				x.Method, fmt.Sprintf("%g", x.Temperature), setName(x.Set), name, fmt.Sprint(x.Paths.Drafted[o]),
				fmt.Sprintf("%.3f", kept), fmt.Sprintf("%.3f", reached), kinds,
			})
		}
	}
	if len(t.Cells) == 0 {
		return nil
	}
	return []Table{t}
}

func setName(s string) string {
	if s == "" {
		return "all"
	}
	return s
}

// WriteText writes the tables for a terminal.
func (r *Report) WriteText(w io.Writer) error { return WriteTables(w, r.Tables(), false) }

// WriteMarkdown writes the tables for a document.
func (r *Report) WriteMarkdown(w io.Writer) error { return WriteTables(w, r.Tables(), true) }

func plusMinus(m Mean, digits int) string {
	return fmt.Sprintf("%.*f ± %.*f", digits, m.Mean, digits, m.Std)
}

func percent(share float64) string { return fmt.Sprintf("%.0f%%", 100*share) }

// writeTable writes cells below a header.
func writeTable(w io.Writer, header []string, cells [][]string, markdown bool) error {
	if markdown {
		lines := []string{"| " + strings.Join(header, " | ") + " |", "|" + strings.Repeat("---|", len(header))}
		for _, c := range cells {
			lines = append(lines, "| "+strings.Join(c, " | ")+" |")
		}
		_, err := fmt.Fprintln(w, strings.Join(lines, "\n"))
		return err
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, c := range append([][]string{header}, cells...) {
		if _, err := fmt.Fprintln(t, strings.Join(c, "\t")); err != nil {
			return err
		}
	}
	return t.Flush()
}
