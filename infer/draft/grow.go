package draft

import (
	"talf/infer"
	"talf/infer/draft/search"
)

// A limited search takes the engine's bound on the tree, and says how likely its paths are.
type limited interface {
	search.Search
	Limit(n int)
	LogV() []float64
}

// A pruned search can leave out what is unlikely.
type pruned interface{ Least(probability float64) }

// A searcher drafts the tree that a search finds.
type searcher struct {
	limited
	control infer.Control
}

// Start begins a sequence, from which a search needs nothing.
func (d searcher) Start([]int32) error { return nil }

// Grow takes the search one step further.
func (d searcher) Grow(p *infer.Proposal, rows []infer.Row, _ infer.Chance) ([]int, error) {
	if rows == nil {
		d.limited.Limit(p.MaxNodes)
		if s, ok := d.limited.(pruned); ok {
			s.Least(p.Least)
		}
		d.limited.Start(p.Tree.Token(0), p.MaxDepth)
		p.Work, p.Width = d.Work(), d.Width()
	}
	ask := d.limited.Grow(rows)
	p.Reach = d.limited.Reach()
	if len(ask) == 0 {
		p.Tree, p.LogV = d.Tree(), d.LogV()
	}
	return ask, nil
}

// finish ends the round's tree with what has been drafted.
func (d searcher) finish(p *infer.Proposal) error {
	d.limited.Finish()
	p.Tree, p.LogV = d.Tree(), d.LogV()
	return nil
}

// Observe learns nothing.
func (d searcher) Observe(infer.Proposal, infer.Verdict, infer.Scores) error { return nil }

// Traits says that a tree may be ended early.
func (d searcher) Traits() infer.Traits { return infer.Traits{Control: d.control, Finish: d.finish} }
