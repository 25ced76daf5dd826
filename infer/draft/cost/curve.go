package cost

import "math/bits"

// A Curve is the cost of a pass of n rows relative to one of the fewest rows: a point for each
// power of two of rows, and straight lines between them. Seconds are a Meter's, so that a longer
// context, or a machine busy with other work, leaves the curve unchanged.
type Curve struct {
	at   [12]point // by the length of n-1 in bits: 1, 2, 3..4, 5..8, …
	seen int       // passes
}

type point struct {
	rows, cost, w float64
	last          int // the last pass of about as many rows
}

const (
	ownStep  = 0.1  // share of a sample's deviation that its point takes over
	furthest = 0.3  // largest relative deviation that a sample counts
	slopeOne = 0.1  // cost of a second row, in costs of the first, if only the first is known
	stale    = 1024 // passes after which a point counts as unknown
)

func bucket(rows int) int { return min(bits.Len(uint(max(rows, 1)-1)), len(Curve{}.at)-1) }

// Add learns the cost of a pass; trust, from 0 to 1, says how well it was measured.
func (c *Curve) Add(rows int, cost, trust float64) {
	c.seen++
	n := bucket(rows)
	b := &c.at[n]
	b.last = c.seen
	if b.w == 0 {
		// The guess counts like a sample.
		known := c.Cost(rows)
		if known == 0 {
			known = cost
		}
		*b = point{float64(rows), known * (1 + clip(cost/known-1, 2*furthest)/2), 1, c.seen}
		return
	}
	b.w++
	b.rows += max(ownStep, 1/b.w) * (float64(rows) - b.rows)
	if n > c.first() { // what costs 1 costs 1
		b.cost *= 1 + trust*max(ownStep, 1/b.w)*clip(cost/c.Cost(rows)-1, furthest)
	}
}

func clip(x, most float64) float64 { return min(max(x, -most), most) }

func (c *Curve) first() int {
	for i := range c.at {
		if c.at[i].w > 0 {
			return i
		}
	}
	return len(c.at)
}

// Knows reports whether a pass of about this many rows was seen lately.
func (c *Curve) Knows(rows int) bool {
	b := &c.at[bucket(rows)]
	return b.w > 0 && c.seen-b.last < stale
}

// Cost returns the cost of a pass of rows, 0 if nothing is known. It never falls as rows grow.
func (c *Curve) Cost(rows int) float64 {
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
