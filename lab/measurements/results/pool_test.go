package results

import (
	"math"
	"slices"
	"testing"
)

func TestRatiosArePooledAndComparedByPrompt(t *testing.T) {
	a := Shares{{{4, 2}, {9, 3}, {2, 2}}, {{6, 2}, {3, 3}, {8, 2}}}
	b := Shares{{{2, 2}, {6, 3}, {0, 2}}, {{4, 2}, {0, 3}, {6, 2}}} // one less in each pass
	if got := a.Pooled(); got.Value != 32.0/14 || got.Low > got.Value || got.High < got.Value || got.Low == got.High {
		t.Errorf("pooled %+v, want %v", got, 32.0/14)
	}
	// Every prompt differs by one, so does every sample of them.
	if got := a.Minus(b); math.Abs(got.Value-1) > 1e-12 || math.Abs(got.Low-1) > 1e-12 || math.Abs(got.High-1) > 1e-12 {
		t.Errorf("difference %+v, want 1 without an interval", got)
	}
	if got := a.Minus(a); got != (Interval{}) {
		t.Errorf("difference from itself %+v", got)
	}
	if got := a.BySeed(Shares{{{0, 2}, {0, 3}, {0, 2}}, {{0, 2}, {0, 3}, {0, 2}}}); !slices.Equal(got, []float64{15.0 / 7, 17.0 / 7}) {
		t.Errorf("by seed %v", got)
	}
	if err := (Shares{{{1, 1}}, {{1, 1}, {1, 1}}}).Check(); err == nil {
		t.Error("seeds with other prompts are accepted")
	}
	if err := (Shares{{{1, 1}}, {{0, 0}}}).Check(); err == nil {
		t.Error("a seed without passes is accepted")
	}
}
