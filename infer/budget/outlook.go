package budget

import (
	"math"

	"talf/infer"
	"talf/infer/draft/cost"
)

// An outlook is how often what a method drafts is right. It learns from whole drafts, whichever
// part of them was scored: the text shows which children would have been kept, down to where it
// leaves the tree. So nothing that is cut loses the chance to prove itself.
//
// The probability of a node, given its parent, is learned in cells by depth and by the draft's
// own probability, or by the node's place among its siblings if the draft does not say. Cells with
// few samples follow the ratio of accepted to expected nodes of their depth, and that follows the
// draft.
type outlook struct {
	clock  int // rounds that taught something
	taught int // the last of them, as the budget counts
	said   [depths][bins]cell
	placed [depths][places]cell
	ratio  [depths]cell
	net    [loads]cost.Ratio // tokens that a round's draft gained beyond the price of its time, by load
	grown  float64           // seconds of a draft
	// By load, since a pass that does not pay at one may pay at a lower one, and by level. kept: tokens
	// that a pass of the draft model and those below it added beyond their price; tried: reach.
	yields [loads][depths]cell
}

const (
	depths = 4  // 1, 2, 3, more
	loads  = 12 // by the length in bits of the number of sequences
	bins   = 12 // of the log odds of the draft's probability, from -6 to 6
	places = 4  // first, second, third, further siblings

	fade    = 0.97 // weight that samples keep with each round that teaches
	faster  = 0.8  // the same for yields, which follow the probabilities
	shrink  = 8    // samples that a cell's prior counts for
	doubt   = 2    // expected nodes that the prior of a ratio counts for
	highest = 0.99 // probability of a node
)

// placePrior is how often the next token is the one at a place among its siblings, before that is
// known.
var placePrior = [places]float64{0.3, 0.05, 0.02, 0.01}

// yieldPrior is the yield of a pass by its level, before that is known.
var yieldPrior = [depths]float64{0.5, 0.4, 0.35, 0.3}

func newOutlook() *outlook {
	o := new(outlook)
	for n := range o.yields {
		for l, y := range yieldPrior {
			o.yields[n][l] = cell{tried: trust, kept: trust * y}
		}
	}
	return o
}

// A cell counts trials and what came of them; older ones count less.
type cell struct {
	tried, kept float64
	at          int // the clock's time when these were right
}

// to brings c to a time of the clock; each tick leaves a share of what it has.
func (c *cell) to(clock int, fade float64) {
	if clock > c.at {
		f := math.Pow(fade, float64(clock-c.at))
		c.tried, c.kept, c.at = c.tried*f, c.kept*f, clock
	}
}

// value is the rate of successes, given a prior that counts for some trials.
func (c *cell) value(prior, weight float64) float64 {
	return (c.kept + weight*prior) / (c.tried + weight)
}

// cellOf returns the cell of a node below one of the given depth, and the prior of the node.
func (o *outlook) cellOf(depth, place int, q float64) (*cell, float64) {
	depth, place = min(depth, depths-1), min(place, places-1)
	if q < 0 {
		return &o.placed[depth][place], placePrior[place]
	}
	q = min(max(q, 1e-5), 1-1e-5)
	bin := int((math.Log(q/(1-q)) + 6) * bins / 12)
	return &o.said[depth][min(max(bin, 0), bins-1)], q
}

// chance is the probability of a node, given its parent. q is the draft's, negative if it does not
// say.
func (o *outlook) chance(depth, place int, q float64) float64 {
	c, prior := o.cellOf(depth, place, q)
	r := &o.ratio[min(depth, depths-1)]
	c.to(o.clock, fade)
	r.to(o.clock, fade)
	return min(c.value(min(prior*r.value(1, doubt), highest), shrink), highest)
}

// learn takes one trial.
func (o *outlook) learn(depth, place int, q float64, kept bool) {
	c, prior := o.cellOf(depth, place, q)
	r := &o.ratio[min(depth, depths-1)]
	c.to(o.clock, fade)
	r.to(o.clock, fade)
	c.tried, r.tried = c.tried+1, r.tried+prior
	if kept {
		c.kept, r.kept = c.kept+1, r.kept+1
	}
}

// A sequence is what a budget knows of one.
type sequence struct {
	*outlook
	hits, hoped float64 // accepted nodes, and how many the outlook expected
	asks        bool    // it has asked a draft model
	rests       bool    // it is not asked for a draft in this round
	most        float64 // nodes that trees are grown to; 0: any number
	idle        int     // drafts in a row of which nothing was kept
	round       int     // rounds

	// Of the round.
	path  []float64       // by node of the tree: probability that the text comes there
	local []float64       // the outlook's, given the parent
	paid  [depths]float64 // seconds of these passes
	asked [depths]float64 // reach of the passes that were run, by level
	kept  int             // nodes
}

// factor is how much more often this sequence accepts than the outlook expects.
func (s *sequence) factor() float64 { return min((s.hits+4)/(s.hoped+4), 3) }

// said returns the draft's probability of node n of b's tree given its parent, -1 if it does not say.
func said(b *infer.Bid, n int) float64 {
	if len(b.LogV) != b.Tree.Len() {
		return -1
	}
	return math.Exp(min(b.LogV[n]-b.LogV[b.Tree.Parent(n)], 0))
}

// estimate computes path and local.
func (s *sequence) estimate(b *infer.Bid) {
	t, f := b.Tree, s.factor()
	s.path, s.local = append(s.path[:0], 1), append(s.local[:0], 1)
	for n := 1; n < t.Len(); n++ {
		up := t.Parent(n)
		place := 0
		if len(b.LogV) != t.Len() {
			for c := t.FirstChild(up); c != n && place < places; c = t.NextSibling(c) {
				place++
			}
		}
		p := s.chance(t.Depth(up), place, said(b, n))
		s.local = append(s.local, p)
		s.path = append(s.path, s.path[up]*min(p*f, highest))
	}
}

// follow learns from the tokens that came after the root.
func (s *sequence) follow(b *infer.Bid, tokens []int32) {
	const recent = 0.95
	s.hits, s.hoped = recent*s.hits, recent*s.hoped
	n, t := 0, b.Tree
	for _, token := range tokens {
		next, place := -1, 0
		for c := t.FirstChild(n); c >= 0 && c < b.Live; c = t.NextSibling(c) {
			kept := t.Token(c) == token && next < 0
			if kept {
				next = c
				s.hits++
			}
			s.hoped += s.local[c]
			s.learn(t.Depth(n), place, said(b, c), kept)
			place++
		}
		if next < 0 {
			return
		}
		n = next
	}
}
