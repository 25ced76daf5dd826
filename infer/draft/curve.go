package draft

import "math/bits"

// A curve is what a pass of n rows costs, learnt as passes are paid: the mean
// cost of each power of two of rows, and straight lines between.
//
// A machine that is busy with something else is slower at all sizes, so that every
// sample also moves the whole curve a little.
type curve struct {
	at   [12]point // by the length of n-1 in bits: 1, 2, 3..4, 5..8, …
	seen int
}

type point struct{ rows, cost, w float64 }

const (
	ownStep  = 0.2  // part of a sample's deviation that its own point takes over
	allStep  = 0.05 // and all points
	dearest  = 3    // times a known cost that a sample counts at most
	slopeOne = 0.1  // cost of one more row than one, where only that is known, in costs of one
)

func bucket(rows int) int { return min(bits.Len(uint(max(rows, 1)-1)), len(curve{}.at)-1) }

func (c *curve) add(rows int, cost float64) {
	if rows < 1 || !(cost > 0) {
		return
	}
	b := &c.at[bucket(rows)]
	c.seen++
	if b.w == 0 {
		*b = point{float64(rows), cost, 1}
		return
	}
	known := c.cost(rows)
	cost = min(cost, dearest*known)
	f := 1 + allStep*(cost/known-1)
	for i := range c.at {
		c.at[i].cost *= f
	}
	// Means while there are few samples, then a running one.
	b.w++
	step := max(ownStep, 1/b.w)
	b.rows += step * (float64(rows) - b.rows)
	b.cost += step * (cost - b.cost)
}

// knows reports whether a pass of about so many rows was paid.
func (c *curve) knows(rows int) bool { return c.at[bucket(rows)].w > 0 }

// cost returns what a pass of so many rows costs; 0 where nothing is known. It
// never falls with the rows.
func (c *curve) cost(rows int) float64 {
	x := float64(rows)
	var lo, before point // the last point at or below x, and the one before
	high := 0.0
	for _, p := range c.at {
		if p.w == 0 {
			continue
		}
		p.cost = max(p.cost, high)
		high = p.cost
		if p.rows > x {
			if lo.w == 0 {
				return p.cost
			}
			return lo.cost + (p.cost-lo.cost)*(x-lo.rows)/(p.rows-lo.rows)
		}
		before, lo = lo, p
	}
	if lo.w == 0 {
		return 0
	}
	slope := slopeOne * lo.cost / max(lo.rows, 1)
	if before.w > 0 && lo.rows > before.rows {
		slope = max(slope/4, (lo.cost-before.cost)/(lo.rows-before.rows))
	}
	return lo.cost + slope*(x-lo.rows)
}
