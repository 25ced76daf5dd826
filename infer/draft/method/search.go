package method

import (
	"talf/infer"
	"talf/infer/draft/search"
)

// A Limited search takes the engine's bound on the tree, and says how likely its paths are.
type Limited interface {
	search.Search
	Limit(n int)
	LogV() []float64
}

// A pruned search can leave out what is unlikely.
type pruned interface{ Least(probability float64) }

// A Searcher drafts the tree that a search finds.
type Searcher struct {
	Limited
	Control infer.Control
}

// Start begins a sequence, from which a search needs nothing.
func (d Searcher) Start([]int32) error { return nil }

// Grow takes the search one step further.
func (d Searcher) Grow(p *infer.Proposal, rows []infer.Row, _ infer.Chance) ([]int, error) {
	if rows == nil {
		d.Limited.Limit(p.MaxNodes)
		if s, ok := d.Limited.(pruned); ok {
			s.Least(p.Least)
		}
		d.Limited.Start(p.Tree.Token(0), p.MaxDepth)
		p.Work, p.Width = d.Work(), d.Width()
	}
	ask := d.Limited.Grow(rows)
	p.Reach = d.Limited.Reach()
	if len(ask) == 0 {
		p.Tree, p.LogV = d.Tree(), d.LogV()
	}
	return ask, nil
}

// End ends the round's tree with what has been drafted.
func (d Searcher) End(p *infer.Proposal) error {
	d.Limited.Finish()
	p.Tree, p.LogV = d.Tree(), d.LogV()
	return nil
}

// Observe learns nothing.
func (d Searcher) Observe(infer.Proposal, infer.Verdict, infer.Scores) error { return nil }

// Traits says that a tree may be ended early.
func (d Searcher) Traits() infer.Traits { return infer.Traits{Control: d.Control, Finish: d.End} }

// Searching makes drafters with a search each. If make fails on a bad configuration, it fails
// the first time.
func Searching(control infer.Control, make func() (Limited, error)) (Maker, error) {
	if _, err := make(); err != nil {
		return Maker{}, err
	}
	return Maker{New: func() infer.Drafter { return Searcher{Must(make()), control} }}, nil
}
