package command

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"path/filepath"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"

	"talf/infer/bench"
	"talf/internal/durable"
)

// plotSize is the size of the picture.
const (
	plotWidth  = 9 * vg.Inch
	plotHeight = 3.6 * vg.Inch
)

// savePlot draws τ of every row and acceptance by depth, as PNG and SVG, and
// returns the files' names.
func savePlot(dir string, rows []quickRow) ([]string, error) {
	left, err := tauPlot(rows)
	if err != nil {
		return nil, err
	}
	right, err := depthPlot(rows)
	if err != nil {
		return nil, err
	}
	png := vgimg.PngCanvas{Canvas: vgimg.NewWith(vgimg.UseWH(plotWidth, plotHeight), vgimg.UseDPI(144))}
	svg := vgsvg.New(plotWidth, plotHeight)
	var names []string
	for _, out := range []struct {
		name   string
		canvas vg.CanvasSizer
		to     io.WriterTo
	}{{"quickstart.png", png, png}, {"quickstart.svg", svg, svg}} {
		tiles := draw.Tiles{Rows: 1, Cols: 2, PadX: vg.Points(16), PadTop: vg.Points(6), PadBottom: vg.Points(6), PadLeft: vg.Points(6), PadRight: vg.Points(10)}
		for i, c := range plot.Align([][]*plot.Plot{{left, right}}, tiles, draw.New(out.canvas))[0] {
			[]*plot.Plot{left, right}[i].Draw(c)
		}
		var b bytes.Buffer
		if _, err := out.to.WriteTo(&b); err != nil {
			return nil, fmt.Errorf("draw %s: %w", out.name, err)
		}
		path := filepath.Join(dir, out.name)
		if err := durable.WriteFile(path, b.Bytes()); err != nil {
			return nil, err
		}
		names = append(names, path)
	}
	return names, nil
}

// tauPlot is a bar for each row.
func tauPlot(rows []quickRow) (*plot.Plot, error) {
	p := plot.New()
	p.Title.Text = "Tokens per target pass (τ)"
	p.Y.Min = 0
	var names []string
	for i, r := range rows {
		bar, err := plotter.NewBarChart(plotter.Values{r.Tau}, vg.Points(18))
		if err != nil {
			return nil, err
		}
		bar.XMin = float64(i)
		bar.Color = bench.Palette[i%len(bench.Palette)]
		bar.LineStyle.Width = 0
		p.Add(bar)
		names = append(names, r.label())
	}
	p.NominalX(names...)
	p.X.Tick.Label.Rotation = math.Pi / 6
	p.X.Tick.Label.XAlign = draw.XRight
	p.X.Tick.Label.YAlign = draw.YCenter
	return p, nil
}

// depthPlot is a line for each row that drafts.
func depthPlot(rows []quickRow) (*plot.Plot, error) {
	p := plot.New()
	p.Title.Text = "Rounds that accept a node at this depth"
	p.X.Label.Text = "depth"
	p.Y.Min, p.Y.Max = 0, 1
	p.Add(plotter.NewGrid())
	p.Legend.Top = true
	for i, r := range rows {
		if len(r.ByDepth) == 0 {
			continue
		}
		xy := make(plotter.XYs, len(r.ByDepth))
		for d, share := range r.ByDepth {
			xy[d].X, xy[d].Y = float64(d+1), share
		}
		line, points, err := plotter.NewLinePoints(xy)
		if err != nil {
			return nil, err
		}
		line.Color, points.Color = bench.Palette[i%len(bench.Palette)], bench.Palette[i%len(bench.Palette)]
		line.Width = vg.Points(1.5)
		points.Shape = draw.CircleGlyph{}
		p.Add(line, points)
		p.Legend.Add(r.label(), line)
	}
	return p, nil
}
