package cost

import (
	"math"

	"talf/infer/experts"
)

// A Meter is how long a pass takes now, in seconds per unit of a Curve's cost: a moving mean of
// recent passes with deviations clipped, so that a pass during which the machine did other work
// moves it little.
type Meter struct {
	Level float64 // seconds of a pass that costs 1; 0 if unknown
	N     int     // passes of this sequence
}

const (
	meterStep = 0.15
	firstStep = 0.6 // largest deviation of a sequence's first pass, as a logarithm
)

// Add takes the seconds that a pass of rows took, which read these experts, and updates c.
func (m *Meter) Add(c *Curve, rows int, x experts.Read, seconds float64) {
	if rows < 1 || !(seconds > 0) {
		return
	}
	if m.Level == 0 {
		m.Level = seconds
		k := c.CostOf(rows, x)
		if k == 0 {
			k = 1
		}
		m.Level /= k
		c.Add(rows, x, k, 0)
		m.N = 1
		return
	}
	cost := seconds / m.Level
	if !c.Knows(rows) {
		c.Add(rows, x, cost, 1)
		m.N++
		return
	}
	m.N++
	step, most := max(meterStep, 1/float64(m.N)), furthest
	if m.N <= 2 {
		most = firstStep
	}
	off := c.deviation(rows, cost/c.CostOf(rows, x), most)
	// The pass tells of the level and of its size's point, as much of each as that is uncertain.
	share := step / (1 + (1-step)*c.loose(rows))
	c.Add(rows, x, cost, 1-step)
	m.Level *= math.Exp(share * off)
}
