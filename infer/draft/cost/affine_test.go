package cost

import (
	"math"
	"testing"
)

func TestALineIsLearnt(t *testing.T) {
	for _, x := range []struct {
		name    string
		samples [][2]float64
		a, b    float64
	}{
		{"a line", [][2]float64{{1, 5}, {2, 7}, {4, 11}}, 3, 2},
		{"one place", [][2]float64{{3, 5}, {3, 5}}, 5, 0},
		{"costs that fall", [][2]float64{{1, 5}, {2, 3}, {1, 5}, {2, 3}}, 3.98, 0},
		{"nothing at no rows", [][2]float64{{1, 1}, {2, 4}, {1, 1}, {2, 4}}, 0, 1.67},
	} {
		var f Affine
		for _, s := range x.samples {
			f.Add(s[0], s[1])
		}
		a, b, ok := f.Fit()
		if !ok || math.Abs(a-x.a) > 0.02 || math.Abs(b-x.b) > 0.02 {
			t.Errorf("%s: %.3f + %.3f·x, %v; want %.2f + %.2f·x", x.name, a, b, ok, x.a, x.b)
		}
	}
	if _, _, ok := new(Affine).Fit(); ok {
		t.Error("a line without samples")
	}
}

// One sample that took a hundred times as long counts like one of four times.
func TestALineSurvivesAnInterruption(t *testing.T) {
	var f Affine
	for i := range 20 {
		f.Add(float64(1+i%4), 10+float64(i%4))
	}
	f.Add(2, 1000)
	a, b, _ := f.Fit()
	if got := a + 2*b; got > 15 {
		t.Errorf("2 cost %.1f after an interruption, want 15 at most", got)
	}
}
