package draft

import (
	"talf/infer"
	"talf/tree/search"
)

// searched drafts what a search over a source's rows finds.
type searched struct {
	s interface {
		search.Search
		Limit(n int)
	}
}

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
