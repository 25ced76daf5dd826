package draft

import "math/bits"

// A curve is what a pass of n rows costs beside one of the fewest rows, learnt as
// passes are paid: a point for each power of two of rows, and straight lines
// between. Seconds are left to a meter, so that a longer context, or a machine that
// is busy with something else, leaves the curve as it is.
type curve struct {
	at   [12]point // by the length of n-1 in bits: 1, 2, 3..4, 5..8, …
	seen int       // passes
}

type point struct {
	rows, cost, w float64
	last          int // pass that was the last of about so many rows
}

const (
	ownStep  = 0.1  // part of a sample's deviation that its point takes over
	furthest = 0.3  // deviation, as a part of what is known, that a sample counts at most
	slopeOne = 0.1  // cost of one more row than one, where only that is known, in costs of one
	stale    = 1024 // passes after which a point is as good as unknown
)

func bucket(rows int) int { return min(bits.Len(uint(max(rows, 1)-1)), len(curve{}.at)-1) }

// add learns that a pass of so many rows cost as much, with so much trust that it
// was measured well, 0 to 1.
func (c *curve) add(rows int, cost, trust float64) {
	c.seen++
	n := bucket(rows)
	b := &c.at[n]
	b.last = c.seen
	if b.w == 0 {
		// The guess counts like a sample.
		known := c.cost(rows)
		if known == 0 {
			known = cost
		}
		*b = point{float64(rows), known * (1 + clip(cost/known-1, 2*furthest)/2), 1, c.seen}
		return
	}
	b.w++
	b.rows += max(ownStep, 1/b.w) * (float64(rows) - b.rows)
	if n > c.first() { // what costs 1 costs 1
		b.cost *= 1 + trust*max(ownStep, 1/b.w)*clip(cost/c.cost(rows)-1, furthest)
	}
}

func clip(x, most float64) float64 { return min(max(x, -most), most) }

func (c *curve) first() int {
	for i := range c.at {
		if c.at[i].w > 0 {
			return i
		}
	}
	return len(c.at)
}

// knows reports whether a pass of about so many rows was paid lately.
func (c *curve) knows(rows int) bool {
	b := &c.at[bucket(rows)]
	return b.w > 0 && c.seen-b.last < stale
}

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

// A meter is what a pass takes now, in seconds by the costs of a curve: a moving mean
// of late ones in which deviations are clipped, so that a pass during which the machine
// did something else moves it little.
type meter struct {
	level float64 // seconds of a pass that costs 1; 0 is unknown
	n     int     // passes of this sequence
}

const (
	meterStep = 0.15
	firstStep = 0.6 // most that the first pass of a sequence is believed to differ from those before
)

// add learns that a pass of so many rows took so many seconds, and tells c.
func (m *meter) add(c *curve, rows int, seconds float64) {
	if rows < 1 || !(seconds > 0) {
		return
	}
	if m.level == 0 {
		m.level = seconds
		if k := c.cost(rows); k > 0 {
			m.level /= k
		}
		c.add(rows, 1, 0)
		m.n = 1
		return
	}
	cost := seconds / m.level
	if !c.knows(rows) {
		c.add(rows, cost, 1)
		m.n++
		return
	}
	m.n++
	step, most := max(meterStep, 1/float64(m.n)), furthest
	if m.n <= 2 {
		most = firstStep
	}
	off := clip(cost/c.cost(rows)-1, most)
	c.add(rows, cost, 1-step)
	m.level *= 1 + step*off
}
