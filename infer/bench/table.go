package bench

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// depths is how many depths of acceptance a table shows.
const depths = 6

func header() []string {
	return []string{"method", "T", "τ", "tok/s", "speed-up", "draft", "verify", "other", "kept of reached at depth 1…"}
}

func (r *Row) cells() []string {
	var kept []string
	for d := 1; d < len(r.Depth) && d <= depths; d++ {
		kept = append(kept, fmt.Sprintf("%.2f", r.Depth[d].Value()))
	}
	return []string{
		r.Method, fmt.Sprintf("%g", r.Temperature),
		fmt.Sprintf("%.2f ± %.2f", r.Tau.Mean, r.Tau.Std),
		fmt.Sprintf("%.1f ± %.1f", r.Speed.Mean, r.Speed.Std),
		fmt.Sprintf("%.2f ± %.2f", r.Speedup.Mean, r.Speedup.Std),
		fmt.Sprintf("%.0f%%", 100*r.Draft), fmt.Sprintf("%.0f%%", 100*r.Verify), fmt.Sprintf("%.0f%%", 100*r.Overhead),
		strings.Join(kept, " "),
	}
}

// WriteText writes the table for a terminal.
func (r *Report) WriteText(w io.Writer) error { return r.write(w, false) }

// WriteMarkdown writes the table for a document.
func (r *Report) WriteMarkdown(w io.Writer) error { return r.write(w, true) }

func (r *Report) write(w io.Writer, markdown bool) error {
	var cells [][]string
	for i := range r.Rows {
		cells = append(cells, r.Rows[i].cells())
	}
	return writeTable(w, header(), cells, markdown)
}

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
