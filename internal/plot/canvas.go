package plot

import (
	"fmt"
	"html"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"io"
	"math"
	"strings"
	"sync"

	"golang.org/x/image/font"
	"golang.org/x/image/font/gofont/goregular"
	"golang.org/x/image/font/sfnt"
	"golang.org/x/image/math/fixed"
	"golang.org/x/image/vector"
)

type point struct{ x, y float64 }

// An anchor is the part of a text that stands at a point of its baseline.
type anchor int

const (
	start anchor = iota
	centre
	end
)

// A canvas is a picture that is being drawn.
type canvas interface {
	area(c color.RGBA, corners ...point)
	line(c color.RGBA, width float64, dashes []float64, points ...point)
	dot(c color.RGBA, at point, radius float64)
	text(s string, at point, size float64, a anchor, turn float64) // degrees, to the left
	write(w io.Writer) error
}

// An svg canvas leaves fonts and pixels to who shows it.
type svg struct{ b strings.Builder }

func newSVG(width, height float64) *svg {
	s := new(svg)
	fmt.Fprintf(&s.b, `<?xml version="1.0"?>
<svg xmlns="http://www.w3.org/2000/svg" width="%[1]gpt" height="%[2]gpt" viewBox="0 0 %[1]g %[2]g" font-family="Go, Helvetica, Arial, sans-serif">
<rect width="%[1]g" height="%[2]g" fill="#FFFFFF"/>
`, width, height)
	return s
}

func hex(c color.RGBA) string { return fmt.Sprintf("#%02X%02X%02X", c.R, c.G, c.B) }

// coordinates lists points as SVG does.
func coordinates(points []point) string {
	var b strings.Builder
	for i, p := range points {
		if i > 0 {
			b.WriteByte(' ')
		}
		fmt.Fprintf(&b, "%.2f,%.2f", p.x, p.y)
	}
	return b.String()
}

func (s *svg) area(c color.RGBA, corners ...point) {
	fmt.Fprintf(&s.b, `<polygon points="%s" fill="%s"/>`+"\n", coordinates(corners), hex(c))
}

func (s *svg) line(c color.RGBA, width float64, dashes []float64, points ...point) {
	dash := ""
	if dashes != nil {
		dash = fmt.Sprintf(` stroke-dasharray="%s"`, strings.Trim(fmt.Sprint(dashes), "[]"))
	}
	fmt.Fprintf(&s.b, `<polyline points="%s" fill="none" stroke="%s" stroke-width="%g"%s/>`+"\n", coordinates(points), hex(c), width, dash)
}

func (s *svg) dot(c color.RGBA, at point, radius float64) {
	fmt.Fprintf(&s.b, `<circle cx="%.2f" cy="%.2f" r="%g" fill="%s"/>`+"\n", at.x, at.y, radius, hex(c))
}

func (s *svg) text(text string, at point, size float64, a anchor, turn float64) {
	turned := ""
	if turn != 0 {
		turned = fmt.Sprintf(` transform="rotate(%g %.2f %.2f)"`, -turn, at.x, at.y)
	}
	fmt.Fprintf(&s.b, `<text x="%.2f" y="%.2f" font-size="%g" text-anchor="%s"%s>%s</text>`+"\n",
		at.x, at.y, size, []string{"start", "middle", "end"}[a], turned, html.EscapeString(text))
}

func (s *svg) write(w io.Writer) error {
	_, err := io.WriteString(w, s.b.String()+"</svg>\n")
	return err
}

// A bitmap canvas has two pixels to a point.
type bitmap struct{ to *image.RGBA }

const pixels = 2.0

func newPNG(width, height float64) *bitmap {
	to := image.NewRGBA(image.Rect(0, 0, int(math.Round(width*pixels)), int(math.Round(height*pixels))))
	draw.Draw(to, to.Bounds(), image.White, image.Point{}, draw.Src)
	return &bitmap{to}
}

// fill fills closed polygons, all of which turn the same way unless one is a hole.
func (b *bitmap) fill(c color.RGBA, polygons [][]point) {
	low, high := point{math.Inf(1), math.Inf(1)}, point{math.Inf(-1), math.Inf(-1)}
	for _, poly := range polygons {
		for _, p := range poly {
			low, high = point{min(low.x, p.x), min(low.y, p.y)}, point{max(high.x, p.x), max(high.y, p.y)}
		}
	}
	if low.x > high.x {
		return
	}
	at := image.Rect(int(math.Floor(low.x*pixels)), int(math.Floor(low.y*pixels)), int(math.Ceil(high.x*pixels)), int(math.Ceil(high.y*pixels)))
	if at = at.Intersect(b.to.Bounds()); at.Empty() { // the rasterizer draws to all of it
		return
	}
	r := vector.NewRasterizer(at.Dx(), at.Dy())
	for _, poly := range polygons {
		for i, p := range poly {
			px, py := float32(p.x*pixels-float64(at.Min.X)), float32(p.y*pixels-float64(at.Min.Y))
			if i == 0 {
				r.MoveTo(px, py)
			} else {
				r.LineTo(px, py)
			}
		}
		r.ClosePath()
	}
	r.Draw(b.to, at, image.NewUniform(c), image.Point{})
}

func (b *bitmap) area(c color.RGBA, corners ...point) { b.fill(c, [][]point{corners}) }

// round is a polygon that looks like a circle.
func round(at point, radius float64) (out []point) {
	const corners = 24
	for i := range corners {
		sin, cos := math.Sincos(2 * math.Pi * float64(i) / corners)
		out = append(out, point{at.x + radius*cos, at.y + radius*sin})
	}
	return out
}

func (b *bitmap) dot(c color.RGBA, at point, radius float64) {
	b.fill(c, [][]point{round(at, radius)})
}

func (b *bitmap) line(c color.RGBA, width float64, dashes []float64, points ...point) {
	var all [][]point
	half := width / 2
	stroke := func(p, q point, length float64) {
		dx, dy := (q.x-p.x)/length*half, (q.y-p.y)/length*half
		all = append(all, []point{{p.x + dy, p.y - dx}, {q.x + dy, q.y - dx}, {q.x - dy, q.y + dx}, {p.x - dy, p.y + dx}})
	}
	which, left := 0, math.Inf(1) // of the dashes and the gaps between them
	if dashes != nil {
		left = dashes[0]
	}
	for i := 1; i < len(points); i++ {
		p, q := points[i-1], points[i]
		for {
			length := math.Hypot(q.x-p.x, q.y-p.y)
			if length == 0 {
				break
			}
			step := min(length, left)
			to := point{p.x + (q.x-p.x)*step/length, p.y + (q.y-p.y)*step/length}
			if which%2 == 0 {
				stroke(p, to, step)
			}
			if p = to; dashes != nil {
				if left -= step; left < 1e-9 {
					which++
					left = dashes[which%len(dashes)]
				}
			}
			if step == length {
				break
			}
		}
		if i+1 < len(points) && which%2 == 0 {
			all = append(all, round(q, half))
		}
	}
	b.fill(c, all)
}

// face is the font of texts in bitmaps.
var face = sync.OnceValue(func() *sfnt.Font {
	f, err := sfnt.Parse(goregular.TTF)
	if err != nil {
		panic(fmt.Sprintf("plot: the font: %v", err)) // it is part of the program
	}
	return f
})

// units is the size that glyphs are loaded at, in pixels to an em.
const units = 1024

// glyphs calls f with every glyph of a text and where it begins, in ems, and returns where the text ends.
func glyphs(s string, f func(buf *sfnt.Buffer, glyph sfnt.GlyphIndex, at float64)) float64 {
	var buf sfnt.Buffer
	at := 0.0
	for _, r := range s {
		g, err := face().GlyphIndex(&buf, r)
		if err != nil {
			continue
		}
		if f != nil {
			f(&buf, g, at)
		}
		wide, err := face().GlyphAdvance(&buf, g, fixed.I(units), font.HintingNone)
		if err != nil {
			continue
		}
		at += float64(wide) / 64 / units
	}
	return at
}

func textWidth(s string, size float64) float64 { return size * glyphs(s, nil) }

func (b *bitmap) text(s string, at point, size float64, a anchor, turn float64) {
	begin := -textWidth(s, size) * float64(a) / 2
	sin, cos := math.Sincos(-turn * math.Pi / 180)
	var outline [][]point
	glyphs(s, func(buf *sfnt.Buffer, g sfnt.GlyphIndex, from float64) {
		segments, err := face().LoadGlyph(buf, g, fixed.I(units), nil)
		if err != nil {
			return
		}
		place := func(p fixed.Point26_6) point {
			x := begin + size*(from+float64(p.X)/64/units)
			y := size * float64(p.Y) / 64 / units
			return point{at.x + x*cos - y*sin, at.y + x*sin + y*cos}
		}
		for _, seg := range segments {
			if seg.Op == sfnt.SegmentOpMoveTo {
				outline = append(outline, []point{place(seg.Args[0])})
				continue
			}
			n := len(outline) - 1
			outline[n] = append(outline[n], curve(outline[n][len(outline[n])-1], &seg, place)...)
		}
	})
	b.fill(black, outline)
}

// curve returns points of a segment that begins at p, up to its end.
func curve(p point, seg *sfnt.Segment, place func(fixed.Point26_6) point) (out []point) {
	q := [3]point{place(seg.Args[0]), place(seg.Args[1]), place(seg.Args[2])}
	switch seg.Op {
	case sfnt.SegmentOpLineTo:
		return []point{q[0]}
	case sfnt.SegmentOpQuadTo: // as a cubic one
		q = [3]point{
			{p.x + (q[0].x-p.x)*2/3, p.y + (q[0].y-p.y)*2/3}, {q[1].x + (q[0].x-q[1].x)*2/3, q[1].y + (q[0].y-q[1].y)*2/3}, q[1],
		}
	}
	const parts = 6
	for i := 1; i <= parts; i++ {
		t := float64(i) / parts
		u := 1 - t
		b0, b1, b2, b3 := u*u*u, 3*u*u*t, 3*u*t*t, t*t*t
		out = append(out, point{b0*p.x + b1*q[0].x + b2*q[1].x + b3*q[2].x, b0*p.y + b1*q[0].y + b2*q[1].y + b3*q[2].y})
	}
	return out
}

func (b *bitmap) write(w io.Writer) error { return png.Encode(w, b.to) }
