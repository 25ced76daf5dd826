package plot

import (
	"image/color"
	"math"
	"slices"
	"strconv"
)

// Sizes of texts.
const (
	titleSize = 12.0
	labelSize = 10.0
	tickSize  = 9.0
)

var (
	black = color.RGBA{0, 0, 0, 0xff}
	grey  = color.RGBA{0xdd, 0xdd, 0xdd, 0xff}
)

// A box is a part of a picture.
type box struct{ x0, y0, x1, y1 float64 }

// A span is the values of an axis. A logarithmic one has logarithms.
type span struct{ low, high float64 }

// at returns where v is between from and to.
func (s span) at(v, from, to float64) float64 {
	return from + (v-s.low)/(s.high-s.low)*(to-from)
}

// hold extends s to v, unless that is no number.
func (s *span) hold(v float64) {
	if !math.IsNaN(v) && !math.IsInf(v, 0) {
		s.low, s.high = min(s.low, v), max(s.high, v)
	}
}

// settle makes s a span with a length, with a margin of a part of it at either end.
func (s *span) settle(below, above float64) {
	if s.low > s.high { // nothing was held
		s.low, s.high = 0, 1
	}
	if s.low == s.high {
		s.low, s.high = s.low-0.5, s.high+0.5
	}
	d := s.high - s.low
	s.low, s.high = s.low-below*d, s.high+above*d
}

// A tick is a mark of an axis.
type tick struct {
	at   float64
	text string
}

// ticks marks s at up to seven round values.
func (s span) ticks() (out []tick) {
	step := math.Pow(10, math.Floor(math.Log10((s.high-s.low)/2)))
	for _, by := range []float64{2, 2.5, 2} { // 1, 2, 5, 10 times
		if (s.high-s.low)/step <= 6 {
			break
		}
		step *= by
	}
	for k := math.Ceil(s.low/step - 1e-9); k*step <= s.high+1e-9*step; k++ {
		v := k*step + 0 // not the zero below 0
		out = append(out, tick{v, strconv.FormatFloat(v, 'g', 6, 64)})
	}
	return out
}

// A chart is a figure with its axes.
type chart struct {
	*Figure
	x, y           span
	xTicks, yTicks []tick
}

func (f *Figure) chart() chart {
	c := chart{Figure: f, x: span{math.Inf(1), math.Inf(-1)}, y: span{math.Inf(1), math.Inf(-1)}}
	for i := range f.Series {
		for _, values := range [][]float64{f.Series[i].Y, f.Series[i].Low, f.Series[i].High} {
			for _, v := range values {
				c.y.hold(v)
			}
		}
		for _, v := range f.Series[i].X {
			c.x.hold(c.scaled(v))
		}
	}
	solo := f.solo()
	if zero := f.FromZero || solo || f.Groups != nil; zero {
		c.y.hold(0)
		c.y.settle(0, 0.05)
	} else {
		c.y.settle(0.04, 0.06)
	}
	if f.MaxY > 0 {
		c.y.high = f.MaxY
	}
	c.yTicks = c.y.ticks()
	switch {
	case f.Groups != nil:
		c.x = span{-0.5, float64(len(f.Groups)) - 0.5}
		for i, name := range f.Groups {
			c.xTicks = append(c.xTicks, tick{float64(i), name})
		}
	case solo:
		c.x = span{-0.5, float64(max(len(f.Series), 1)) - 0.5}
		for i := range f.Series {
			c.xTicks = append(c.xTicks, tick{float64(i), f.Series[i].Name})
		}
	default:
		c.x.settle(0.02, 0.02)
		c.xTicks = c.x.ticks()
	}
	if f.LogX {
		c.xTicks = f.valueTicks()
	}
	return c
}

// scaled is a value of X on its axis.
func (f *Figure) scaled(x float64) float64 {
	if f.LogX {
		return math.Log(x)
	}
	return x
}

// valueTicks marks every value of X once.
func (f *Figure) valueTicks() (out []tick) {
	var xs []float64
	for _, s := range f.Series {
		xs = append(xs, s.X...)
	}
	slices.Sort(xs)
	for _, x := range slices.Compact(xs) {
		out = append(out, tick{f.scaled(x), strconv.FormatFloat(x, 'g', -1, 64)})
	}
	return out
}

// slant is the angle of the names of bars below the axis, in degrees.
const slant = 30.0

// margins returns the room that texts need left of the axes, right of them and below them.
func (c *chart) margins() (left, right, below float64) {
	for _, t := range c.yTicks {
		left = max(left, textWidth(t.text, tickSize))
	}
	left += around + 8
	if c.Y != "" {
		left += labelSize + 6
	}
	below = around + tickSize + 6
	if c.solo() {
		for _, t := range c.xTicks {
			below = max(below, around+12+textWidth(t.text, tickSize)*math.Sin(slant*math.Pi/180))
		}
	}
	if c.X != "" {
		below += labelSize + 4
	}
	right = around
	if !c.solo() {
		for i := range c.Series {
			if s := &c.Series[i]; len(s.Y) > 0 {
				right = max(right, sample+10+textWidth(s.Name, tickSize)+around)
			}
		}
	}
	return left, right, below
}

// draw draws c with its texts in all, its axes around in.
func (c *chart) draw(to canvas, all, in box) {
	middle := (in.x0 + in.x1) / 2
	to.text(c.Title, point{middle, all.y0 + around + titleSize*0.8}, titleSize, centre, 0)
	if c.X != "" {
		to.text(c.X, point{middle, in.y1 + 6 + tickSize + labelSize + 4}, labelSize, centre, 0)
	}
	if c.Y != "" {
		to.text(c.Y, point{all.x0 + around + labelSize*0.8, (in.y0 + in.y1) / 2}, labelSize, centre, 90)
	}
	solo := c.solo()
	for _, t := range c.yTicks {
		y := c.y.at(t.at, in.y1, in.y0)
		if !solo {
			to.line(grey, 0.5, nil, point{in.x0, y}, point{in.x1, y})
		}
		to.line(black, 0.5, nil, point{in.x0 - 4, y}, point{in.x0, y})
		to.text(t.text, point{in.x0 - 6, y + tickSize*0.35}, tickSize, end, 0)
	}
	for _, t := range c.xTicks {
		x := c.x.at(t.at, in.x0, in.x1)
		if c.Groups == nil && !solo {
			to.line(grey, 0.5, nil, point{x, in.y0}, point{x, in.y1})
		}
		to.line(black, 0.5, nil, point{x, in.y1}, point{x, in.y1 + 4})
		if solo {
			to.text(t.text, point{x + 2, in.y1 + 6 + tickSize*0.6}, tickSize, end, slant)
		} else {
			to.text(t.text, point{x, in.y1 + 6 + tickSize*0.8}, tickSize, centre, 0)
		}
	}
	for i := range c.Series {
		s := &c.Series[i]
		switch {
		case len(s.Y) == 0:
		case c.Groups != nil:
			for k, y := range s.Y {
				off := barWidth * (float64(i) - float64(len(c.Series)-1)/2)
				c.bar(to, in, i, c.x.at(float64(k), in.x0, in.x1)+off, barWidth, y)
			}
		case solo:
			c.bar(to, in, i, c.x.at(float64(i), in.x0, in.x1), soloWidth, s.Y[0])
		default:
			c.points(to, in, i)
		}
	}
	to.line(black, 0.7, nil, point{in.x0, in.y0}, point{in.x0, in.y1}, point{in.x1, in.y1})
	if !solo {
		c.legend(to, in)
	}
}

// bar draws a bar of series i around x, unless its value is no number.
func (c *chart) bar(to canvas, in box, i int, x, width, value float64) {
	if math.IsNaN(value) || math.IsInf(value, 0) {
		return
	}
	y, base := c.y.at(min(value, c.y.high), in.y1, in.y0), c.y.at(0, in.y1, in.y0)
	corners := []point{{x - width/2, base}, {x - width/2, y}, {x + width/2, y}, {x + width/2, base}}
	colour, again := colour(i)
	to.area(colour, corners...)
	if again {
		to.line(black, 0.8, nil, append(corners, corners[0])...)
	}
}

// dashes are of lines whose colour another series has already.
func dashes(again bool) []float64 {
	if again {
		return []float64{4, 2}
	}
	return nil
}

// points draws series i as points joined by a line, with their intervals. What is no number is left
// out.
func (c *chart) points(to canvas, in box, i int) {
	s := &c.Series[i]
	colour, again := colour(i)
	place := func(k int, v float64) (point, bool) {
		p := point{c.x.at(c.scaled(s.X[k]), in.x0, in.x1), c.y.at(min(v, c.y.high), in.y1, in.y0)}
		return p, !math.IsNaN(p.x+p.y) && !math.IsInf(p.x+p.y, 0)
	}
	var all []point
	for k, y := range s.Y {
		p, ok := place(k, y)
		if !ok {
			continue
		}
		all = append(all, p)
		if s.Low == nil {
			continue
		}
		low, ok := place(k, s.Low[k])
		high, also := place(k, s.High[k])
		if ok && also {
			to.line(colour, 0.8, nil, low, high)
			to.line(colour, 0.8, nil, point{low.x - 2.5, low.y}, point{low.x + 2.5, low.y})
			to.line(colour, 0.8, nil, point{high.x - 2.5, high.y}, point{high.x + 2.5, high.y})
		}
	}
	if len(all) > 1 {
		to.line(colour, 1.5, dashes(again), all...)
	}
	for _, p := range all {
		to.dot(colour, p, 2.5)
	}
}

// sample is how long the line of a series is in the legend.
const sample = 18.0

// legend names the series, right of the axes.
func (c *chart) legend(to canvas, in box) {
	const line = 12.0
	x, y := in.x1+6, in.y0+line/2
	for i := range c.Series {
		if len(c.Series[i].Y) == 0 {
			continue
		}
		colour, again := colour(i)
		if c.Groups != nil {
			to.area(colour, point{x, y - 4}, point{x + sample, y - 4}, point{x + sample, y + 4}, point{x, y + 4})
		} else {
			to.line(colour, 1.5, dashes(again), point{x, y}, point{x + sample, y})
			to.dot(colour, point{x + sample/2, y}, 2.5)
		}
		to.text(c.Series[i].Name, point{x + sample + 4, y + tickSize*0.35}, tickSize, start, 0)
		y += line
	}
}
