package command

import (
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"talf/infer/bench"
	"talf/internal/durable"
)

// checkPlot refuses a picture of a kind that cannot be drawn, or where it cannot be
// written; the directories in made will be there in time.
func checkPlot(path string, made ...string) error {
	switch strings.ToLower(filepath.Ext(path)) {
	case "", ".png", ".svg":
		if path == "" || filepath.Ext(path) != "" && slices.ContainsFunc(made, func(dir string) bool { return filepath.Dir(path) == filepath.Clean(dir) }) {
			return nil
		}
		if filepath.Ext(path) != "" {
			return canWrite(path)
		}
	}
	return usagef("--plot is %q, want a name that ends in .png or .svg", path)
}

// saveFigures draws figures to a file, whole or not at all.
func saveFigures(path string, figures []bench.Figure) error {
	return durable.Write(path, func(w io.Writer) error { return bench.WritePlot(w, path, figures) })
}

// savePasses draws what passes cost over one row, a line for each type of weights
// and context.
func savePasses(path string, rows []bench.PassRow) error {
	p := plot.New()
	p.Title.Text = "Cost of a pass over one of the fewest rows"
	p.X.Label.Text, p.Y.Label.Text = "rows", "cost"
	p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, rowTicks(rows)
	p.Y.Min = 0
	p.Legend.Top, p.Legend.Left = true, true
	p.Add(plotter.NewGrid())
	lines := 0
	for i := 0; i < len(rows); {
		var xy plotter.XYs
		first := &rows[i]
		for ; i < len(rows) && rows[i].Model == first.Model && (rows[i].Context == first.Context || rows[i].Prompt); i++ {
			if !rows[i].Prompt {
				xy = append(xy, plotter.XY{X: float64(rows[i].Rows), Y: rows[i].Ratio})
			}
		}
		line, points, err := plotter.NewLinePoints(xy)
		if err != nil {
			return fmt.Errorf("draw %s: %w", path, err)
		}
		line.Color = bench.Palette[lines%len(bench.Palette)]
		points.Color, points.Shape = line.Color, draw.CircleGlyph{}
		line.Width = vg.Points(1.5)
		p.Add(line, points)
		p.Legend.Add(fmt.Sprintf("%s, context %d", first.Model, first.Context), line)
		lines++
	}
	to, err := p.WriterTo(6*vg.Inch, 4*vg.Inch, strings.TrimPrefix(strings.ToLower(filepath.Ext(path)), "."))
	if err != nil {
		return fmt.Errorf("draw %s: %w", path, err)
	}
	return durable.Write(path, func(w io.Writer) error {
		_, err := to.WriteTo(w)
		return err
	})
}

// rowTicks marks the sizes that were measured.
func rowTicks(rows []bench.PassRow) plot.ConstantTicks {
	var t plot.ConstantTicks
	seen := map[int]bool{}
	for _, r := range rows {
		if !r.Prompt && !seen[r.Rows] {
			seen[r.Rows] = true
			t = append(t, plot.Tick{Value: float64(r.Rows), Label: fmt.Sprint(r.Rows)})
		}
	}
	return t
}
