package auto

import (
	"math/bits"

	"talf/tree"
)

// A curve is what passes of one model cost by their rows: an average for each size that has run, in seconds. It never
// falls as rows grow. The zero value knows nothing.
type curve struct {
	at    [sizes]point
	row   average // seconds of a row where computing takes all of the time, as in passes over prompts
	clock int     // passes
	cost  []step  // at, made monotone
	known bool    // cost is that of at
}

// sizes are those that are told apart: all up to four rows, and above these four to an octave.
const sizes = 48

type point struct {
	rows, seconds average
	last          int // the clock when it ran
}

type step struct{ rows, seconds float64 }

// An average follows about the last memory samples. What makes a pass longer is often not its own, so a sample counts
// as at most twice the average; nothing makes a pass take half of its time, so such a sample says that the average was
// wrong.
type average struct{ mean, n float64 }

func (a *average) add(x float64) {
	if a.n > 0 {
		x = min(x, 2*a.mean)
	}
	if x < a.mean/2 {
		a.n = 0
	}
	a.n = min(a.n+1, memory)
	a.mean += (x - a.mean) / a.n
}

func size(rows int) int {
	if rows <= 4 {
		return rows
	}
	n := bits.Len(uint(rows - 1)) // 5 to 8 rows: 3
	return min(4*(n-2)+(rows-1)>>(n-3)&3+1, sizes-1)
}

// add takes what a pass took. The first one of its size is believed up to twice what was expected.
func (c *curve) add(rows int, seconds float64) {
	if rows < 1 || !(seconds > 0) {
		return
	}
	p := &c.at[size(rows)]
	if x := c.of(rows); !c.ran(p) {
		if *p = (point{}); x > 0 {
			seconds = min(seconds, 2*x)
		}
	}
	c.clock++
	p.last, c.known = c.clock, false
	p.rows.add(float64(rows))
	p.seconds.add(seconds)
}

// ran reports whether a size is known: it has run, and not too long ago, so that what once seemed too dear is tried
// again.
func (c *curve) ran(p *point) bool { return p.seconds.n > 0 && c.clock-p.last < stale }

// fresh reports whether a pass of about so many rows was among the last ones.
func (c *curve) fresh(rows, passes int) bool {
	p := &c.at[size(rows)]
	return p.seconds.n > 0 && c.clock-p.last < passes
}

// fit makes the averages monotone: halfway between the largest so far and the smallest to come.
func (c *curve) fit() {
	c.cost, c.known = c.cost[:0], true
	high := 0.0
	for i := range c.at {
		if p := &c.at[i]; c.ran(p) {
			high = max(high, p.seconds.mean)
			c.cost = append(c.cost, step{p.rows.mean, high})
		}
	}
	low, i := 0.0, len(c.cost)
	for at := sizes - 1; i > 0; at-- {
		if p := &c.at[at]; c.ran(p) {
			if low == 0 || p.seconds.mean < low {
				low = p.seconds.mean
			}
			i--
			c.cost[i].seconds = (c.cost[i].seconds + low) / 2
		}
	}
}

// most is the most rows of a pass whose cost is known well enough: twice those that have run.
func (c *curve) most() int {
	c.of(1)
	if n := len(c.cost); n > 0 && c.row.n == 0 {
		return max(int(2*c.cost[n-1].rows), 4)
	}
	return tree.MaxNodes * tree.MaxNodes
}

// of returns what a pass of so many rows costs, 0 if nothing is known. Between two sizes that have run it is on a line.
// One that is larger than all of these takes no less than they do, and no less than its rows do in a prompt.
func (c *curve) of(rows int) float64 {
	if !c.known {
		c.fit()
	}
	x := float64(rows)
	var lo step
	for _, hi := range c.cost {
		if hi.rows >= x {
			if lo.rows == 0 {
				return hi.seconds * x / hi.rows
			}
			return lo.seconds + (hi.seconds-lo.seconds)*(x-lo.rows)/(hi.rows-lo.rows)
		}
		lo = hi
	}
	if c.row.n > 0 || lo.rows == 0 {
		return max(lo.seconds, c.row.mean*x)
	}
	return lo.seconds * (1 + newRow*(x-lo.rows)/lo.rows)
}
