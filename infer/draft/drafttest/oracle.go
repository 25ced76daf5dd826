package drafttest

import (
	"math/rand/v2"

	"talf/infer"
)

// An Oracle drafts the target's true continuation, which it is given, with planted errors: of
// each round's true path, at most Depth deep, a random number of nodes are right and the next
// one is wrong, and wrong branches hang everywhere. So every depth is accepted in some rounds
// and rejected in others, whatever the model.
type Oracle struct {
	Truth []int32 // prompt and output of plain decoding
	Vocab int
	Depth int
	Nodes int // most nodes, besides the engine's limit
	Rand  *rand.Rand
}

// Start does nothing: the truth is already known.
func (o *Oracle) Start([]int32) error { return nil }

// Grow plants one round's tree.
func (o *Oracle) Grow(p *infer.Proposal, _ []infer.Row, _ infer.Chance) ([]int, error) {
	t := p.Tree
	room := min(p.MaxNodes, max(o.Nodes, 1)) - 1
	depth := min(p.MaxDepth, o.Depth)
	right := o.Rand.IntN(depth + 2) // depth+1: no error
	at := 0
	grow := func(n int, tok int32) int {
		if c := t.Child(n, tok); c >= 0 {
			return c
		}
		room--
		return t.Add(n, tok)
	}
	for d := 1; d <= depth && room > 0; d++ {
		i := p.Pos + d
		if i >= len(o.Truth) {
			break
		}
		tok := o.Truth[i]
		// Wrong siblings before and after the true one, and below any node.
		for o.Rand.IntN(3) == 0 && room > 1 {
			if x := o.Rand.Int32N(int32(o.Vocab)); x != tok {
				grow(at, x)
			}
		}
		if d == right+1 {
			tok = (tok + 1 + o.Rand.Int32N(int32(o.Vocab-1))) % int32(o.Vocab)
		}
		at = grow(at, tok)
		for o.Rand.IntN(3) == 0 && room > 0 {
			n := o.Rand.IntN(t.Len())
			if t.Depth(n) >= p.MaxDepth {
				continue
			}
			x := o.Rand.Int32N(int32(o.Vocab))
			if j := p.Pos + t.Depth(n) + 1; j < len(o.Truth) && x == o.Truth[j] {
				continue // it could repair the planted error
			}
			grow(n, x)
		}
	}
	return nil, nil
}

// Observe does nothing.
func (o *Oracle) Observe(infer.Proposal, infer.Verdict, infer.Scores) error { return nil }

// Traits returns none.
func (o *Oracle) Traits() infer.Traits { return infer.Traits{} }
