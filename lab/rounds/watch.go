package rounds

import (
	"context"
	"fmt"

	"talf/infer/bench"
	"talf/internal/table"
)

// A Watch watches the run of a comparison: it is the run's Watcher, and its Keep is the run's. Measurements of a log have
// no rounds.
type Watch struct {
	Tape
	of   map[string][]Round // by the key of a measurement
	kept []bench.Measurement
}

// End runs the passes of a text again.
func (w *Watch) End(ctx context.Context, m *bench.Measurement) error {
	if err := w.Again(ctx); err != nil {
		return fmt.Errorf("run its passes again: %w", err)
	}
	if w.of == nil {
		w.of = map[string][]Round{}
	}
	w.of[m.Key] = w.Rounds()
	return nil
}

// Keep keeps what was measured of a text that counts.
func (w *Watch) Keep(m *bench.Measurement) error {
	w.kept = append(w.kept, *m)
	return nil
}

// Of returns the rounds of a measurement.
func (w *Watch) Of(m *bench.Measurement) []Round { return w.of[m.Key] }

// A Row is a row of a report with the parts of its rounds.
type Row struct {
	*bench.Row
	Parts *Parts `json:"parts"`
}

// Rows are the rows of the report of the run.
func (w *Watch) Rows(r *bench.Report) (out []Row) {
	texts := func(x *bench.Row, method string) (out []Text) {
		for i := range w.kept {
			m := &w.kept[i]
			if m.Method == method && m.Temperature == x.Temperature && (x.Set == "" || m.Set == x.Set) {
				out = append(out, Text{Set: m.Set, Prompt: m.Prompt, Seed: m.Seed, Rounds: w.Of(m), Tokens: m.Stats.Tokens})
			}
		}
		return out
	}
	for i := range r.Rows {
		x := &r.Rows[i]
		out = append(out, Row{x, Of(texts(x, x.Method), texts(x, bench.Baseline))})
	}
	return out
}

// Table lays rows out.
func Table(rows []Row) table.Table {
	t := table.Table{
		Caption: "By parts, µs a round: passes within decoding, and the same passes of each model alone",
		Header: []string{
			"method", "T", "set", "rounds", "of repetitions", "rows", "context", "target", "alone", "draft passes", "draft", "alone", "other", "round",
			"τ", "speed-up", "allowed by the passes", "of allowed",
		},
	}
	us := func(s float64) string { return fmt.Sprintf("%.0f", 1e6*s) }
	for i := range rows {
		x := &rows[i]
		p := x.Parts
		if p == nil {
			continue
		}
		of := "the mean"
		if p.Best {
			of = "the best"
		}
		t.Cells = append(t.Cells, []string{
			x.Method, fmt.Sprintf("%g", x.Temperature), bench.SetName(x.Set), fmt.Sprint(p.Rounds), of, fmt.Sprintf("%.1f", p.Rows), fmt.Sprintf("%.0f", p.At),
			us(p.Target), us(p.TargetAlone), fmt.Sprintf("%.1f", p.Steps), us(p.Draft), us(p.DraftAlone), us(p.Other), us(p.Total()),
			fmt.Sprintf("%.2f", x.Pooled), fmt.Sprintf("%.2f", p.Speedup), fmt.Sprintf("%.2f", p.Allowed), fmt.Sprintf("%.2f", p.Of),
		})
	}
	return t
}
