package student

import (
	"math"
	"testing"
)

// Tables of Student's t: one-sided 5%, 2.5% and 0.5%.
func TestStudentsT(t *testing.T) {
	for free, want := range map[int][3]float64{
		1: {6.3138, 12.7062, 63.6567}, 2: {2.9200, 4.3027, 9.9248}, 5: {2.0150, 2.5706, 4.0321}, 6: {1.9432, 2.4469, 3.7074}, 30: {1.6973, 2.0423, 2.7500},
	} {
		for i, p := range []float64{0.05, 0.025, 0.005} {
			if got := Quantile(p, free); math.Abs(got-want[i]) > 1e-3*want[i] {
				t.Errorf("with %d degrees of freedom, %.3f exceed %.4f, want %.4f", free, p, got, want[i])
			}
			if got := Tail(-want[i], free); math.Abs(got-(1-p)) > 1e-4 {
				t.Errorf("with %d degrees of freedom, %.4f exceed %.4f, want %.4f", free, got, -want[i], 1-p)
			}
		}
	}
}
