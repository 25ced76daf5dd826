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
		slower    float64 // a third of the passes take so many times as long
	}{{"a quiet machine", 0, 0, 1}, {"a busy one", 0.25, 8e-3, 1}, {"one that gets slower", 0, 0, 3}} {
		rng := rand.New(rand.NewPCG(5, 7))
		var c costs
		slow := 1.0
		pass := func(prompts int, more float64) float64 {
			s := slow * (base + row*float64(prompts)) * math.Exp(0.05*rng.NormFloat64())
			if rng.Float64() < x.share {
				s += x.by
			}
			d := time.Duration((s + more) * 1e9)
			c.add(&infer.Pass{Rows: 1 + prompts, Prompt: prompts, Trees: 1, Verify: d, Took: d + 10*time.Microsecond})
			return s / slow
		}
		for range 100 {
			pass(0, 0)
		}
		conf := Default()
		var took []float64
		var rows []int
		held, best := 0, (conf.Stretch-1)*base/row
		for i := range 600 {
			if slow = 1; i >= 200 && i < 400 {
				slow = x.slower
			}
			n, hold := c.budget(&conf, 256)
			n--
			if hold {
				pass(0, 0)
				held++
				continue
			}
			if i == 0 {
				pass(n, 12e-3)
				continue
			}
			took, rows = append(took, pass(n, 0)), append(rows, n)
		}
		slices.Sort(took)
		slices.Sort(rows)
		got, low, high := took[len(took)/2]/base, rows[len(rows)/20], rows[len(rows)*19/20]
		t.Logf("%s: %.2f times as long, %d to %d rows of prompts where %.0f are best, %d passes of 600 without", x.name, got, low, high, best, held)
		if math.Abs(got-conf.Stretch) > 0.3 {
			t.Errorf("%s: the median pass with prompts takes %.2f times as long, want about %.1f", x.name, got, conf.Stretch)
		}
		if float64(low) < 0.7*best || float64(high) > 1.4*best || held > 600/mostMixed {
			t.Errorf("%s: %d to %d rows of prompts, want about %.0f; %d passes of 600 had none", x.name, low, high, best, held)
		}
	}
}
