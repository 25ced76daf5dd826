package draft_test

import (
	"fmt"
	"testing"

	"talf/infer"
	"talf/infer/draft/drafttest"
	"talf/tree"
)

// lookup drafts what followed the two newest tokens when they last occurred together, in the
// prompt or in the output.
type lookup struct{ seen []int32 }

func (l *lookup) Start(prompt []int32) error {
	l.seen = append(l.seen[:0], prompt...)
	return nil
}

func (l *lookup) Grow(p *infer.Proposal, _ []infer.Row, _ infer.Chance) ([]int, error) {
	last := len(l.seen) - 1
	for i := last - 1; i > 0; i-- {
		if l.seen[i] == l.seen[last] && l.seen[i-1] == l.seen[last-1] {
			node := 0
			for _, token := range l.seen[i+1:] {
				if p.Tree.Room() == 0 || p.Tree.Depth(node) == p.MaxDepth {
					break
				}
				node = p.Tree.Add(node, token)
			}
			break
		}
	}
	return nil, nil // it asks no draft model
}

func (l *lookup) Observe(p infer.Proposal, v infer.Verdict, _ infer.Scores) error {
	l.seen = l.seen[:p.Pos+1] // the root; chunks of the prompt come a second time
	for _, n := range v.Path[1:] {
		l.seen = append(l.seen, p.Tree.Token(n))
	}
	l.seen = append(l.seen, v.Next)
	return nil
}

func (l *lookup) Traits() infer.Traits { return infer.Traits{} }

func TestLookupConforms(t *testing.T) {
	drafttest.Run(t, func() infer.Drafter { return new(lookup) })
}

// A complete drafter: what it knows, how it grows a tree, and what it learns from the verdict.
func Example() {
	d := new(lookup)
	if err := d.Start([]int32{5, 1, 2, 3, 4, 1, 2}); err != nil {
		panic(err)
	}
	p := infer.Proposal{Tree: tree.New(2, 60), Pos: 6, MaxNodes: 60, MaxDepth: 3}
	if _, err := d.Grow(&p, nil, nil); err != nil {
		panic(err)
	}
	fmt.Println(p.Tree.Tokens())
	// Output: [2 3 4 1]
}
