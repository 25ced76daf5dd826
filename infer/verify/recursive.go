package verify

import "talf/infer"

// Recursive is recursive rejection sampling, from the root down: a child x is accepted with
// probability min(1, p(x)/q(x)); a rejection leaves the residual p ← norm(max(p−q, 0)) to its
// siblings, and to the target's own token when none is left.
//
// With replacement (SpecInfer, Miao et al. 2024, §4.3) q stays as it is, and a duplicate
// sibling updates the residual like any other, though it can no longer be accepted. Without
// replacement (Traversal Verification, §2.2, as in EAGLE) the rejected token is removed from q
// as well.
type Recursive struct {
	name string
	path []int
	rest rest
}

// NewRRS returns the rule for children drawn with replacement.
func NewRRS() *Recursive { return &Recursive{name: "rrs", rest: rest{again: true}} }

// NewRRSW returns the rule for children drawn without replacement.
func NewRRSW() *Recursive { return &Recursive{name: "rrsw"} }

// Fits reports why the rule would not be lossless.
func (v *Recursive) Fits(d infer.Choice, chain bool) error { return Check(v.name, d, chain) }

// Verify decides on one child after another and draws one token.
func (v *Recursive) Verify(p infer.Proposal, s infer.Scores, c infer.Chance) (infer.Verdict, error) {
	v.path = append(v.path[:0], 0)
	for n := 0; ; {
		v.rest.begin(&p, s, n)
		k := firstLive(&p, n)
		for ; k >= 0; k = nextLive(&p, k) {
			a, err := v.rest.ratio(p.Tree.Token(k))
			if err != nil {
				return infer.Verdict{}, err
			}
			if c.Accept(min(a, 1)) {
				break
			}
			v.rest.reject(p.Tree, k, 1)
		}
		if k < 0 {
			return infer.Verdict{Path: v.path, Next: v.rest.draw(c, p.Pos+len(v.path))}, nil
		}
		v.path, n = append(v.path, k), k
	}
}
