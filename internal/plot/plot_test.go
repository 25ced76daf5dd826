package plot_test

import (
	"bytes"
	"image/png"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"talf/internal/plot"
)

func lines() plot.Figure {
	f := plot.Figure{Title: "tau by size", X: "nodes", Y: "tau"}
	for x, y := range map[float64]float64{1: 1, 2: 1.6} {
		f.AddError("salf", x, y, 0.1)
		f.Add("beam", x, y+0.5)
	}
	return f
}

func draw(t *testing.T, write func(b *bytes.Buffer) error) string {
	t.Helper()
	var b bytes.Buffer
	if err := write(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestFiguresNameTheirSeries(t *testing.T) {
	cost := plot.Figure{Title: "cost", LogX: true, FromZero: true, Series: []plot.Series{{Name: "bf16", X: []float64{1, 8, 60}, Y: []float64{1, 1.2, 3}}}}
	bars := plot.Figure{Title: "by set", Groups: []string{"maths", "code"}, Series: []plot.Series{{Name: "salf", Y: []float64{2, math.NaN()}}}}
	solo := plot.Figure{Title: "by method", Series: []plot.Series{{Name: "ar", Y: []float64{1}}, {Name: "talf", Y: []float64{2}}}}
	got := draw(t, func(b *bytes.Buffer) error {
		return plot.Write(b, "x.SVG", []plot.Figure{lines(), cost, bars, solo})
	})
	for _, want := range []string{"<svg", "tau by size", ">salf<", ">beam<", ">60<", ">maths<", ">code<", ">talf<"} {
		if !strings.Contains(got, want) {
			t.Errorf("the picture lacks %q", want)
		}
	}
	if strings.Contains(got, "NaN") {
		t.Error("the picture has coordinates that are not numbers")
	}
}

// A series that is left out keeps its colour, so that figures side by side agree.
func TestEmptySeriesKeepTheirColour(t *testing.T) {
	f := plot.Figure{Series: []plot.Series{{Name: "ar"}, {Name: "salf", X: []float64{1, 2}, Y: []float64{1, 2}}}}
	got := draw(t, func(b *bytes.Buffer) error { return plot.WriteRow(b, "x.svg", []plot.Figure{f, f}) })
	if strings.Contains(got, "#999999") || !strings.Contains(got, "#E69F00") || strings.Contains(got, ">ar<") {
		t.Error("the second series does not have the second colour, or the first one is named")
	}
}

func TestPicturesHaveTheSizeOfTheirLayout(t *testing.T) {
	size := func(write func(b *bytes.Buffer) error) (w, h int) {
		c, err := png.DecodeConfig(strings.NewReader(draw(t, write)))
		if err != nil {
			t.Fatal(err)
		}
		return c.Width, c.Height
	}
	two := []plot.Figure{lines(), lines()}
	if w, h := size(func(b *bytes.Buffer) error { return plot.Write(b, "x.png", two) }); w != 7*144 || h < 1036 || h > 1037 {
		t.Errorf("below one another: %d × %d", w, h)
	}
	if w, h := size(func(b *bytes.Buffer) error { return plot.WriteRow(b, "x.png", two) }); w != 9*144 || h > 519 {
		t.Errorf("side by side: %d × %d", w, h)
	}
}

// Axes are marked at round values, also around zero and where all values are the same.
func TestAxesAreMarkedAtRoundValues(t *testing.T) {
	for _, c := range []struct {
		y    []float64
		want []string
		zero bool
	}{
		{[]float64{1, 5}, []string{">0<", ">1<", ">5<"}, true},
		{[]float64{-0.21, 0.19}, []string{">-0.2<", ">-0.1<", ">0<", ">0.1<"}, false},
		{[]float64{7, 7}, []string{">6.6<", ">7<", ">7.4<"}, false},
		{[]float64{12000, 48000}, []string{">20000<", ">40000<"}, false},
		{[]float64{math.NaN(), math.Inf(1)}, []string{">0<", ">1<"}, false},
	} {
		f := plot.Figure{FromZero: c.zero, Series: []plot.Series{{Name: "s", X: []float64{100, 200}, Y: c.y}}}
		got := draw(t, func(b *bytes.Buffer) error { return plot.Write(b, "x.svg", []plot.Figure{f}) })
		for _, want := range c.want {
			if !strings.Contains(got, want) {
				t.Errorf("%v: no %s:\n%s", c.y, want, got)
			}
		}
		if strings.Contains(got, ">-0<") || strings.Contains(got, "NaN") || strings.Contains(got, "Inf") {
			t.Errorf("%v: a tick or a place is no number:\n%s", c.y, got)
		}
	}
}

// Both formats draw the same: ink of a bitmap is where SVG has a bar, a dot and letters, and nowhere
// beyond the axis that ends the values.
func TestBitmapsHaveInkWhereTheVectorsHaveIt(t *testing.T) {
	f := plot.Figure{Title: "τ", MaxY: 1, FromZero: true, Series: []plot.Series{{Name: "s", X: []float64{1, 2, 3}, Y: []float64{0.5, 9, 0.5}}}}
	vectors := draw(t, func(b *bytes.Buffer) error { return plot.Write(b, "x.svg", []plot.Figure{f}) })
	img, err := png.Decode(strings.NewReader(draw(t, func(b *bytes.Buffer) error { return plot.Write(b, "x.png", []plot.Figure{f}) })))
	if err != nil {
		t.Fatal(err)
	}
	ink := func(x, y float64) bool {
		r, g, b, _ := img.At(int(2*x), int(2*y)).RGBA()
		return r != 0xffff || g != 0xffff || b != 0xffff
	}
	dots := regexp.MustCompile(`<circle cx="([0-9.]+)" cy="([0-9.]+)"`).FindAllStringSubmatch(vectors, -1)
	if len(dots) != 4 { // the points and the one in the legend
		t.Fatalf("%d dots:\n%s", len(dots), vectors)
	}
	for _, d := range dots {
		x, _ := strconv.ParseFloat(d[1], 64)
		y, _ := strconv.ParseFloat(d[2], 64)
		if !ink(x, y) {
			t.Errorf("no ink at %v, %v", x, y)
		}
	}
	title := regexp.MustCompile(`<text x="([0-9.]+)" y="([0-9.]+)" font-size="12"`).FindStringSubmatch(vectors)
	x, _ := strconv.ParseFloat(title[1], 64)
	y, _ := strconv.ParseFloat(title[2], 64)
	n := 0
	for dx := -6.0; dx < 6; dx += 0.5 {
		for dy := -9.0; dy < 1; dy += 0.5 {
			if ink(x+dx, y+dy) {
				n++
			}
		}
	}
	if n < 20 {
		t.Errorf("the title has %d inked pixels", n)
	}
	if ink(2, 2) || ink(x+60, y) {
		t.Error("ink where nothing is")
	}
}

func TestFiguresThatCannotBeDrawn(t *testing.T) {
	short := plot.Figure{Series: []plot.Series{{Name: "short", X: []float64{1}, Y: []float64{1, 2}}}}
	for _, c := range []struct {
		name    string
		figures []plot.Figure
		want    string
	}{
		{"x.svg", nil, "nothing to draw"},
		{"x.pdf", []plot.Figure{lines()}, ".png or .svg"},
		{"x.svg", []plot.Figure{short}, "short: 1 values of x, 2 of y"},
	} {
		for _, write := range []func(b *bytes.Buffer) error{
			func(b *bytes.Buffer) error { return plot.Write(b, c.name, c.figures) },
			func(b *bytes.Buffer) error { return plot.WriteRow(b, c.name, c.figures) },
		} {
			var b bytes.Buffer
			if err := write(&b); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: error %v, want %q", c.name, err, c.want)
			}
		}
	}
}
