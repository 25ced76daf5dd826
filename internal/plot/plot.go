// Package plot draws line charts and bar charts as PNG and SVG. Lengths are in points, from the upper
// left corner.
package plot

import (
	"fmt"
	"image/color"
	"io"
	"path/filepath"
	"slices"
	"strings"
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
	inch         = 72.0
	figureWidth  = 7 * inch
	figureHeight = 3.6 * inch
	halfWidth    = 4.5 * inch // of one of several side by side
	barWidth     = 7.0
	soloWidth    = 18.0 // of a bar named below the axis
	around       = 8.0  // a diagram
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
	width := figureWidth
	for i := range figures {
		width = max(width, figures[i].width())
	}
	return write(w, name, figures, width, figureHeight*float64(len(figures)), func(i int) box {
		return box{0, figureHeight * float64(i), width, figureHeight * float64(i+1)}
	})
}

// WriteRow draws figures side by side.
func WriteRow(w io.Writer, name string, figures []Figure) error {
	return write(w, name, figures, halfWidth*float64(len(figures)), figureHeight, func(i int) box {
		return box{halfWidth * float64(i), 0, halfWidth * float64(i+1), figureHeight}
	})
}

// write draws figure i into place(i) of a picture.
func write(w io.Writer, name string, figures []Figure, width, height float64, place func(i int) box) error {
	if err := CheckName(name); err != nil {
		return err
	}
	if len(figures) == 0 {
		return fmt.Errorf("draw %s: there is nothing to draw", name)
	}
	// The axes of all diagrams are in line.
	var left, right, below float64
	charts := make([]chart, len(figures))
	for i := range figures {
		if err := figures[i].check(); err != nil {
			return fmt.Errorf("draw %s: %w", name, err)
		}
		charts[i] = figures[i].chart()
		l, r, b := charts[i].margins()
		left, right, below = max(left, l), max(right, r), max(below, b)
	}
	var c canvas
	if strings.EqualFold(filepath.Ext(name), ".png") {
		c = newPNG(width, height)
	} else {
		c = newSVG(width, height)
	}
	for i := range charts {
		in := place(i)
		charts[i].draw(c, in, box{in.x0 + left, in.y0 + around + titleSize + 6, in.x1 - right, in.y1 - below})
	}
	if err := c.write(w); err != nil {
		return fmt.Errorf("draw %s: %w", name, err)
	}
	return nil
}

// width leaves room for all bars of all groups and for the legend.
func (f *Figure) width() float64 {
	return barWidth*float64((len(f.Series)+2)*len(f.Groups)) + 3.5*inch
}

// solo reports whether each series is one bar.
func (f *Figure) solo() bool {
	return f.Groups == nil && !slices.ContainsFunc(f.Series, func(s Series) bool { return s.X != nil })
}

// check finds series that cannot be drawn.
func (f *Figure) check() error {
	if f.Groups != nil || f.solo() {
		return nil
	}
	for i := range f.Series {
		s := &f.Series[i]
		if len(s.X) != len(s.Y) || len(s.Low) != len(s.High) || s.Low != nil && len(s.Low) != len(s.Y) {
			return fmt.Errorf("%s: %d values of x, %d of y and %d and %d ends of intervals", s.Name, len(s.X), len(s.Y), len(s.Low), len(s.High))
		}
	}
	return nil
}
