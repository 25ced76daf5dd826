package bench

import (
	"fmt"

	"talf/internal/plot"
)

// Figures returns bar charts of τ and speed-up by method and set, two per temperature.
func (r *Report) Figures() []plot.Figure {
	var out []plot.Figure
	var groups []string
	for _, s := range r.Sets {
		groups = append(groups, SetName(s.Name))
	}
	for _, t := range r.Temperature {
		tau := plot.Figure{Title: fmt.Sprintf("Tokens per target pass (τ), temperature %g", t), Groups: groups}
		speed := plot.Figure{Title: fmt.Sprintf("Speed-up over plain decoding, temperature %g", t), Groups: groups}
		for i := range r.Rows {
			x := &r.Rows[i]
			if x.Set != "" || x.Temperature != t {
				continue
			}
			a, b := plot.Series{Name: x.Method}, plot.Series{Name: x.Method}
			for _, s := range r.Sets {
				row := r.Row(x.Method, s.Name, t)
				if row == nil {
					row = &Row{}
				}
				a.Y, b.Y = append(a.Y, row.Tau.Mean), append(b.Y, row.Speedup.Mean)
			}
			tau.Series, speed.Series = append(tau.Series, a), append(speed.Series, b)
		}
		if len(tau.Series) > 0 {
			out = append(out, tau, speed)
		}
	}
	return out
}
