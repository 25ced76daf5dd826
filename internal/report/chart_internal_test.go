package report

import (
	"math"
	"math/rand/v2"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"talf/train"
)

func TestTicksAreRound(t *testing.T) {
	for _, c := range []struct {
		lo, hi float64
		want   []float64
	}{
		{0, 1, []float64{0, 0.2, 0.4, 0.6000000000000001, 0.8, 1}},
		{0, 97, []float64{0, 20, 40, 60, 80}},
		{-3, 3, []float64{-2, 0, 2}},
		{5, 5, []float64{5}},
	} {
		if got := ticks(c.lo, c.hi, 5); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%v to %v: %v, want %v", c.lo, c.hi, got, c.want)
		}
	}
}

// Whatever the values, points are where the axes say, inside the drawing.
func TestPointsLieInsideTheDrawing(t *testing.T) {
	place := regexp.MustCompile(`cx="([^"]*)" cy="([^"]*)"`)
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 1))
		c := chart{LogX: seed%2 == 0, FromZero: seed%3 == 0}
		if seed%5 == 0 {
			c.MaxY = 1
		}
		points := 0
		for i := range 1 + rng.IntN(3) {
			l := line{Name: `"<`, Colour: i, Run: -1, Points: true, Band: seed%7 == 0}
			for k := range rng.IntN(20) {
				y := rng.NormFloat64() * math.Pow(10, float64(rng.IntN(8)-4))
				switch rng.IntN(9) {
				case 0:
					y = math.NaN()
				case 1:
					y = math.Inf(1)
				case 2:
					y = math.Copysign(math.MaxFloat64, y) // twice of which is infinite
				default:
					points++
				}
				l.X, l.Y = append(l.X, float64(k+1)), append(l.Y, y)
				l.Low, l.High = append(l.Low, y-1), append(l.High, y+1)
			}
			c.Lines = append(c.Lines, l)
		}
		svg := string(c.SVG())
		if (svg == "") != (points == 0) {
			t.Fatalf("seed %d: a drawing of %d points: %q", seed, points, svg)
		}
		if strings.Contains(svg, "NaN") || strings.Contains(svg, "Inf") || strings.Contains(svg, `"<`) {
			t.Errorf("seed %d: %s", seed, svg)
		}
		found := place.FindAllStringSubmatch(svg, -1)
		if len(found) != points {
			t.Errorf("seed %d: %d points, want %d", seed, len(found), points)
		}
		for _, m := range found {
			x, _ := strconv.ParseFloat(m[1], 64)
			y, _ := strconv.ParseFloat(m[2], 64)
			if !(x >= left-0.1 && x <= width-right+0.1 && y >= 0 && y <= height-bottom+0.1) {
				t.Errorf("seed %d: a point at %v, %v", seed, x, y)
			}
		}
	}
}

func TestCurvesKeepMeansAndStages(t *testing.T) {
	var steps []train.Progress
	for i := range 500 {
		steps = append(steps, train.Progress{Step: i + 1, Stage: i / 251, Loss: float64(i % 5)})
	}
	l := line{}.binned(steps, lossOf, true)
	if len(l.X) > mostBins+1 {
		t.Fatalf("%d points", len(l.X))
	}
	// Bins of five steps: mean 2, the middle 90% of 0, 1, 2, 3, 4. The stage ends within a bin.
	if l.Y[0] != 2 || l.X[0] != 3 || math.Abs(l.Low[0]-0.2) > 1e-12 || math.Abs(l.High[0]-3.8) > 1e-12 {
		t.Errorf("the first point is %v at %v [%v, %v]", l.Y[0], l.X[0], l.Low[0], l.High[0])
	}
	if l.X[50] != 251 || l.Y[50] != 0 || l.X[51] != 254 {
		t.Errorf("points around the end of the stage: %v, %v and %v", l.X[50], l.Y[50], l.X[51])
	}
}
