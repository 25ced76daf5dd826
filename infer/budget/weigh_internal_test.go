package budget

import (
	"math"
	"testing"
	"time"

	"talf/infer"
	"talf/infer/draft/cost"
	"talf/infer/experts"
)

// A drafter that works in one of 32 rounds is charged what it took in it, and one that is interrupted once is not charged for that.
func TestADrafterThatSitsOutMostRoundsIsChargedWhatItTook(t *testing.T) {
	for _, x := range []struct {
		name        string
		interrupted int // the round in which it was, if not 0
		factor      float64
	}{{"calm", 0, 1}, {"interrupted", 32 * 400, 1.1}, {"interrupted while it sat out", 32*400 + 7, 1.1}} {
		var m cost.Model
		for range 10 {
			m.AddTarget(1, experts.Read{}, 1e-4)
		}
		u := New(&m, 0)
		b := &infer.Bid{Method: "a"}
		const rounds, work = 32 * 600, 12 * time.Microsecond
		for i := range rounds {
			*b = infer.Bid{Method: "a", State: b.State, Keep: b.Keep[:0]}
			u.Begin([]*infer.Bid{b})
			b.Rows, b.Slept = 1, i%32 != 0
			if !b.Slept {
				b.Grown = work
			}
			if i == x.interrupted && i > 0 {
				b.Grown = 10 * time.Millisecond
			}
			u.Cut([]*infer.Bid{b})
			u.Learn(b, []int32{1})
			u.End(&infer.Pass{Trees: 1, Rows: 1})
		}
		got := u.of(b).net[u.load()].Value(0, 0)
		want := -work.Seconds() / 1e-4 / 32 // a plain round gives one token in 1e-4 s
		if r := got / want; math.Abs(math.Log(r)) > math.Log(x.factor)+0.15 {
			t.Errorf("%s: a round is charged %.5f tokens, want about %.5f", x.name, -got, -want)
		}
	}
}
