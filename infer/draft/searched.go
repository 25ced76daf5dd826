package draft

import (
	"fmt"

	"talf/infer"
	"talf/infer/draft/search"
)

// A limited search takes the engine's bound on the tree.
type limited interface {
	search.Search
	Limit(n int)
	LogV() []float64
}

// searching makes drafters with a search each. If make fails on a bad configuration, it fails
// the first time.
func searching(make func() (limited, error)) (Maker, error) {
	if _, err := make(); err != nil {
		return Maker{}, err
	}
	return Maker{New: func() infer.Drafter {
		s, err := make()
		if err != nil {
			panic(fmt.Sprintf("draft: a configuration that was accepted is refused: %v", err))
		}
		return searched{s}
	}}, nil
}

// searched drafts the tree that a search over a source's rows finds.
type searched struct{ s limited }

func (d searched) Start([]int32) error { return nil }

func (d searched) Grow(p *infer.Proposal, rows []infer.Row, _ infer.Chance) ([]int, error) {
	if rows == nil {
		d.begin(p, p.MaxNodes)
	}
	return d.grow(p, rows)
}

// begin begins a tree of at most n nodes.
func (d searched) begin(p *infer.Proposal, n int) {
	d.s.Limit(n)
	d.s.Start(p.Tree.Token(0), p.MaxDepth)
	p.Work, p.Width = d.s.Work(), d.s.Width()
}

func (d searched) grow(p *infer.Proposal, rows []infer.Row) ([]int, error) {
	ask := d.s.Grow(rows)
	p.Reach = d.s.Reach()
	if len(ask) == 0 {
		p.Tree, p.LogV = d.s.Tree(), d.s.LogV()
	}
	return ask, nil
}

func (d searched) finish(p *infer.Proposal) error {
	d.s.Finish()
	p.Tree, p.LogV = d.s.Tree(), d.s.LogV()
	return nil
}

func (d searched) Observe(infer.Proposal, infer.Verdict, infer.Scores) error { return nil }

func (d searched) Traits() infer.Traits { return infer.Traits{Finish: d.finish} }
