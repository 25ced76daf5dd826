package draft

import (
	"math"
	"math/rand/v2"
	"testing"
)

func evidences() (ev [origins]evidence) {
	for o := range ev {
		ev[o].cell = -1
	}
	return ev
}

func TestASourceIsBelievedUntilThereIsEvidence(t *testing.T) {
	c := &calibration{fuseConstants: fitted}
	for _, q := range []float64{0.001, 0.1, 0.5, 0.9, 0.99} {
		ev := evidences()
		ev[fromHead] = c.evidence(fromHead, 1, 0, q)
		if p := c.probability(&ev, 1<<fromHead); math.Abs(p-q) > 1e-6 {
			t.Errorf("probability %v of an estimate of %v", p, q)
		}
	}
}

// A source with wrong estimates is corrected at the depth and rank where they are wrong; the
// agreement of two sources gets the weight that it proves to deserve.
func TestCalibrationApproachesWhatVerdictsSay(t *testing.T) {
	c := &calibration{fuseConstants: fitted}
	rng := rand.New(rand.NewPCG(1, 1))
	estimate := func(both bool) float64 {
		ev := evidences()
		ev[fromHead] = c.evidence(fromHead, 2, 1, 0.6)
		know := uint8(1 << fromHead)
		if both {
			ev[fromContext] = c.evidence(fromContext, 2, 0, 0.3)
			know |= 1 << fromContext
		}
		p := c.probability(&ev, know)
		truth := 0.2
		if both {
			truth = 0.9
		}
		c.learn(&ev, know, rng.Float64() < truth)
		return p
	}
	var alone, both float64
	const last = 1000
	for i := range 6000 {
		a, b := estimate(false), estimate(true)
		if i >= 6000-last {
			alone, both = alone+a/last, both+b/last
		}
	}
	if math.Abs(alone-0.2) > 0.06 || math.Abs(both-0.9) > 0.06 {
		t.Errorf("learned %.3f and %.3f, want 0.2 and 0.9", alone, both)
	}
	ev := evidences()
	ev[fromHead] = c.evidence(fromHead, 1, 0, 0.6)
	if ev[fromHead].odds != float32(logit(0.6)) {
		t.Errorf("other depths and ranks are given %v, want the source's own %v", ev[fromHead].odds, logit(0.6))
	}
}
