package loop

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"talf/infer"
)

// The median pass that reads prompts takes about as many times as long as one that does not as
// Stretch says, also if the machine interrupts every fourth pass, the first touches cold memory, and
// no pass comes without prompts for long: rows of prompts are charged neither for interruptions
// nor for their own small number.
func TestPassesWithPromptsTakeAsLongAsStretchAllows(t *testing.T) {
	const base, row = 1.4e-3, 1.5e-4
	for _, x := range []struct {
		name      string
		share, by float64 // of passes that are interrupted, seconds
	}{{"a quiet machine", 0, 0}, {"a busy one", 0.25, 8e-3}} {
		rng := rand.New(rand.NewPCG(5, 7))
		var c costs
		pass := func(prompts int, more float64) float64 {
			s := (base + row*float64(prompts)) * math.Exp(0.05*rng.NormFloat64())
			if rng.Float64() < x.share {
				s += x.by
			}
			d := time.Duration((s + more) * 1e9)
			c.add(&infer.Pass{Rows: 1 + prompts, Prompt: prompts, Trees: 1, Verify: d, Took: d + 10*time.Microsecond})
			return s
		}
		for range 100 {
			pass(0, 0)
		}
		conf := Default()
		var took []float64
		for i := range 600 {
			n := c.budget(&conf, 256) - 1
			if i == 0 {
				pass(n, 12e-3)
				continue
			}
			took = append(took, pass(n, 0))
		}
		slices.Sort(took)
		got := took[len(took)/2] / base
		t.Logf("%s: %.2f times as long", x.name, got)
		if math.Abs(got-conf.Stretch) > 0.3 {
			t.Errorf("%s: the median pass with prompts takes %.2f times as long, want about %.1f", x.name, got, conf.Stretch)
		}
	}
}
