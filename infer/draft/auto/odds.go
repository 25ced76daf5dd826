package auto

import (
	"math"

	"talf/infer"
)

// odds are how often the drafts of one method and draft model are right. They learn from all nodes that were drafted,
// scored or not, as the text shows which of them it would have come to: nothing that is cut loses the chance to prove
// itself.
//
// What a draft claims is corrected by the rate at which claims like it came true: those of nodes of the same origin,
// the same depth and about the same probability.
type odds struct {
	cells [origins][depths][bins]rate
	ratio [origins]ratio // of nodes that came true to what was claimed: what cells begin with
	on    [levels]rate   // by depth: a text that came to a node that the draft model was asked for came to a child that paid for its row
	came  [levels]ratio  // by depth: it came to such a node, to what the draft said of that
	tried int            // the round of the last trial of the draft model
	work  average        // seconds of the drafter's own work in a round
}

const (
	origins = 16 // told apart
	depths  = 3  // 1, 2, more
	bins    = 10 // of the log odds of a claim, from −5 to 5
	levels  = 16 // passes of a draft model in a round

	surest = 0.99 // largest probability of a node
)

// A rate counts trials, about as many of the last as trials says, and what came true of them.
type rate struct{ of, n float64 }

// A ratio is what came true over what was expected.
type ratio = rate

func (r *rate) add(of, n float64) {
	if r.n >= trials {
		r.of, r.n = r.of/2, r.n/2
	}
	r.of, r.n = r.of+of, r.n+n
}

// value is the rate, given a guess that counts as a few trials.
func (r *rate) value(guess float64) float64 { return (r.of + few*guess) / (r.n + few) }

// claim returns what the draft claims of node n of b's tree given its parent. One that claims nothing puts the likelier
// of siblings first.
func claim(b *infer.Bid, n int) float64 {
	if len(b.LogV) == b.Tree.Len() {
		q := math.Exp(min(b.LogV[n]-b.LogV[b.Tree.Parent(n)], 0))
		return min(max(q, 1-surest), surest)
	}
	q := 0.4
	for c := b.Tree.FirstChild(b.Tree.Parent(n)); c != n && q > 1-surest; c = b.Tree.NextSibling(c) {
		q /= 2
	}
	return q
}

func (o *odds) cell(b *infer.Bid, n int, q float64) (*rate, *ratio) {
	from := 0
	if b.Origin != nil {
		from = b.Origin(n) % origins
	}
	bin := min(max(int(math.Log(q/(1-q))+5), 0), bins-1)
	return &o.cells[from][min(b.Tree.Depth(n), depths)-1][bin], &o.ratio[from]
}

// chance returns the probability of node n given its parent.
func (o *odds) chance(b *infer.Bid, n int) float64 {
	q := claim(b, n)
	cell, all := o.cell(b, n, q)
	return min(cell.value(min(q*all.value(1), surest)), surest)
}

// ahead returns how likely a text that is at a node of a depth is to come to one of its children, if the draft model is
// asked for them. What is not known of a depth is as above.
func (o *odds) ahead(depth int) float64 {
	p := hope
	for d := range min(depth+1, levels) {
		p = o.on[d].value(p)
	}
	return p
}

// A sequence is what the controller knows of one.
type sequence struct {
	*odds
	room    int // nodes that its tree may have
	skip    int // rounds that it sat out after the last look
	looks   int
	net     float64 // seconds that a look saved lately, less the drafter's work
	reading bool    // its draft model is to be asked once it has read what waits

	// Of the round.
	open  float64         // probability that the text leaves what is drafted without the draft model at once
	next  float64         // tokens that the pass of the draft model is expected to add
	asked int             // passes of it
	reach [levels]float64 // what the draft said of each
	pays  float64         // probability from which on a node pays for a row
	kept  int             // nodes
	gain  float64         // seconds that these are expected to save
	path  []float64       // by node of the tree: probability that the text comes there
}

// estimate sets path: the probability that the text comes to a node, for each of b's tree.
func (s *sequence) estimate(b *infer.Bid) {
	s.path = append(s.path[:0], 1)
	for n := 1; n < b.Tree.Len(); n++ {
		s.path = append(s.path, s.path[b.Tree.Parent(n)]*s.chance(b, n))
	}
}

// follow learns from the tokens that came after the root of b's tree.
func (s *sequence) follow(b *infer.Bid, tokens []int32) {
	n, t := 0, b.Tree
	for _, token := range tokens {
		next := -1
		for c := t.FirstChild(n); c >= 0 && c < b.Live; c = t.NextSibling(c) {
			came := 0.0
			if next < 0 && t.Token(c) == token {
				next, came = c, 1
			}
			q := claim(b, c)
			cell, all := s.cell(b, c, q)
			cell.add(came, 1)
			all.add(came, q)
		}
		if d := t.Depth(n); d < min(s.asked, levels) {
			came := 0.0
			if next >= 0 && s.path[next] >= s.pays {
				came = 1
			}
			s.on[d].add(came, 1)
		}
		if next < 0 {
			s.arrive(t.Depth(n), s.asked)
			return
		}
		n = next
	}
	s.arrive(t.Depth(n), t.Depth(n)+1)
}

// arrive notes that the text came to a depth of the draft, and not to others below most.
func (s *sequence) arrive(depth, most int) {
	for d := 1; d < min(most, s.asked, levels); d++ {
		came := 0.0
		if d <= depth {
			came = 1
		}
		s.came[d].add(came, s.reach[d])
	}
}

// missing sets open.
func (s *sequence) missing(b *infer.Bid) {
	s.open = 1
	if b.Tree == nil {
		return
	}
	for n := b.Tree.FirstChild(0); n >= 0; n = b.Tree.NextSibling(n) {
		s.open -= s.chance(b, n)
	}
	s.open = max(s.open, 0)
}
