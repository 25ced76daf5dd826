// Package plot draws line charts and bar charts as PNG and SVG. It is the only package
// that imports gonum's plotting library.
package plot

import (
	"fmt"
	"image/color"
	"io"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"
)

// A Series is one line of a figure, or its bars of one colour.
type Series struct {
	Name string
	X    []float64 // of a line; nil for bars
	Y    []float64
	// Low and High are the ends of a line's intervals; nil for none.
	Low, High []float64
}

// A Figure is one diagram. With Groups it has a bar for each series in every group. Without
// Groups, series with X are lines; if no series has X, each is one bar named below the axis.
type Figure struct {
	Title  string
	X, Y   string   // labels of the axes
	Groups []string // names of the groups of bars
	Series []Series // a series without Y is not drawn but keeps its colour

	LogX     bool    // the X axis is logarithmic, with a tick at each value
	FromZero bool    // the Y axis starts at zero; that of bars always does
	MaxY     float64 // end of the Y axis; 0 fits it to the values
}

// Add appends a point to the line with this name, creating the line if necessary.
func (f *Figure) Add(name string, x, y float64) { f.line(name).add(x, y) }

// AddError appends a point with an error bar that reaches from y−half to y+half.
func (f *Figure) AddError(name string, x, y, half float64) {
	f.AddInterval(name, x, y, y-half, y+half)
}

// AddInterval appends a point with the ends of its interval, which need not hold y.
func (f *Figure) AddInterval(name string, x, y, low, high float64) {
	s := f.line(name)
	s.add(x, y)
	s.Low, s.High = append(s.Low, low), append(s.High, high)
}

func (f *Figure) line(name string) *Series {
	k := slices.IndexFunc(f.Series, func(s Series) bool { return s.Name == name })
	if k < 0 {
		k = len(f.Series)
		f.Series = append(f.Series, Series{Name: name})
	}
	return &f.Series[k]
}

func (s *Series) add(x, y float64) { s.X, s.Y = append(s.X, x), append(s.Y, y) }

// colours is the palette of Okabe and Ito (2008). It stays legible on screens, in print and
// for readers with colour-blindness.
func colours() []color.RGBA {
	return []color.RGBA{
		{0x99, 0x99, 0x99, 0xff},
		{0xe6, 0x9f, 0x00, 0xff},
		{0x56, 0xb4, 0xe9, 0xff},
		{0x00, 0x9e, 0x73, 0xff},
		{0xd5, 0x5e, 0x00, 0xff},
		{0x00, 0x72, 0xb2, 0xff},
		{0xcc, 0x79, 0xa7, 0xff},
	}
}

// colour returns the colour of series i. again says that another series has it already.
func colour(i int) (c color.RGBA, again bool) {
	all := colours()
	return all[i%len(all)], i >= len(all)
}

// The size of a diagram.
const (
	figureWidth  = 7 * vg.Inch
	figureHeight = 3.6 * vg.Inch
	halfWidth    = 4.5 * vg.Inch // of one of several side by side
	barWidth     = 7             // points
	soloWidth    = 18            // points, of a bar named below the axis
)

// CheckName refuses a file name whose format cannot be drawn.
func CheckName(name string) error {
	switch strings.ToLower(filepath.Ext(name)) {
	case ".png", ".svg":
		return nil
	}
	return fmt.Errorf("draw %s: want a name that ends in .png or .svg", name)
}

// Write draws figures one below the other, in the format given by the extension of name.
func Write(w io.Writer, name string, figures []Figure) error {
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
	return write(w, name, rows, width, figureHeight*vg.Length(len(figures)))
}

// WriteRow draws figures side by side.
func WriteRow(w io.Writer, name string, figures []Figure) error {
	row := make([]*plot.Plot, len(figures))
	for i := range figures {
		p, err := figures[i].plot()
		if err != nil {
			return fmt.Errorf("draw %s: %w", name, err)
		}
		row[i] = p
	}
	return write(w, name, [][]*plot.Plot{row}, halfWidth*vg.Length(len(row)), figureHeight)
}

func write(w io.Writer, name string, plots [][]*plot.Plot, width, height vg.Length) error {
	if err := CheckName(name); err != nil {
		return err
	}
	if len(plots) == 0 || len(plots[0]) == 0 {
		return fmt.Errorf("draw %s: there is nothing to draw", name)
	}
	var c vg.CanvasSizer
	var to io.WriterTo
	if strings.EqualFold(filepath.Ext(name), ".png") {
		png := vgimg.PngCanvas{Canvas: vgimg.NewWith(vgimg.UseWH(width, height), vgimg.UseDPI(144))}
		c, to = png, png
	} else {
		svg := vgsvg.New(width, height)
		c, to = svg, svg
	}
	tiles := draw.Tiles{
		Rows: len(plots), Cols: len(plots[0]), PadX: vg.Points(16), PadY: vg.Points(16),
		PadTop: vg.Points(6), PadBottom: vg.Points(6), PadLeft: vg.Points(6), PadRight: vg.Points(10),
	}
	for i, row := range plot.Align(plots, tiles, draw.New(c)) {
		for k, tile := range row {
			plots[i][k].Draw(tile)
		}
	}
	if _, err := to.WriteTo(w); err != nil {
		return fmt.Errorf("draw %s: %w", name, err)
	}
	return nil
}

// width leaves room for all bars of all groups and for the legend.
func (f *Figure) width() vg.Length {
	return vg.Points(barWidth)*vg.Length((len(f.Series)+2)*len(f.Groups)) + 3.5*vg.Inch
}

// solo reports whether each series is one bar.
func (f *Figure) solo() bool {
	return f.Groups == nil && !slices.ContainsFunc(f.Series, func(s Series) bool { return s.X != nil })
}

func (f *Figure) plot() (*plot.Plot, error) {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = f.Title, f.X, f.Y
	p.Legend.Top, p.Legend.Left = true, f.LogX
	solo := f.solo()
	if !solo {
		p.Add(plotter.NewGrid())
	}
	for i := range f.Series {
		if len(f.Series[i].Y) == 0 {
			continue
		}
		var err error
		switch {
		case f.Groups != nil:
			err = f.bars(p, i)
		case solo:
			err = f.bar(p, i)
		default:
			err = f.points(p, i)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.Series[i].Name, err)
		}
	}
	if f.FromZero || solo || f.Groups != nil {
		p.Y.Min = 0
	}
	if f.MaxY > 0 {
		p.Y.Max = f.MaxY
	}
	switch {
	case f.Groups != nil:
		p.NominalX(f.Groups...)
		// Room for the legend beside the bars.
		p.X.Max = float64(len(f.Groups)) - 0.5 + 0.35*float64(len(f.Groups))
		p.X.Min = -0.5
	case solo:
		var names []string
		for _, s := range f.Series {
			names = append(names, s.Name)
		}
		p.NominalX(names...)
		p.X.Tick.Label.Rotation = math.Pi / 6
		p.X.Tick.Label.XAlign = draw.XRight
		p.X.Tick.Label.YAlign = draw.YCenter
	case f.LogX:
		p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, f.ticks()
	}
	return p, nil
}

// ticks marks every value of X once.
func (f *Figure) ticks() (t plot.ConstantTicks) {
	var xs []float64
	for _, s := range f.Series {
		xs = append(xs, s.X...)
	}
	slices.Sort(xs)
	for _, x := range slices.Compact(xs) {
		t = append(t, plot.Tick{Value: x, Label: fmt.Sprintf("%g", x)})
	}
	return t
}

// points draws series i as points joined by a line.
func (f *Figure) points(p *plot.Plot, i int) error {
	s := &f.Series[i]
	if len(s.X) != len(s.Y) || len(s.Low) != len(s.High) || s.Low != nil && len(s.Low) != len(s.Y) {
		return fmt.Errorf("%d values of x, %d of y and %d and %d ends of intervals", len(s.X), len(s.Y), len(s.Low), len(s.High))
	}
	xy := make(plotter.XYs, len(s.Y))
	for k := range xy {
		xy[k].X, xy[k].Y = s.X[k], s.Y[k]
	}
	line, points, err := plotter.NewLinePoints(xy)
	if err != nil {
		return err
	}
	c, again := colour(i)
	line.Color, points.Color, points.Shape = c, c, draw.CircleGlyph{}
	line.Width = vg.Points(1.5)
	if again {
		line.Dashes = []vg.Length{vg.Points(4), vg.Points(2)}
	}
	p.Add(line, points)
	p.Legend.Add(s.Name, line, points)
	if s.Low == nil {
		return nil
	}
	bars, err := plotter.NewYErrorBars(errorPoints{xy, s})
	if err != nil {
		return err
	}
	bars.Color = c
	p.Add(bars)
	return nil
}

// bars draws the bars of series i in every group.
func (f *Figure) bars(p *plot.Plot, i int) error {
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
	c, again := colour(i)
	b.Color, b.LineStyle.Width = c, 0
	if again {
		b.LineStyle.Width = vg.Points(0.8)
	}
	b.Offset = vg.Points(barWidth) * vg.Length(float64(i)-float64(len(f.Series)-1)/2)
	p.Add(b)
	p.Legend.Add(s.Name, b)
	return nil
}

// bar draws series i as one bar, named below the axis.
func (f *Figure) bar(p *plot.Plot, i int) error {
	b, err := plotter.NewBarChart(plotter.Values{f.Series[i].Y[0]}, vg.Points(soloWidth))
	if err != nil {
		return err
	}
	c, _ := colour(i)
	b.XMin, b.Color, b.LineStyle.Width = float64(i), c, 0
	p.Add(b)
	return nil
}

// errorPoints are points with error bars.
type errorPoints struct {
	plotter.XYs
	s *Series
}

// YError returns how far the error bar of point i goes down and up.
func (e errorPoints) YError(i int) (down, up float64) {
	return e.s.Y[i] - e.s.Low[i], e.s.High[i] - e.s.Y[i]
}
