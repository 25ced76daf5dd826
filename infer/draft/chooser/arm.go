package chooser

import (
	"errors"
	"math"
	"slices"

	"talf/infer"
	"talf/infer/draft/cost"
	"talf/tree"
)

// A record is what is known about a candidate across requests.
type record struct {
	asks  bool
	cells cells // of all requests

	asked trials     // of all requests
	draft cost.Ratio // plain rounds in the draft model, per round
	step  cost.Ratio // the same per pass
	quick float64    // the same of the quickest of recent passes
	// What narrow drafts brought and cost, as parts of what the best chain was expected to.
	kept, paid cost.Ratio
	// Plain rounds that the draft model needs for a token that has waited.
	reading cost.Ratio
	won     cost.Ratio // requests that gained by it
	denied  int        // requests that were to try it and could not pay, one after another
	tried   int        // rounds
}

// Trials are rounds with a draft model. Their tokens and costs belong together: when the model
// is confident, its trees are larger.
type trials struct {
	tokens, extra cost.Ratio // per round; plain rounds that one takes longer
}

func (r *trials) add(tokens, extra, rounds, keep float64) {
	r.tokens.Fade(tokens, rounds, keep)
	r.extra.Fade(extra, rounds, keep)
}

// cells[d][r] is how often, when a node of depth d was reached, the next token was that of its
// r-th child. The last row and column stand for all further ones.
type cells [8][4]cost.Ratio

// An arm is a candidate of one sequence: its record and its drafter, with trees.
type arm struct {
	*record
	d      infer.Drafter
	traits infer.Traits
	named  []string // origins of its nodes: its own name if it knows none
	prop   infer.Proposal
	full   tree.Tree // as large as it may be
	tree   tree.Tree // as large as pays
	here   cells     // of this request
	mine   trials    // of this request
	net    float64   // what this request has gained by its rounds
	used   bool      // in this request
	earned int       // rounds of these in which it was expected to pay
	wanted bool      // in this request, but what it would have cost could not be paid
	fresh  bool      // full belongs to this round
	live   int       // of full
	reach  int       // nodes that full is grown to; 0: as many as it may have

	later     tree.Tree // an earlier full tree that the output has followed so far
	laterNode int       // up to here, -1 where it has left it
	laterLive int

	narrow bool    // the round's draft is hardly larger than the chain that pays most:
	deep   int     // passes of the draft model for that chain,
	adds   float64 // tokens that it is expected to add
	costs  float64 // and plain rounds that it is expected to cost, before either is corrected
	gain   float64
	size   int       // nodes of the best tree, root counted
	path   []float64 // probability that the output reaches each node of full
	logV   []float64 // of the proposed tree
	order  []int     // its nodes but the root, best first
	at     []int     // where they are in tree

	origins []int // among the chooser's, by index of named
	from    []int // by node of the proposed tree: index of named; the root's means nothing
}

func newArm(r *record, name string, d infer.Drafter) *arm {
	c := &arm{record: r, d: d, traits: d.Traits(), named: []string{name}}
	if c.traits.Origin != nil {
		c.named = c.traits.Origins
	}
	return c
}

// label records where the nodes of full come from, which its drafter forgets with the next tree.
func (c *arm) label() {
	c.from = append(c.from[:0], 0)
	for n := 1; n < c.full.Len() && c.traits.Origin != nil; n++ {
		c.from = append(c.from, c.traits.Origin(n))
	}
}

// cut sets tree to the best size nodes of full, in their order, and from accordingly.
func (c *arm) cut() {
	best := c.order[:c.size-1]
	slices.Sort(best)
	c.tree.Reset(c.full.Token(0), c.size)
	c.at = slices.Grow(c.at[:0], c.full.Len())[:c.full.Len()]
	c.at[0] = 0
	for _, n := range best {
		c.at[n] = c.tree.Add(c.at[c.full.Parent(n)], c.full.Token(n))
		if c.traits.Origin != nil {
			c.from[c.at[n]] = c.from[n] // c.at[n] <= n: what is overwritten was read
		}
	}
}

// logs returns the logs of the probabilities that the output reaches the nodes of full, or of
// those in tree.
func (c *arm) logs(cut bool) []float64 {
	c.logV = append(c.logV[:0], 0)
	if !cut {
		for _, p := range c.path[1:] {
			c.logV = append(c.logV, math.Log(p))
		}
		return c.logV
	}
	for _, n := range c.order[:c.size-1] { // in the order of tree, which cut has sorted
		c.logV = append(c.logV, math.Log(c.path[n]))
	}
	return c.logV
}

// draw makes a candidate without a draft model grow a tree of at most n nodes in t. It is told which tokens may
// follow, but not all that may, which takes a mask for each node: most of these trees are not used.
func (c *arm) draw(p *infer.Proposal, t *tree.Tree, n, depth int, ch infer.Chance) error {
	t.Reset(p.Tree.Token(0), n)
	c.prop = infer.Proposal{Tree: t, Pos: p.Pos, MaxNodes: n, MaxDepth: depth, May: p.May}
	ask, err := c.d.Grow(&c.prop, nil, ch)
	if err == nil && len(ask) > 0 {
		return errors.New("chooser: a candidate without a draft model asks one")
	}
	return err
}

func copyTree(dst, src *tree.Tree) {
	dst.Reset(src.Token(0), src.Len())
	for n := 1; n < src.Len(); n++ {
		dst.Add(src.Parent(n), src.Token(n))
	}
}

// trial returns how many rounds a candidate with a draft model is tried for at first, with trees
// that cost little more than none; one that measures costs itself needs more.
func (c *arm) trial() int {
	if c.traits.Took != nil {
		return cost.Warm + newcomer
	}
	return newcomer
}

// known reports whether a candidate with a draft model has been tried often enough to be chosen for what it promises.
func (c *arm) known() bool { return c.tried >= min(c.trial(), knownAt) }

// expects returns how many tokens a round with a draft model is expected to emit and how much
// longer it takes than a plain one: as rounds of this request did, and others' while it has few; or as
// the best chain would, if that promises more. First trials are few and single passes dear, so that their mean alone
// would end good drafts; how often children are right is known from the same trials much better.
func (c *arm) expects(a *chooser) (tokens, extra float64) {
	c.narrow = false
	tokens, extra = c.mine.tokens.Value(c.asked.tokens.Value(1, 1), priorRounds),
		c.mine.extra.Value(c.asked.extra.Value(firstLoss, 1), priorRounds)
	if !c.known() {
		return tokens, extra
	}
	c.chain(a)
	adds, costs := c.adds*c.kept.Value(1, trust), c.costs*c.paid.Value(1, trust)
	if worth := a.worth(); adds*worth-costs > (tokens-1)*worth-extra {
		c.narrow = true
		return 1 + adds, costs
	}
	return tokens, extra
}

// doubt returns how many more tokens a round may bring in this request than is expected of one, by part of a standard deviation: what the
// rest of the request gains if it does is more than what a few rounds lose, after which that is known. Tokens are taken to be
// spread as if each had the same chance to be followed by another.
func (c *arm) doubt(tokens float64) float64 {
	adds := max(tokens-1, leastAdds)
	return doubted * math.Sqrt(adds*(1+adds)/(c.mine.tokens.Of+min(c.asked.tokens.Of, priorRounds)))
}

// age lets what rounds with the draft model brought count less after rounds without it: what lost is tried again at last.
func (c *arm) age(rounds int) {
	if c.tried > 0 {
		c.asked.add(0, 0, 0, math.Pow(remembered, float64(rounds)))
		c.mine.add(0, 0, 0, math.Pow(recent, float64(rounds)))
	}
}

// chain finds the chain that pays most, if children are right as often as in the drafts so far.
func (c *arm) chain(a *chooser) {
	step, worth := c.step.Value(firstDraft, 0.5), a.worth()
	if c.quick > 0 { // in trials most passes are the first after a while, which take longer
		step = min(step, quickSlack*c.quick)
	}
	best, path, sum := math.Inf(-1), 1.0, 0.0
	for d := 1; d <= longest; d++ {
		path *= c.rate(d-1, 0)
		sum += path
		takes := a.cheap(d+1) + float64(d)*step
		if g := sum*worth - takes; g > best {
			best, c.deep, c.adds, c.costs = g, d, sum, takes
		}
	}
}

// chance returns the probability that node n is right if its parent is.
func (c *arm) chance(t *tree.Tree, n int) float64 {
	rank := 0
	for s := t.FirstChild(t.Parent(n)); s != n && rank < len(c.cells[0])-1; s = t.NextSibling(s) {
		rank++
	}
	return c.rate(t.Depth(n)-1, rank)
}

// rate is the probability that a child of that rank below a node of that depth is right.
// A depth with few samples follows the depth above, and a request with few samples
// follows the other requests.
func (c *arm) rate(depth, rank int) float64 {
	depth = min(depth, len(c.cells)-1)
	all := [4]float64{0.3, 0.05, 0.02, 0.01}[rank]
	here := 0.0
	for d := range depth + 1 {
		all = c.cells[d][rank].Value(all, 2)
		if d == 0 {
			here = all
		}
		// Half from the depth above in this request, half from this depth in others.
		here = c.here[d][rank].Value((here+all)/2, priorChildren)
	}
	return here
}

// follow counts whether the children of node n, and of nodes below it, were right when the
// output continued with tokens. It returns the node that the output has reached, -1 if it has
// left the tree.
func (c *arm) follow(t *tree.Tree, live, n int, tokens []int32) int {
	for _, token := range tokens {
		next, rank := -1, 0
		for m := t.FirstChild(n); m >= 0 && m < live; m = t.NextSibling(m) {
			d, r := min(t.Depth(n), len(c.cells)-1), min(rank, len(c.cells[0])-1)
			right := 0.0
			if t.Token(m) == token {
				next, right = m, 1
			}
			c.here[d][r].Add(right, 1)
			c.cells[d][r].Fade(right, 1, remembered)
			rank++
		}
		if next < 0 {
			return -1
		}
		n = next
	}
	if t.FirstChild(n) < 0 {
		return -1
	}
	return n
}
