package micro

import (
	"math"
	"testing"
	"time"

	"talf/infer/experts"
)

// A pass is compared with what was expected of it just then: a machine whose speed changes from round to round
// does not make predictions look wrong, and one that is always wrong stays so.
func TestPredictionsAreComparedInTheirRound(t *testing.T) {
	for _, wrong := range []float64{1, 0.8, 1.25} {
		var c costs
		for round := range 60 {
			slow := 1.0
			if round%3 == 0 { // and the last round is one
				slow = 2.5
			}
			c.meter.Level, c.meter.N = 0, 0 // a new meter follows the machine at once
			c.meter.Add(&c.curve, 1, experts.Read{}, 1e-3*slow)
			c.compare(1, time.Duration(1e6*slow*wrong))
		}
		if _, off := c.middle(1); math.Abs(off-(1/wrong-1)) > 0.01 {
			t.Errorf("predictions are off by %+.3f, want %+.3f", off, 1/wrong-1)
		}
	}
}
