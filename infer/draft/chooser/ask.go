package chooser

import (
	"talf/infer"
	"talf/tree"
)

// further gives the chosen candidate the draft model's answer. A draft that the account would not
// pay any more ends with it.
func (a *chooser) further(p *infer.Proposal, rows []infer.Row, ch infer.Chance) ([]int, error) {
	c := a.all[a.chosen]
	a.steps++
	ask, err := c.d.Grow(p, rows, ch)
	switch {
	case err != nil:
	case len(ask) == 0:
		a.finished(p)
	case a.steps >= a.most && c.traits.Finish != nil:
		return nil, a.finish(p)
	}
	return ask, err
}

// finish ends the chosen candidate's draft.
func (a *chooser) finish(p *infer.Proposal) error {
	err := a.all[a.chosen].traits.Finish(p)
	a.finished(p)
	return err
}

// finished keeps the chosen candidate's tree, which others may add to or take from.
func (a *chooser) finished(p *infer.Proposal) { a.drew, a.drewLive = p.Tree, p.LiveNodes() }

// limit bounds the passes of c's draft model in this round, and returns the bound of its tree.
func (a *chooser) limit(c *arm) (nodes int) {
	if a.loan = a.lends(c); a.unlent {
		a.loan = 0
	}
	most := max(boldness*a.funds(), min(utmost*a.funds(), c.least(a))) + a.loan - c.entry(a)
	if !c.known() {
		most = min(most, firstLoss)
	}
	step := c.step.Value(firstDraft, 0.5)
	a.most = int(max(1, min((most-a.extra(narrowest))/step, tree.MaxNodes)))
	if c.narrow {
		a.most = min(a.most, c.deep)
	}
	if c.step.Of == 0 {
		a.most = 1 // a pass may take many times as long as is assumed
	}
	// Drafts that are much longer than usual are likely to be accepted.
	n := a.within(most - min(float64(a.most)*step, max(most/2, 1.5*c.draft.Value(firstDraft, 0.5))))
	if c.narrow {
		n = min(n, c.deep+1+chainMore)
	}
	return n
}

// within returns the largest tree whose pass takes at most extra more plain rounds than
// a plain one, and is not more than twice as large as what is known.
func (a *chooser) within(extra float64) int {
	n := narrowest
	if a.risk(smallest) <= extra || !a.knows(smallest) && a.shared.row*(smallest-1) <= firstLoss {
		n = smallest
	}
	for n < tree.MaxNodes && a.knows(n) && a.risk(2*n) <= extra {
		n *= 2
	}
	return n
}
