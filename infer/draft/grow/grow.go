// Package grow drafts the trees of searches over a draft model's rows: of a given size, or of one
// that follows what passes cost.
package grow

import (
	"talf/infer"
	"talf/infer/draft/search"
)

// A Search takes the engine's bound on the tree, and says how likely its paths are.
type Search interface {
	search.Search
	Limit(n int)
	LogV() []float64
}

// A Drafter drafts the tree that a search finds.
type Drafter struct{ Search Search }

// Start begins a sequence, from which a search needs nothing.
func (d Drafter) Start([]int32) error { return nil }

// Grow takes the search one step further.
func (d Drafter) Grow(p *infer.Proposal, rows []infer.Row, _ infer.Chance) ([]int, error) {
	if rows == nil {
		d.begin(p, p.MaxNodes)
	}
	return d.grow(p, rows)
}

// begin begins a tree of at most n nodes.
func (d Drafter) begin(p *infer.Proposal, n int) {
	d.Search.Limit(n)
	d.Search.Start(p.Tree.Token(0), p.MaxDepth)
	p.Work, p.Width = d.Search.Work(), d.Search.Width()
}

func (d Drafter) grow(p *infer.Proposal, rows []infer.Row) ([]int, error) {
	ask := d.Search.Grow(rows)
	p.Reach = d.Search.Reach()
	if len(ask) == 0 {
		p.Tree, p.LogV = d.Search.Tree(), d.Search.LogV()
	}
	return ask, nil
}

// Finish ends the round's tree with what has been drafted.
func (d Drafter) Finish(p *infer.Proposal) error {
	d.Search.Finish()
	p.Tree, p.LogV = d.Search.Tree(), d.Search.LogV()
	return nil
}

// Observe learns nothing.
func (d Drafter) Observe(infer.Proposal, infer.Verdict, infer.Scores) error { return nil }

// Traits says that a tree may be ended early.
func (d Drafter) Traits() infer.Traits { return infer.Traits{Finish: d.Finish} }
