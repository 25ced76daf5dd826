package verify

import "talf/infer"

// Greedy keeps the longest path that follows the target's argmax. The output is that of plain
// decoding at temperature 0, whatever the tree.
type Greedy struct{ path []int }

// Fits allows every tree.
func (*Greedy) Fits(infer.Choice, bool) error { return nil }

// Verify draws nothing.
func (g *Greedy) Verify(p infer.Proposal, s infer.Scores, _ infer.Chance) (infer.Verdict, error) {
	g.path = append(g.path[:0], 0)
	for n := 0; ; {
		next := s.Argmax(n)
		if n = child(&p, n, next); n < 0 {
			return infer.Verdict{Path: g.path, Next: next}, nil
		}
		g.path = append(g.path, n)
	}
}
