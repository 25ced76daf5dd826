package auto

import (
	"math"
	"math/rand/v2"
	"testing"
)

// A curve never falls, whatever was measured, and comes to what passes cost.
func TestCurvesNeverFallAndComeToWhatPassesCost(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	var c curve
	cost := func(rows int) float64 { return 1 + 0.1*float64(max(0, rows-4)) }
	for range 3000 {
		rows := 1 + rng.IntN(40)
		x := cost(rows) * math.Exp(0.1*rng.NormFloat64())
		if rng.IntN(40) == 0 {
			x *= 20 // the machine did something else
		}
		c.add(rows, x)
		was := 0.0
		for n := 1; n < 100; n++ {
			if now := c.of(n); now < was {
				t.Fatalf("%d rows cost %v, one fewer %v", n, now, was)
			} else {
				was = now
			}
		}
	}
	for rows := 1; rows <= 40; rows++ {
		if got := c.of(rows); math.Abs(got/cost(rows)-1) > 0.15 {
			t.Errorf("%d rows cost %.2f, want about %.2f", rows, got, cost(rows))
		}
	}
}

// What was interrupted once is not believed, and what has not run for long is unknown.
func TestNothingIsBelievedForGood(t *testing.T) {
	var c curve
	c.add(1, 1)
	c.add(2, 100)
	if x := c.of(2); x > 2.2 {
		t.Errorf("two rows cost %v after one measure, and one row costs 1", x)
	}
	for range stale + 1 {
		c.add(1, 1)
	}
	if x := c.of(2); x > 1.1 {
		t.Errorf("two rows cost %v long after that", x)
	}
	c = curve{}
	c.add(1, 50) // the first pass maps the weights
	c.add(1, 1)
	if x := c.of(1); x > 1 {
		t.Errorf("one row costs %v", x)
	}
	c.row.add(0.2)
	if x := c.of(20); x != 4 {
		t.Errorf("20 rows cost %v before they ran, want what they do in a prompt", x)
	}
}

func TestSizesAreInOrder(t *testing.T) {
	was := 0
	for n := 1; n < 1<<16; n++ {
		at := size(n)
		if at < was || at > was+1 || n <= 4 && at != n {
			t.Fatalf("%d rows have size %d, one fewer %d", n, at, was)
		}
		was = at
	}
}
