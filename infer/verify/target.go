package verify

import "talf/infer"

// Target samples from the target and follows the child that carries the sample; if there is
// none, the sample is the residual token. Every emitted token is a draw from the target's own
// distribution, made without looking at the tree: the output is exact for any tree that does
// not depend on these draws, and with draws keyed by position it is identical to plain
// sampling.
type Target struct{ path []int }

// Fits allows every tree.
func (*Target) Fits(infer.Choice, bool) error { return nil }

// Verify draws once per emitted token.
func (t *Target) Verify(p infer.Proposal, s infer.Scores, c infer.Chance) (infer.Verdict, error) {
	t.path = append(t.path[:0], 0)
	for n := 0; ; {
		next := infer.DrawNext(c, s, n, p.Pos+len(t.path))
		if n = child(&p, n, next); n < 0 {
			return infer.Verdict{Path: t.path, Next: next}, nil
		}
		t.path = append(t.path, n)
	}
}
