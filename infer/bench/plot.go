package bench

import (
	"fmt"
	"image/color"
	"io"
	"math"
	"path/filepath"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"
)

// A Series is one line, or one bar of every group.
type Series struct {
	Name string
	X    []float64 // of a line; nil in a figure of bars
	Y    []float64
	Std  []float64 // deviations of Y; nil for none
}

// A Figure is one diagram: lines over X, or groups of bars.
type Figure struct {
	Title  string
	X, Y   string   // what the axes show
	Groups []string // names of the groups of bars; nil for lines
	Series []Series
}

// Palette keeps lines apart on screens, in print and for colour-blind readers
// (Okabe and Ito 2008).
var Palette = []color.RGBA{
	{0x99, 0x99, 0x99, 0xff},
	{0xe6, 0x9f, 0x00, 0xff},
	{0x56, 0xb4, 0xe9, 0xff},
	{0x00, 0x9e, 0x73, 0xff},
	{0xd5, 0x5e, 0x00, 0xff},
	{0x00, 0x72, 0xb2, 0xff},
	{0xcc, 0x79, 0xa7, 0xff},
}

// Figures returns τ and speed-up by method and set, a diagram for each temperature.
func (r *Report) Figures() []Figure {
	var out []Figure
	var groups []string
	for _, s := range r.Sets {
		groups = append(groups, setName(s.Name))
	}
	for _, t := range r.Temperature {
		tau := Figure{Title: fmt.Sprintf("Tokens per target pass (τ), temperature %g", t), Groups: groups}
		speed := Figure{Title: fmt.Sprintf("Speed-up over plain decoding, temperature %g", t), Groups: groups}
		for i := range r.Rows {
			x := &r.Rows[i]
			if x.Set != "" || x.Temperature != t {
				continue
			}
			a, b := Series{Name: x.Method}, Series{Name: x.Method}
			for _, s := range r.Sets {
				row := r.Row(x.Method, s.Name, t)
				if row == nil {
					row = &Row{}
				}
				a.Y, a.Std = append(a.Y, row.Tau.Mean), append(a.Std, row.Tau.Std)
				b.Y, b.Std = append(b.Y, row.Speedup.Mean), append(b.Std, row.Speedup.Std)
			}
			tau.Series, speed.Series = append(tau.Series, a), append(speed.Series, b)
		}
		if len(tau.Series) > 0 {
			out = append(out, tau, speed)
		}
	}
	return out
}

// The size of a diagram.
const (
	figureWidth  = 7 * vg.Inch
	figureHeight = 3.6 * vg.Inch
)

// WritePlot draws figures one below the other, in the format that a file called name
// has: name ends in .png or .svg.
func WritePlot(w io.Writer, name string, figures []Figure) error {
	if len(figures) == 0 {
		return fmt.Errorf("draw %s: there is nothing to draw", name)
	}
	rows := make([][]*plot.Plot, len(figures))
	width := figureWidth
	for i := range figures {
		p, err := figures[i].plot()
		if err != nil {
			return fmt.Errorf("draw %s: %w", name, err)
		}
		rows[i] = []*plot.Plot{p}
		width = max(width, figures[i].width())
	}
	height := figureHeight * vg.Length(len(figures))
	var c vg.CanvasSizer
	var to io.WriterTo
	switch strings.ToLower(filepath.Ext(name)) {
	case ".png":
		png := vgimg.PngCanvas{Canvas: vgimg.NewWith(vgimg.UseWH(width, height), vgimg.UseDPI(144))}
		c, to = png, png
	case ".svg":
		svg := vgsvg.New(width, height)
		c, to = svg, svg
	default:
		return fmt.Errorf("draw %s: want a name that ends in .png or .svg", name)
	}
	tiles := draw.Tiles{Rows: len(rows), Cols: 1, PadY: vg.Points(16), PadTop: vg.Points(6), PadBottom: vg.Points(6), PadLeft: vg.Points(6), PadRight: vg.Points(10)}
	for i, tile := range plot.Align(rows, tiles, draw.New(c)) {
		rows[i][0].Draw(tile[0])
	}
	_, err := to.WriteTo(w)
	return err
}

// barWidth is the width of a bar.
const barWidth = 7

// width leaves room for all bars.
func (f *Figure) width() vg.Length {
	return vg.Points(barWidth)*vg.Length((len(f.Series)+2)*len(f.Groups)) + 3.5*vg.Inch
}

func (f *Figure) plot() (*plot.Plot, error) {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = f.Title, f.X, f.Y
	p.Add(plotter.NewGrid())
	p.Legend.Top = true
	for i, s := range f.Series {
		c := Palette[i%len(Palette)]
		if f.Groups != nil {
			if err := f.bars(p, i, c); err != nil {
				return nil, err
			}
			continue
		}
		xy := make(plotter.XYs, len(s.Y))
		for k := range xy {
			xy[k].X, xy[k].Y = s.X[k], s.Y[k]
		}
		line, points, err := plotter.NewLinePoints(xy)
		if err != nil {
			return nil, err
		}
		line.Color, points.Color, points.Shape = c, c, draw.CircleGlyph{}
		line.Width = vg.Points(1.5)
		if i >= len(Palette) {
			line.Dashes = []vg.Length{vg.Points(4), vg.Points(2)}
		}
		p.Add(line, points)
		p.Legend.Add(s.Name, line, points)
		if s.Std != nil {
			bars, err := plotter.NewYErrorBars(withErrors(xy, s.Std))
			if err != nil {
				return nil, err
			}
			bars.Color = c
			p.Add(bars)
		}
	}
	if f.Groups != nil {
		p.Y.Min = 0
		p.NominalX(f.Groups...)
		// The legend stands beside the bars.
		p.X.Max = float64(len(f.Groups)) - 0.5 + 0.35*float64(len(f.Groups))
		p.X.Min = -0.5
	}
	return p, nil
}

// bars draws one series of a figure of groups.
func (f *Figure) bars(p *plot.Plot, i int, c color.RGBA) error {
	s := &f.Series[i]
	values := make(plotter.Values, len(s.Y))
	for k, y := range s.Y {
		if !math.IsNaN(y) && !math.IsInf(y, 0) {
			values[k] = y
		}
	}
	b, err := plotter.NewBarChart(values, vg.Points(barWidth))
	if err != nil {
		return err
	}
	b.Color, b.LineStyle.Width = c, 0
	if i >= len(Palette) { // a second round of colours is outlined
		b.LineStyle.Width = vg.Points(0.8)
	}
	b.Offset = vg.Points(barWidth) * vg.Length(float64(i)-float64(len(f.Series)-1)/2)
	p.Add(b)
	p.Legend.Add(s.Name, b)
	return nil
}

// errored are points with deviations.
type errored struct {
	plotter.XYs
	std []float64
}

func withErrors(xy plotter.XYs, std []float64) errored { return errored{xy, std} }

// YError returns the deviation of point i to both sides.
func (e errored) YError(i int) (float64, float64) { return e.std[i], e.std[i] }
