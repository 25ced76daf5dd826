package results

import (
	"math"
	"math/rand/v2"
	"testing"
)

// Where all prompts are at the limit, one in twenty is below it for itself, and of twenty tables one has any. Prompts that are far below are found.
func TestNoiseIsRarelyBelow(t *testing.T) {
	const trials, prompts = 2000, 24
	rng := rand.New(rand.NewPCG(1, 2))
	table := func(slow int) (samples [][]float64) {
		for i := range prompts {
			at := math.Log(0.97)
			if i < slow {
				at = math.Log(0.8)
			}
			var ratios []float64
			for range 6 {
				ratios = append(ratios, math.Exp(at+0.05*rng.NormFloat64()))
			}
			samples = append(samples, ratios)
		}
		return samples
	}
	single, any, found := 0, 0, 0
	for range trials {
		each, together, err := Surely(table(0), 0.97)
		if err != nil {
			t.Fatal(err)
		}
		single += each
		if together > 0 {
			any++
		}
		_, together, _ = Surely(table(4), 0.97)
		found += together
	}
	if share := float64(single) / (trials * prompts); math.Abs(share-0.05) > 0.004 {
		t.Errorf("%.3f of prompts at the limit are below it, want 0.05", share)
	}
	if share := float64(any) / trials; share > 0.065 || share < 0.03 {
		t.Errorf("%.3f of tables have a prompt below it, want at most 0.05", share)
	}
	if mean := float64(found) / trials; mean < 3.2 || mean > 4.1 {
		t.Errorf("of 4 prompts at 0.8, %.2f are found", mean)
	}
	if each, together, err := Surely([][]float64{{0.9, 0.9}, {1, 1}}, 0.97); each != 1 || together != 1 || err != nil {
		t.Errorf("without noise: %d and %d below (%v), want 1", each, together, err)
	}
	for _, bad := range [][]float64{{1}, {1, 0}, {1, math.NaN()}} {
		if _, _, err := Surely([][]float64{bad}, 0.97); err == nil {
			t.Errorf("%v say something", bad)
		}
	}
	if got, err := Spread([]float64{0.9, 1, 1.1}); err != nil || math.Abs(got.Value-0.9966) > 1e-3 || got.Low > 0.78 || got.Low < 0.75 || got.High < 1.27 || got.High > 1.30 {
		t.Errorf("0.9, 1 and 1.1 have a mean of %v (%v)", got, err)
	}
}
