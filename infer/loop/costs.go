package loop

import (
	"math"

	"talf/infer"
	"talf/infer/draft/cost"
)

// costs are what passes were measured to cost.
type costs struct {
	verify cost.Affine // seconds of the target's pass by its rows, where there are draft trees
	other  float64     // seconds of the rest of a step: drafts, verdicts
	row    float64     // seconds of one more row, as it was last known
	trees  int         // rows of draft trees in the last pass
}

const (
	// firstRows is the budget for prompts before anything is known of their cost.
	firstRows = 32
	// leastRows is a budget that is never gone below: fewer rows waste what passes over the
	// weights cost.
	leastRows = 8
	blend     = 0.1 // weight of a new sample
)

// add takes the measure of a pass. Those without draft trees keep nobody waiting; they are much
// larger and would pull the line away from where it is used.
func (c *costs) add(p *infer.Pass) {
	if p.Trees == 0 || p.Verify <= 0 {
		return
	}
	c.trees = p.Rows - p.Prompt
	c.verify.Add(float64(p.Rows), p.Verify.Seconds())
	if _, b, ok := c.verify.Fit(); ok && b > 0 && p.Prompt > 0 {
		c.row = b
	}
	if other := (p.Took - p.Verify).Seconds(); c.other == 0 {
		c.other = other
	} else {
		c.other += blend * (min(other, 4*c.other) - c.other)
	}
}

// budget returns the rows that the next pass may have, 0 for no bound. chunk is the most that
// prompts could use at full speed.
func (c *costs) budget(conf *Config, chunk int) int {
	if conf.Stretch == 0 && conf.Delay == 0 {
		return 0
	}
	prompts := float64(firstRows)
	if a, b, ok := c.verify.Fit(); ok && c.row > 0 {
		if b <= 0 {
			b = c.row
		}
		base := c.other + a + b*float64(c.trees)
		limit := conf.Stretch * base
		if conf.Delay > 0 {
			limit = conf.Delay.Seconds()
		}
		prompts = math.Floor((limit - base) / b)
	}
	return max(1, c.trees) + int(min(max(prompts, leastRows), float64(max(chunk, leastRows))))
}
