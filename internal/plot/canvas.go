package plot

import (
	"fmt"
	"html"
	"image/color"
	"io"
	"strings"
	"unicode/utf8"
)

type point struct{ x, y float64 }

// An anchor is the part of a text that stands at a point of its baseline.
type anchor int

const (
	start anchor = iota
	centre
	end
)

// A canvas is a picture in SVG that is being drawn. It leaves fonts and pixels to who shows it.
type canvas struct{ b strings.Builder }

func newCanvas(width, height float64) *canvas {
	s := new(canvas)
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

func (s *canvas) area(c color.RGBA, corners ...point) {
	fmt.Fprintf(&s.b, `<polygon points="%s" fill="%s"/>`+"\n", coordinates(corners), hex(c))
}

func (s *canvas) line(c color.RGBA, width float64, dashes []float64, points ...point) {
	dash := ""
	if dashes != nil {
		dash = fmt.Sprintf(` stroke-dasharray="%s"`, strings.Trim(fmt.Sprint(dashes), "[]"))
	}
	fmt.Fprintf(&s.b, `<polyline points="%s" fill="none" stroke="%s" stroke-width="%g"%s/>`+"\n", coordinates(points), hex(c), width, dash)
}

func (s *canvas) dot(c color.RGBA, at point, radius float64) {
	fmt.Fprintf(&s.b, `<circle cx="%.2f" cy="%.2f" r="%g" fill="%s"/>`+"\n", at.x, at.y, radius, hex(c))
}

// text writes at an angle in degrees, to the left.
func (s *canvas) text(text string, at point, size float64, a anchor, turn float64) {
	turned := ""
	if turn != 0 {
		turned = fmt.Sprintf(` transform="rotate(%g %.2f %.2f)"`, -turn, at.x, at.y)
	}
	fmt.Fprintf(&s.b, `<text x="%.2f" y="%.2f" font-size="%g" text-anchor="%s"%s>%s</text>`+"\n",
		at.x, at.y, size, []string{"start", "middle", "end"}[a], turned, html.EscapeString(text))
}

func (s *canvas) write(w io.Writer) error {
	_, err := io.WriteString(w, s.b.String()+"</svg>\n")
	return err
}

// textWidth estimates the width of a text, whose font is that of whoever shows the picture.
func textWidth(s string, size float64) float64 {
	const em = 0.56 // of a letter, on average
	return em * size * float64(utf8.RuneCountInString(s))
}
