package cost

import (
	"math"
	"math/bits"

	"talf/infer/experts"
)

// A Curve is the cost of a pass of n rows, in about those of the first pass that it was given: a point
// for each power of two of rows, and straight lines between them. Seconds are a Meter's, so that a
// longer context, or a machine busy with other work, leaves the curve unchanged.
//
// If the target has experts, a point is the cost of a pass that reads as many of them as such passes
// usually do: less where the rows of a tree choose the same ones. Lines then bend as the number of
// different experts does, and what is not known yet follows from it.
type Curve struct {
	at   [12]point // by the length of n-1 in bits: 1, 2, 3..4, 5..8, …
	seen int       // passes
	ties int       // of these, those of the fewest rows
	mix  mixture

	// Costs since the last pass: a round asks for the same few many times.
	told [64]float64 // by rows
	have uint64      // of these, those that are there
}

type point struct {
	rows, cost, w float64
	last          int     // the last pass of about as many rows
	tie           int     // the Curve's ties then, and
	since         int     // passes of about as many rows since
	read          float64 // experts
}

const (
	furthest = 0.3  // largest deviation that a sample counts, as a logarithm
	drift    = 0.11 // least doubt of a point, since the curve may change
	unsure   = 0.25 // what the first pass of a size weighs beside a later one: it also maps memory
	slopeOne = 0.1  // cost of a second row, in costs of the first, if only the first is known
	sure     = 4    // samples of which a mean is made
	stale    = 1024 // passes after which a point counts as unknown
)

func bucket(rows int) int { return min(bits.Len(uint(max(rows, 1)-1)), len(Curve{}.at)-1) }

// Add learns the cost of a pass; trust, from 0 to 1, says how well it was measured.
func (c *Curve) Add(rows int, x experts.Read, cost, trust float64) {
	c.add(rows, x, cost, trust)
	c.have = 0
}

func (c *Curve) add(rows int, x experts.Read, cost, trust float64) {
	if c.seen++; c.seen == 1 {
		c.mix = newMixture(x)
	}
	n := bucket(rows)
	if n <= c.first() {
		c.ties++
	}
	b := &c.at[n]
	b.last = c.seen
	if b.tie != c.ties {
		b.tie, b.since = c.ties, 0
	}
	b.since++
	if b.w == 0 {
		known := c.CostOf(rows, x)
		if known == 0 {
			known = cost
		}
		// A guess that is exceeded counts like a sample. Neither says much.
		if cost > known {
			cost = known * (1 + min(cost/known-1, 2*furthest)/2)
		}
		*b = point{rows: float64(rows), cost: max(cost, known/4), w: unsure, last: c.seen, tie: c.ties, read: c.read(rows, x)}
		return
	}
	usual, known := c.Read(rows), c.CostOf(rows, x)
	more := c.read(rows, x) - usual
	off := c.deviation(rows, cost/known, furthest)
	step := trust * c.doubt(rows)
	step /= 1 + step
	b.w++
	// The point moves along the curve, and then off it.
	to := b.rows + step*(float64(rows)-b.rows)
	along, further := c.cost(to)/c.cost(b.rows), c.reads(to)-c.reads(b.rows)
	b.rows, b.cost, b.read = to, b.cost*along, b.read+further
	each := c.mix.each()
	if usual > 0 {
		c.mix.learn(more/known, off+each*more/known)
		more *= step * b.read / usual
		b.read += more
	}
	b.cost = max(b.cost+each*more, b.cost/4) * math.Exp(step*off) // as in CostOf, since each may be too much
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

// doubt returns how uncertain the cost of passes of about this many rows is: its variance, in those of
// one pass's deviation. The point of the fewest rows is learnt like the others, or what its first pass took
// by chance would be part of all later comparisons; but it is learnt once, since where every point moves a
// slower machine looks like another curve. While it is the only one there is nothing to compare.
func (c *Curve) doubt(rows int) float64 {
	n := bucket(rows)
	if n > c.first() {
		return max(drift, 1/c.at[n].w)
	}
	for i := range c.at {
		if i != n && c.at[i].w > 0 {
			return 1 / c.at[n].w
		}
	}
	return 0
}

// loose is doubt as it was before the passes since the last one of the fewest rows. They all tell how much longer passes
// of this size take now than those took then, and none tells whether it is this size or the machine that has changed.
func (c *Curve) loose(rows int) float64 {
	n := bucket(rows)
	b := &c.at[n]
	if n <= c.first() || b.tie != c.ties {
		return c.doubt(rows)
	}
	return max(drift, 1/max(unsure, b.w-float64(b.since)))
}

// deviation returns how far a pass is from what was known of it, as a logarithm. What makes passes longer
// is often not theirs, and counts up to most. What makes them shorter is, and counts more as long as little
// is known: the first pass of a process or of a size may have taken several times as long.
func (c *Curve) deviation(rows int, ratio, most float64) float64 {
	down := most
	if c.at[bucket(rows)].w < sure {
		down = 4 * most
	}
	return min(max(math.Log(ratio), -down), most)
}

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
	if rows < 0 || rows >= len(c.told) {
		return c.cost(float64(rows))
	}
	if c.have>>rows&1 == 0 {
		c.told[rows], c.have = c.cost(float64(rows)), c.have|1<<rows
	}
	return c.told[rows]
}

func (c *Curve) cost(x float64) float64 {
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
func (c *Curve) Read(rows int) float64 { return c.reads(float64(rows)) }

func (c *Curve) reads(x float64) float64 {
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
