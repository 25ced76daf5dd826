package rig

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"talf/infer/bench"
	"talf/infer/bench/heads"
	"talf/internal/plot"
	"talf/internal/table"
)

// A Report is the result of a comparison, with what it ran on.
type Report struct {
	*bench.Report
	Device string `json:"device"`
	DType  string `json:"dtype"`
	// ChatTemplate says that a chat template wrote some prompts.
	ChatTemplate bool `json:"chat_template,omitempty"`
	// Layers is the number of layers that the model was deepened to: a cost model of a larger
	// one.
	Layers int              `json:"deepened_to_layers,omitempty"`
	ByRank []heads.RankLine `json:"heads_by_rank,omitempty"`
	// RankText says what text ByRank is over.
	RankText string `json:"heads_by_rank_over,omitempty"`
	// Split names the part of the prompts: tune or report; empty: all.
	Split string `json:"split,omitempty"`
	// Interrupted says that the run ended early and the figures cover a part of it.
	Interrupted bool `json:"interrupted,omitempty"`
	// Instead, if not nil, is printed in place of the tables of all methods, and drawn in place of
	// their figures if it has some.
	Instead *Layout `json:"-"`
}

// A Layout is tables and figures of a report.
type Layout struct {
	Tables  []table.Table
	Figures []plot.Figure
}

// Conditions says in a line what was measured.
func (r *Report) Conditions() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, weights %s", r.Device, r.DType)
	if r.Layers > 0 {
		fmt.Fprintf(&b, ", deepened to %d layers that add nothing: a cost model of a larger target", r.Layers)
	}
	fmt.Fprintf(&b, "; %d prompts of %d sets, %d of each for warm-up, up to %d tokens, seeds %v", r.Prompts, len(r.Sets), r.Warmup, r.MaxTokens, r.Seeds)
	if r.Repeat > 1 {
		fmt.Fprintf(&b, ", %d times", r.Repeat)
	}
	if r.Split != "" {
		fmt.Fprintf(&b, ", the part %s of the prompts", r.Split)
	}
	if r.ChatTemplate {
		b.WriteString(", asked by the chat template")
	}
	if r.Interrupted {
		b.WriteString("; INTERRUPTED: figures of a part")
	}
	return b.String()
}

// Write writes r for people: the conditions, the tables and a line for each head by rank.
func (r *Report) Write(w io.Writer, markdown bool) error {
	var b strings.Builder
	b.WriteString(r.Conditions() + "\n\n")
	tables := r.Tables()
	if r.Instead != nil { // the table of everything is in the JSON
		tables = r.Instead.Tables
	}
	if err := table.Write(&b, tables, markdown); err != nil {
		return err
	}
	if len(r.ByRank) > 0 {
		fmt.Fprintf(&b, "\nHeads given their own n-th ranked token, over %s; ECE over 10 bins of equal width / of equal numbers of items:\n", r.RankText)
	}
	writeRanks(&b, r.ByRank)
	_, err := io.WriteString(w, b.String())
	return err
}

// Figures returns what is drawn of r.
func (r *Report) Figures() []plot.Figure {
	if r.Instead != nil && len(r.Instead.Figures) > 0 {
		return r.Instead.Figures
	}
	return r.Report.Figures()
}

// writeRanks writes a line for each head with accuracy and calibration error by rank.
func writeRanks(b *strings.Builder, lines []heads.RankLine) {
	for len(lines) > 0 {
		name := lines[0].Head
		n := slices.IndexFunc(lines, func(l heads.RankLine) bool { return l.Head != name })
		if n < 0 {
			n = len(lines)
		}
		fmt.Fprintf(b, "%s, given its own n-th ranked token:", name)
		for _, l := range lines[:n] {
			fmt.Fprintf(b, "  n=%d accuracy %.3f, ECE %.3f / %.3f", l.Rank, l.Accuracy, l.ECE, l.ECEMass)
		}
		b.WriteString("\n")
		lines = lines[n:]
	}
}
