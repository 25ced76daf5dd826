package plot_test

import (
	"bytes"
	"image/png"
	"math"
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
