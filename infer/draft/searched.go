package draft

import (
	"fmt"

	"talf/infer"
	"talf/tree/search"
)

// A limited search takes the engine's bound on the tree.
type limited interface {
	search.Search
	Limit(n int)
}

// searching makes drafters of one search each. Make fails on a bad configuration
// at once or never.
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

// searched drafts what a search over a source's rows finds.
type searched struct{ s limited }

func (d searched) Start([]int32) error { return nil }

func (d searched) Grow(p *infer.Proposal, rows []infer.Row, _ infer.Chance) ([]int, error) {
	if rows == nil {
		d.s.Limit(p.MaxNodes)
		d.s.Start(p.Tree.Token(0), p.MaxDepth)
		p.Work, p.Width = d.s.Work(), d.s.Width()
	}
	ask := d.s.Grow(rows)
	if len(ask) == 0 {
		p.Tree = d.s.Tree()
	}
	return ask, nil
}

func (d searched) Observe(infer.Proposal, infer.Verdict, infer.Scores) error { return nil }
