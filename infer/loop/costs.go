package loop

import (
	"math"

	"talf/infer"
	"talf/infer/draft/cost"
)

// costs are what passes were measured to cost.
type costs struct {
	model cost.Model
	other float64 // seconds of a step with draft trees beside the target's pass: drafts, verdicts
	trees int     // rows of draft trees in the last pass
	mixed int     // passes with prompts since one without
}

const (
	// firstRows is the budget for prompts before anything is known of their cost.
	firstRows = 32
	// leastRows is a budget that is never gone below: fewer rows waste what passes over the
	// weights cost.
	leastRows = 8
	blend     = 0.1 // weight of a new sample
	// mostMixed passes with draft trees in a row read prompts. The next does not, so that what the
	// trees cost stays known apart from what the prompts do.
	mostMixed = 15
)

// add records the cost of a pass. Passes without draft trees do not count: no running request waits for them.
func (c *costs) add(p *infer.Pass) {
	if p.Trees == 0 || p.Verify <= 0 {
		return
	}
	c.trees = p.Rows - p.Prompt
	if p.Prompt == 0 {
		c.mixed = 0
		c.model.AddTarget(p.Rows, p.Experts, p.Verify.Seconds())
		c.model.AddRest(p.Trees, max(0, (p.Took-p.Verify-p.Draft).Seconds()))
	} else {
		c.mixed++
		c.model.AddPrompts(c.trees, p.Prompt, p.Verify.Seconds())
	}
	if other := (p.Took - p.Verify).Seconds(); c.other == 0 {
		c.other = other
	} else {
		c.other += blend * (min(other, 4*c.other) - c.other)
	}
}

// budget returns the rows that the next pass may have, 0 for no bound, and whether prompts are to
// wait if it has draft trees. chunk is the most that prompts could use at full speed.
func (c *costs) budget(conf *Config, chunk int) (rows int, hold bool) {
	if conf.Stretch == 0 && conf.Delay == 0 {
		return 0, false
	}
	prompts := float64(firstRows)
	if row := c.model.Prompt(); row > 0 {
		base := c.other + c.model.Target(max(1, c.trees))
		limit := conf.Stretch * base
		if conf.Delay > 0 {
			limit = conf.Delay.Seconds()
		}
		prompts = math.Floor((limit - base) / row)
	}
	return max(1, c.trees) + int(min(max(prompts, leastRows), float64(max(chunk, leastRows)))), c.mixed >= mostMixed
}
