package command

import (
	"io"
	"path/filepath"

	"talf/internal/durable"
	"talf/internal/plot"
)

// savePlot draws τ and acceptance by depth of every row, as PNG and as SVG, and returns the
// paths of the two files.
func savePlot(dir string, rows []quickRow) ([]string, error) {
	tau := plot.Figure{Title: "Tokens per target pass (τ)"}
	kept := plot.Figure{Title: "Rounds that accept a node at this depth", X: "depth", FromZero: true, MaxY: 1}
	for _, r := range rows {
		tau.Series = append(tau.Series, plot.Series{Name: r.label(), Y: []float64{r.Tau}})
		s := plot.Series{Name: r.label()} // one that drafts nothing keeps its colour
		for d, share := range r.ByDepth {
			s.X, s.Y = append(s.X, float64(d+1)), append(s.Y, share)
		}
		kept.Series = append(kept.Series, s)
	}
	var paths []string
	for _, name := range []string{"quickstart.png", "quickstart.svg"} {
		path := filepath.Join(dir, name)
		err := durable.Write(path, func(w io.Writer) error { return plot.WriteRow(w, name, []plot.Figure{tau, kept}) })
		if err != nil {
			return nil, err
		}
		paths = append(paths, path)
	}
	return paths, nil
}
