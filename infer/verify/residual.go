package verify

import (
	"fmt"
	"slices"

	"talf/infer"
	"talf/model/sample"
	"talf/tree"
)

// A rest holds the target's and the draft's rows of one node while its children are rejected: p
// is the residual, q the draft without the tokens that cannot be drawn again. A rejection costs
// one pass over the vocabulary: rows are not normalised; scale and mass are the missing
// factors. Rows are read on first use, so those of a rejected leaf are never read.
type rest struct {
	node   int
	scores infer.Scores
	draft  func(n int) infer.Dist
	p      infer.Dist // the target's own row until a child is rejected, then own
	scale  float64    // p·scale sums to 1
	q      infer.Dist // the drafter's row, never written
	mass   float64    // Σ q over the tokens that can still be drawn
	again  bool       // rejected tokens can be drawn again: the rule's, not the node's

	own  infer.Dist // memory for the residual
	gone []int32
}

// begin sets r to node n, before any of its children is decided.
func (r *rest) begin(p *infer.Proposal, s infer.Scores, n int) {
	r.node, r.scores, r.draft = n, s, p.Q
	r.p, r.scale = nil, 1
	r.q, r.mass = nil, 1
}

// row returns p, up to scale.
func (r *rest) row() infer.Dist {
	if r.p == nil {
		r.p = r.scores.Dist(r.node)
	}
	return r.p
}

// draw draws the token after the node from p.
func (r *rest) draw(c infer.Chance, pos int) int32 {
	if r.p == nil { // the target's own row, which need not be read
		return infer.DrawNext(c, r.scores, r.node, pos)
	}
	return c.Draw(pos, r.p)
}

// drawn returns q, up to mass, for a node that has children.
func (r *rest) drawn() infer.Dist {
	if r.q == nil {
		r.q = r.draft(r.node)
	}
	return r.q
}

// ratio returns the current p(x)/q(x) for the token x of a child.
func (r *rest) ratio(x int32) (float64, error) {
	q := r.drawn()
	if !(q[x] > 0) {
		return 0, fmt.Errorf("verify: node %d has a child with token %d, to which its draft row gives %v", r.node, x, q[x])
	}
	return float64(r.row()[x]*r.scale) / float64(q[x]/r.mass), nil
}

// reject rejects child k of t, whose path was accepted so far with probability a: p becomes
// max(a·p−q, 0), and q loses k's token unless it can be drawn again. It returns the sum of the
// new p, or 0 if only rounding caused the rejection; p is then the target's row, which is as
// good as any.
func (r *rest) reject(t *tree.Tree, k int, a float64) (sum float64) {
	p := r.row()
	r.own = slices.Grow(r.own[:0], len(p))[:len(p)]
	sum = sample.Residual(r.own, p, r.drawn(), a*r.scale, 1/r.mass)
	if sum > 0 {
		r.p, r.scale = r.own, 1/sum
	} else {
		r.p, r.scale = r.scores.Dist(r.node), 1
	}
	if !r.again {
		r.remove(t, k)
	}
	return sum
}

// remove takes child k's token out of q without writing to it: a rejected token has p = 0, so
// its value in q has no effect, and only the mass of the others is needed. Subtracting from 1
// loses digits once most of the mass is gone; then the mass is summed.
func (r *rest) remove(t *tree.Tree, k int) {
	if r.mass -= r.q[t.Token(k)]; r.mass > 1.0/16 {
		return
	}
	r.gone = r.gone[:0]
	for c := t.FirstChild(r.node); c != k; c = t.NextSibling(c) {
		r.gone = append(r.gone, t.Token(c))
	}
	r.gone = append(r.gone, t.Token(k))
	slices.Sort(r.gone)
	r.gone = slices.Compact(r.gone)
	r.mass = 0
	from := 0
	for _, x := range r.gone {
		r.mass += sample.Sum(r.q[from:x])
		from = int(x) + 1
	}
	r.mass += sample.Sum(r.q[from:])
}

// firstLive returns n's first child that may be accepted, or -1.
func firstLive(p *infer.Proposal, n int) int { return live(p, p.Tree.FirstChild(n)) }

// nextLive returns the next sibling of k that may be accepted, or -1.
func nextLive(p *infer.Proposal, k int) int { return live(p, p.Tree.NextSibling(k)) }

func live(p *infer.Proposal, k int) int {
	if k >= p.LiveNodes() {
		return -1
	}
	return k
}
