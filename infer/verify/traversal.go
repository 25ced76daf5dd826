package verify

import "talf/infer"

// Traversal is Traversal Verification (Weng et al. 2025, Algorithm 3): from the leaves up, each
// step accepts or rejects the whole path to a leaf. A node u has rows p, q and the probability
// a(u) with which the path to it is accepted: a(root) = 1, and a(v) = min(1, a(u)·p(v)/q(v))
// when a child v of u is first reached. The leaf v of the first chain is accepted with
// probability a(v), together with everything above it. Otherwise it is deleted, and its parent
// u, unless it is the root, gets
//
//	r = Σ_x max(a(u)·p(x) − q(x), 0),  a(u) ← r / (r + 1 − a(u)),
//	p ← norm(max(a_before(u)·p − q, 0)),  q(v) ← 0, q ← norm(q).
//
// Children must be drawn without replacement. On a chain it equals Block.
type Traversal struct {
	path  []int
	chain []link // the first chain, root first; entries beyond it are kept for their memory
}

// A link is a node of the first chain.
type link struct {
	rest rest
	a    float64
	next int // first child that was not deleted, -1 if none
}

// Fits reports why the rule would not be lossless.
func (*Traversal) Fits(d infer.Choice, chain bool) error { return Check("traversal", d, chain) }

// Verify makes one decision per leaf of the first chain and draws one token.
func (v *Traversal) Verify(p infer.Proposal, s infer.Scores, c infer.Chance) (infer.Verdict, error) {
	v.path = v.path[:0]
	v.push(&p, s, 0, 1)
	for {
		u := &v.chain[len(v.path)-1]
		for u.next >= 0 {
			x, err := u.rest.ratio(p.Tree.Token(u.next))
			if err != nil {
				return infer.Verdict{}, err
			}
			v.push(&p, s, u.next, min(u.a*x, 1))
			u = &v.chain[len(v.path)-1]
		}
		depth := len(v.path) - 1
		if depth == 0 || c.Accept(u.a) {
			return infer.Verdict{Path: v.path, Next: u.rest.draw(c, p.Pos+len(v.path))}, nil
		}
		gone := v.path[depth]
		v.path = v.path[:depth]
		u = &v.chain[depth-1]
		r := u.rest.reject(p.Tree, gone, u.a)
		if u.next = nextLive(&p, gone); depth == 1 {
			continue // the root is always accepted
		}
		if u.a = residual(r, u.a); u.a == 0 {
			u.next = -1 // nothing below can be accepted either
		}
	}
}

// push appends n to the first chain.
func (v *Traversal) push(p *infer.Proposal, s infer.Scores, n int, a float64) {
	if len(v.path) == len(v.chain) {
		v.chain = append(v.chain, link{})
	}
	u := &v.chain[len(v.path)]
	v.path = append(v.path, n)
	u.rest.begin(p, s, n)
	u.a, u.next = a, firstLive(p, n)
}
