package report

import (
	"fmt"
	"html/template"
	"math"
	"slices"
	"strings"

	"talf/internal/plot"
	"talf/internal/stats"
)

// A line is a series of a chart. X and Y are as long as each other; Low and High are the ends of
// intervals, nil for none.
type line struct {
	Name             string
	Colour           int // of the style sheet
	Dash             bool
	Run              int // index of its run, −1: of none
	X, Y             []float64
	Low, High        []float64
	Band             bool // the intervals are an area, not bars
	Points, NoStroke bool
}

// A chart is lines over a common axis.
type chart struct {
	Title, X, Y string
	Note        string // below the title
	Lines       []line
	LogX        bool
	FromZero    bool
	MaxY        float64 // 0: as the values are
}

// The sizes of charts in their own units. A phone shows a unit as three quarters of a pixel.
const (
	width, height            = 440.0, 280.0
	left, right, top, bottom = 48.0, 10.0, 10.0, 40.0
	colours                  = 8 // of the style sheet
)

// ofFigure is a figure of lines as a chart. Series beyond the palette are dashed.
func ofFigure(f *plot.Figure, run int) chart {
	c := chart{Title: f.Title, X: f.X, Y: f.Y, LogX: f.LogX, FromZero: f.FromZero, MaxY: f.MaxY}
	for i, s := range f.Series {
		if len(s.Y) == 0 || len(s.X) != len(s.Y) {
			continue
		}
		c.Lines = append(c.Lines, line{
			Name: s.Name, Colour: i % colours, Dash: i/colours%2 == 1, Run: run, X: s.X, Y: s.Y, Low: s.Low, High: s.High, Points: true,
		})
	}
	return c
}

// ofBars is a figure of bars as rows of marks, a row for each series in every group.
func ofBars(f *plot.Figure, run int) marks {
	m := marks{Title: f.Title, X: f.Y}
	groups := f.Groups
	if groups == nil {
		groups = []string{""}
	}
	for g, group := range groups {
		for _, s := range f.Series {
			if g < len(s.Y) {
				m.add(strings.Trim(group+" · "+s.Name, " ·"), mark{At: stats.Interval{Value: s.Y[g]}, Run: run})
			}
		}
	}
	return m
}

// An axis maps values to places.
type axis struct {
	lo, hi, from, to float64
	log              bool
}

func (a axis) at(v float64) float64 {
	lo, hi := a.lo, a.hi
	if a.log {
		lo, hi, v = math.Log(lo), math.Log(hi), math.Log(max(v, a.lo))
	}
	if hi == lo {
		return (a.from + a.to) / 2
	}
	return a.from + (v-lo)/(hi-lo)*(a.to-a.from)
}

// ticks returns about n round values from lo to hi.
func ticks(lo, hi float64, n int) (out []float64) {
	step := (hi - lo) / float64(n)
	if !(step > 0) || math.IsInf(step, 0) {
		return []float64{lo}
	}
	unit := math.Pow(10, math.Floor(math.Log10(step)))
	switch f := step / unit; {
	case f > 5:
		unit *= 10
	case f > 2:
		unit *= 5
	case f > 1:
		unit *= 2
	}
	for k := math.Ceil(lo/unit - 1e-9); k*unit <= hi+unit*1e-9 && len(out) < 40; k++ {
		out = append(out, k*unit)
	}
	return out
}

// number writes a value of an axis or a table.
func number(v float64) string {
	v += 0 // no negative zero
	switch a := math.Abs(v); {
	case v == 0 || math.IsNaN(v) || math.IsInf(v, 0):
		return fmt.Sprintf("%g", v)
	case a >= 1e5 || a < 1e-3:
		return fmt.Sprintf("%.3g", v)
	case a >= 100:
		return fmt.Sprintf("%.0f", v)
	}
	return strings.TrimRight(strings.TrimRight(fmt.Sprintf("%.3f", v), "0"), ".")
}

// finite reports whether v can be drawn: differences of what can be drawn are numbers too.
func finite(v float64) bool { return math.Abs(v) <= math.MaxFloat64/4 }

// bounds are the least and the largest values, intervals included.
func (c *chart) bounds() (x, y axis, ok bool) {
	x, y = axis{lo: math.Inf(1), hi: math.Inf(-1)}, axis{lo: math.Inf(1), hi: math.Inf(-1)}
	grow := func(a *axis, v float64) {
		if finite(v) {
			a.lo, a.hi = min(a.lo, v), max(a.hi, v)
		}
	}
	for i := range c.Lines {
		l := &c.Lines[i]
		for k := range l.X {
			if !finite(l.X[k]) || !finite(l.Y[k]) || c.LogX && l.X[k] <= 0 {
				continue
			}
			grow(&x, l.X[k])
			grow(&y, l.Y[k])
			if l.Low != nil {
				grow(&y, l.Low[k])
				grow(&y, l.High[k])
			}
		}
	}
	if x.lo > x.hi {
		return x, y, false
	}
	if c.FromZero {
		y.lo = min(0, y.lo)
	}
	if pad := (y.hi - y.lo) * 0.05; pad > 0 {
		y.hi += pad
		if !c.FromZero {
			y.lo -= pad
		}
	} else {
		y.lo, y.hi = y.lo-0.5, y.hi+0.5
	}
	if c.MaxY > 0 {
		y.hi = c.MaxY
	}
	x.from, x.to, x.log = left, width-right, c.LogX
	y.from, y.to = height-bottom, top
	return x, y, true
}

// SVG draws the chart; "" if it has no point.
func (c *chart) SVG() template.HTML {
	x, y, ok := c.bounds()
	if !ok {
		return ""
	}
	b := new(strings.Builder)
	fmt.Fprintf(b, `<svg class="chart" viewBox="0 0 %g %g" role="img" aria-label="%s">`, width, height, escape(c.Title))
	for _, v := range ticks(y.lo, y.hi, 5) {
		p := y.at(v)
		fmt.Fprintf(b, `<line class="grid" x1="%g" x2="%g" y1="%.1f" y2="%.1[3]f"/><text class="tick" x="%g" y="%.1f" text-anchor="end">%s</text>`,
			left, width-right, p, left-6, p+4, number(v))
	}
	xs := ticks(x.lo, x.hi, 6)
	if all := c.values(); c.LogX {
		xs = all
	} else if !slices.ContainsFunc(all, fraction) {
		xs = slices.DeleteFunc(xs, fraction) // depths and steps are whole
	}
	for _, v := range xs {
		fmt.Fprintf(b, `<text class="tick" x="%.1f" y="%g" text-anchor="middle">%s</text>`, x.at(v), height-bottom+16, number(v))
	}
	fmt.Fprintf(b, `<line class="axis" x1="%g" x2="%g" y1="%g" y2="%[3]g"/>`, left, width-right, height-bottom)
	fmt.Fprintf(b, `<text class="label" x="%g" y="%g" text-anchor="middle">%s</text>`, (left+width-right)/2, height-6, escape(c.X))
	for i := range c.Lines {
		c.Lines[i].draw(b, x, y)
	}
	b.WriteString("</svg>")
	return template.HTML(b.String())
}

func fraction(v float64) bool { return v != math.Trunc(v) }

// values are the different x of all lines, at most a dozen.
func (c *chart) values() (out []float64) {
	for _, l := range c.Lines {
		out = append(out, l.X...)
	}
	slices.Sort(out)
	out = slices.Compact(out)
	for len(out) > 12 {
		half := out[:0]
		for i := 0; i < len(out); i += 2 {
			half = append(half, out[i])
		}
		out = half
	}
	return out
}

func (l *line) class() string {
	s := fmt.Sprintf("c%d", l.Colour)
	if l.Dash {
		s += " dash"
	}
	if l.Run >= 0 {
		s += fmt.Sprintf(" r%d", l.Run)
	}
	return s
}

func (l *line) draw(b *strings.Builder, x, y axis) {
	clip := func(v float64) float64 { return min(max(y.at(v), top-4), height-bottom) }
	fmt.Fprintf(b, `<g class="%s">`, l.class())
	if l.Band && l.Low != nil {
		var there, back []string
		for k := range l.X {
			if finite(l.Low[k]) && finite(l.High[k]) {
				there = append(there, fmt.Sprintf("%.1f %.1f", x.at(l.X[k]), clip(l.High[k])))
				back = append(back, fmt.Sprintf("%.1f %.1f", x.at(l.X[k]), clip(l.Low[k])))
			}
		}
		slices.Reverse(back)
		if len(there) > 1 {
			fmt.Fprintf(b, `<path class="band" d="M%sZ"/>`, strings.Join(append(there, back...), "L"))
		}
	}
	var d []string
	for k := range l.X {
		if finite(l.Y[k]) {
			d = append(d, fmt.Sprintf("%.1f %.1f", x.at(l.X[k]), clip(l.Y[k])))
		}
	}
	if !l.NoStroke && len(d) > 1 {
		fmt.Fprintf(b, `<path class="stroke" d="M%s"/>`, strings.Join(d, "L"))
	}
	for k := range l.X {
		if !finite(l.Y[k]) || !l.Points && len(d) > 1 {
			continue
		}
		px := x.at(l.X[k])
		if l.Low != nil && !l.Band && finite(l.Low[k]) && finite(l.High[k]) {
			fmt.Fprintf(b, `<path class="bar" d="M%.1f %.1fV%.1f"/>`, px, clip(l.Low[k]), clip(l.High[k]))
		}
		fmt.Fprintf(b, `<circle cx="%.1f" cy="%.1f" r="2.6"><title>%s: %s at %s</title></circle>`, px, clip(l.Y[k]), escape(l.Name), l.text(k), number(l.X[k]))
	}
	b.WriteString("</g>")
}

// text is the value of a point with its interval.
func (l *line) text(k int) string {
	t := number(l.Y[k])
	if l.Low != nil && finite(l.Low[k]) && finite(l.High[k]) {
		t += " [" + number(l.Low[k]) + ", " + number(l.High[k]) + "]"
	}
	return t
}

// Header and Cells are the chart as a table: a row for each x, a column for each line.
func (c *chart) Header() []string {
	out := []string{c.X}
	for _, l := range c.Lines {
		out = append(out, l.Name)
	}
	return out
}

// mostCells bounds the rows of a chart's table.
const mostCells = 60

// Cells are the rows of the table, at most sixty.
func (c *chart) Cells() [][]string {
	var xs []float64
	for _, l := range c.Lines {
		xs = append(xs, l.X...)
	}
	slices.Sort(xs)
	xs = slices.Compact(xs)
	every := (len(xs) + mostCells - 1) / mostCells
	var out [][]string
	for i, x := range xs {
		if every > 1 && i%every != 0 && i != len(xs)-1 {
			continue
		}
		row := []string{number(x)}
		for k := range c.Lines {
			l := &c.Lines[k]
			cell := ""
			if at := slices.Index(l.X, x); at >= 0 {
				cell = l.text(at)
			}
			row = append(row, cell)
		}
		out = append(out, row)
	}
	return out
}

// A mark is a value with its interval in a row of marks.
type mark struct {
	At  stats.Interval // Low == High == 0: no interval
	Run int            // whose colour it has
}

// marks are rows of named values over a common axis, one below the other.
type marks struct {
	Title, X, Note string
	From           float64 // a value that is always in view, with a line; 0: the beginning
	rows           []string
	marks          [][]mark
}

func (m *marks) add(row string, x mark) {
	k := slices.Index(m.rows, row)
	if k < 0 {
		k = len(m.rows)
		m.rows, m.marks = append(m.rows, row), append(m.marks, nil)
	}
	m.marks[k] = append(m.marks[k], x)
}

// SVG draws the rows; "" if there are none.
func (m *marks) SVG() template.HTML {
	const line, name = 17.0, 18.0
	hi, h := m.From, top
	for i := range m.marks {
		h += name + line*float64(len(m.marks[i])) + 4
		for _, x := range m.marks[i] {
			if finite(x.At.Value) && finite(x.At.High) {
				hi = max(hi, x.At.Value, x.At.High)
			}
		}
	}
	if len(m.rows) == 0 || hi <= 0 {
		return ""
	}
	const plotTo = width - 128 // room for the figures
	a := axis{lo: 0, hi: hi * 1.02, from: 4, to: plotTo}
	b := new(strings.Builder)
	fmt.Fprintf(b, `<svg class="chart" viewBox="0 0 %g %g" role="img" aria-label="%s">`, width, h+24, escape(m.Title))
	for _, v := range ticks(0, a.hi, 5) {
		fmt.Fprintf(b, `<line class="grid" x1="%.1f" x2="%.1[1]f" y1="0" y2="%g"/><text class="tick" x="%.1[1]f" y="%[3]g" text-anchor="middle">%[4]s</text>`, a.at(v), h, h+16, number(v))
	}
	if m.From > 0 {
		fmt.Fprintf(b, `<line class="even" x1="%.1f" x2="%.1[1]f" y1="0" y2="%g"/>`, a.at(m.From), h)
	}
	y := top
	for i, row := range m.rows {
		fmt.Fprintf(b, `<text class="name" x="4" y="%.1f">%s</text>`, y+10, escape(short(row, 58)))
		y += name
		for _, x := range m.marks[i] {
			text := number(math.Round(100*x.At.Value) / 100)
			class := ""
			if x.Run >= 0 {
				class = fmt.Sprintf("c%d r%d", x.Run%colours, x.Run)
			}
			fmt.Fprintf(b, `<g class="%s">`, class)
			if x.At.High > x.At.Low {
				text = fmt.Sprintf("%.2f [%.2f, %.2f]", x.At.Value, x.At.Low, x.At.High)
				fmt.Fprintf(b, `<path class="bar" d="M%.1f %.1fH%.1f"/>`, a.at(x.At.Low), y, a.at(x.At.High))
			}
			fmt.Fprintf(b, `<circle cx="%.1f" cy="%.1f" r="4"/><text class="value" x="%g" y="%.1f">%s</text></g>`, a.at(x.At.Value), y, plotTo+8, y+4, text)
			y += line
		}
		y += 4
	}
	b.WriteString("</svg>")
	return template.HTML(b.String())
}

// short cuts a text in the middle.
func short(s string, most int) string {
	r := []rune(s)
	if len(r) <= most {
		return s
	}
	half := (most - 1) / 2
	return string(r[:half]) + "…" + string(r[len(r)-half:])
}

func escape(s string) string { return template.HTMLEscapeString(s) }
