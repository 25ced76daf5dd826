package cost

import (
	"math/bits"

	"talf/infer/experts"
)

// A Curve is the cost of a pass of n rows relative to one of the fewest rows: a point for each
// power of two of rows, and straight lines between them. Seconds are a Meter's, so that a longer
// context, or a machine busy with other work, leaves the curve unchanged.
//
// If the target has experts, a point is the cost of a pass that reads as many of them as such passes
// usually do: less where the rows of a tree choose the same ones. Lines then bend as the number of
// different experts does, and what is not known yet follows from it.
type Curve struct {
	at   [12]point // by the length of n-1 in bits: 1, 2, 3..4, 5..8, …
	seen int       // passes
	mix  mixture
}

type point struct {
	rows, cost, w float64
	last          int     // the last pass of about as many rows
	read          float64 // experts
}

const (
	ownStep  = 0.1  // share of a sample's deviation that its point takes over
	furthest = 0.3  // largest relative deviation that a sample counts
	slopeOne = 0.1  // cost of a second row, in costs of the first, if only the first is known
	sure     = 4    // samples of which a mean is made
	stale    = 1024 // passes after which a point counts as unknown
)

func bucket(rows int) int { return min(bits.Len(uint(max(rows, 1)-1)), len(Curve{}.at)-1) }

// Add learns the cost of a pass; trust, from 0 to 1, says how well it was measured.
func (c *Curve) Add(rows int, x experts.Read, cost, trust float64) {
	if c.seen++; c.seen == 1 {
		c.mix = newMixture(x)
	}
	n := bucket(rows)
	b := &c.at[n]
	b.last = c.seen
	if b.w == 0 {
		// The guess counts like a sample.
		known := c.CostOf(rows, x)
		if known == 0 {
			known = cost
		}
		*b = point{float64(rows), known * (1 + clip(cost/known-1, 2*furthest)/2), 1, c.seen, c.read(rows, x)}
		return
	}
	usual, known := c.Read(rows), c.CostOf(rows, x)
	more := c.read(rows, x) - usual
	off := clip(cost/known-1, furthest)
	b.w++
	step := max(ownStep, 1/b.w)
	b.rows += step * (float64(rows) - b.rows)
	each := c.mix.each()
	if usual > 0 {
		c.mix.learn(more/known, off+each*more/known)
		more *= step * b.read / usual
		b.read += more
	}
	if n > c.first() { // what costs 1 costs 1
		b.cost = max(b.cost+each*more, b.cost/4) * (1 + trust*step*off) // as in CostOf, since each may be too much
	}
}

// CostOf returns the cost of a pass that reads these experts, 0 if nothing is known.
func (c *Curve) CostOf(rows int, x experts.Read) float64 {
	known := c.Cost(rows)
	if known == 0 {
		return 0
	}
	return max(known+c.mix.each()*(c.read(rows, x)-c.Read(rows)), known/4)
}

// read returns the experts that a pass read, as many as usual if it does not say.
func (c *Curve) read(rows int, x experts.Read) float64 {
	switch {
	case c.mix.guess == 0:
		return 0
	case x.Of == 0:
		return c.Read(rows)
	}
	return float64(x.Distinct)
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

// Sure reports whether passes of about this many rows were seen lately, and often enough for their
// mean to be known.
func (c *Curve) Sure(rows int) bool { return c.Knows(rows) && c.at[bucket(rows)].w >= sure }

// around returns the last known point at or below rows and the one before it, and the first above;
// those that are missing have no weight. Their costs never fall.
func (c *Curve) around(rows float64) (before, lo, hi point) {
	high := 0.0
	for _, p := range c.at {
		if p.w == 0 {
			continue
		}
		p.cost = max(p.cost, high)
		high = p.cost
		if p.rows > rows {
			return before, lo, p
		}
		before, lo = lo, p
	}
	return before, lo, hi
}

// Cost returns the cost of a pass of rows, 0 if nothing is known. It never falls as rows grow.
func (c *Curve) Cost(rows int) float64 {
	x := float64(rows)
	before, lo, hi := c.around(x)
	each := c.mix.each()
	switch {
	case lo.w == 0 && hi.w == 0:
		return 0
	case lo.w == 0:
		return max(hi.cost+each*(c.mix.beyond(&hi, x)-hi.read), hi.cost/hi.rows)
	case hi.w > 0:
		return lo.cost + (hi.cost-lo.cost)*c.mix.between(&lo, &hi, x)
	}
	// What passes cost beside their experts goes on as it came.
	rest := max(0, lo.cost-each*lo.read)
	slope := slopeOne * rest / max(lo.rows, 1)
	if before.w > 0 && lo.rows > before.rows {
		slope = max(slope/4, (rest-max(0, before.cost-each*before.read))/(lo.rows-before.rows))
	}
	return lo.cost + slope*(x-lo.rows) + each*max(0, c.mix.beyond(&lo, x)-lo.read)
}

// Read returns how many experts a pass of rows is expected to read in all layers, 0 if nothing is
// known.
func (c *Curve) Read(rows int) float64 {
	x := float64(rows)
	_, lo, hi := c.around(x)
	switch {
	case c.mix.guess == 0 || lo.w == 0 && hi.w == 0:
		return 0
	case lo.w == 0:
		return c.mix.beyond(&hi, x)
	case hi.w == 0:
		return max(lo.read, c.mix.beyond(&lo, x))
	}
	return lo.read + (hi.read-lo.read)*c.mix.way(&lo, &hi, x)
}
