// Package table writes tables of text for terminals and for Markdown documents.
package table

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

// A Table is rows of cells below a header.
type Table struct {
	Caption string // above the table; empty for none
	Header  []string
	Cells   [][]string // by row
}

// Write writes t aligned for a terminal, or as Markdown.
func (t *Table) Write(w io.Writer, markdown bool) error {
	if t.Caption != "" {
		if _, err := fmt.Fprintf(w, "%s\n\n", t.Caption); err != nil {
			return err
		}
	}
	if markdown {
		return t.markdown(w)
	}
	tabs := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, cells := range slices.Concat([][]string{t.Header}, t.Cells) {
		if _, err := fmt.Fprintln(tabs, strings.Join(cells, "\t")); err != nil {
			return err
		}
	}
	return tabs.Flush()
}

func (t *Table) markdown(w io.Writer) error {
	lines := []string{"| " + strings.Join(t.Header, " | ") + " |", "|" + strings.Repeat("---|", len(t.Header))}
	for _, cells := range t.Cells {
		lines = append(lines, "| "+strings.Join(cells, " | ")+" |")
	}
	_, err := fmt.Fprintln(w, strings.Join(lines, "\n"))
	return err
}

// Write writes tables with a blank line between them.
func Write(w io.Writer, tables []Table, markdown bool) error {
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

// Percent writes a share as a whole percentage.
func Percent(share float64) string { return fmt.Sprintf("%.0f%%", 100*share) }
