package draft

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"talf/infer"
	"talf/tree"
)

func auto() Method {
	return Method{
		Name: "auto", May: true, Main: "try",
		Doc: "of several methods the one, and of its tree the size, that pays most at the moment; none where none pays",
		Params: []Param{
			{"try", "", "methods to choose from, joined by +, their parameters by ;, as in pld+salf:th=auto;N=40 (empty: what the request can use)"},
		},
		Open: openAuto,
	}
}

// The candidates where none are named: what needs no draft model and nothing of
// the prompt's rows, and where there is a draft model, what asks it.
const (
	autoFree   = "pld+goose:harvest=rounds+recycle:harvest=rounds"
	autoSource = "salf:th=auto"
)

func openAuto(p *Params, e Env) (Maker, error) {
	try := p.String("try")
	if try == "" {
		if try = autoFree; e.Source {
			try += "+" + autoSource
		}
	}
	var mks []*Maker
	shared := &autoShared{}
	closeAll := func() (err error) {
		for _, m := range mks {
			err = errors.Join(err, m.Close())
		}
		return err
	}
	for _, s := range strings.Split(try, "+") {
		mk, m, err := Open(strings.ReplaceAll(s, ";", ","), e)
		switch {
		case err != nil:
		case m.Name == "auto":
			err = errors.New("auto does not choose itself")
		case m.Name == "ar":
			err = errors.New("auto drafts nothing where nothing pays: leave ar out")
		case m.Source && !e.Source:
			err = fmt.Errorf("%s asks a draft model, and there is none", s)
		case mk.Draw != infer.Chosen:
			err = fmt.Errorf("%s draws children at random, and auto leaves some out afterwards: no verifier is lossless with that", s)
		}
		if mk != nil {
			mks = append(mks, mk)
		}
		if err != nil {
			return Maker{}, errors.Join(err, closeAll())
		}
		shared.known = append(shared.known, &record{asks: m.Source || m.May && e.Source})
	}
	return Maker{
		New: func() infer.Drafter {
			a := &chooser{shared: shared, chosen: -1}
			for i, mk := range mks {
				c := &arm{record: shared.known[i], d: mk.New()}
				c.timer, _ = c.d.(infer.Timer)
				a.all = append(a.all, c)
			}
			return a
		},
		Close: closeAll,
	}, nil
}

// A chooser drafts with the candidate that pays most, round by round.
//
// A token is worth λ, the time per token at present, and plain decoding's time at
// most; a tree is worth λ times the tokens that it is expected to add, and costs
// what its pass takes longer than a plain one, as measured. A candidate that asks
// no draft model grows its tree in every round, whether it is used or not, and
// what the target then emits tells how often its children are right, by depth and
// rank: nothing has to be risked to know that a candidate got better. The tree is
// cut where the next node is not worth its row. What a candidate that asks a draft
// model adds and costs is known from its own rounds, so that it is tried now and
// then.
//
// What a pass takes longer than a plain one is paid from an account of the time
// that the request has gained over plain decoding so far, and a small credit, so
// that no request gets much slower than plain decoding.
type chooser struct {
	shared *autoShared
	all    []*arm
	chosen int // -1: none

	prompt  int
	rounds  int
	emitted int
	round   int     // tokens of the last round
	account float64 // seconds gained
	idle    int     // rounds since a candidate was chosen
	others  int     // rows of other sequences in the last pass
}

// autoShared is what choosers of one maker know.
type autoShared struct {
	sync.Mutex
	pass  curve // seconds of the target's pass by rows
	spent ratio // seconds per token
	known []*record
}

// A record is what is known of a candidate.
type record struct {
	asks  bool
	cells cells // of all requests

	// Of rounds with a draft model.
	tokens, seconds ratio // per round
	tried           int   // rounds
	since           int   // rounds of others since
	burst           int   // rounds that are still to be tried
}

// cells[d][r]: of the times that a node of depth d was reached, how often the next
// token was its r-th child's. The last ones stand for all beyond.
type cells [8][4]ratio

// An arm is a candidate of one sequence: its record and its drafter, with trees.
type arm struct {
	*record
	d     infer.Drafter
	timer infer.Timer
	prop  infer.Proposal
	full  tree.Tree // as large as it may be
	tree  tree.Tree // as large as it pays
	here  cells     // of this request
	fresh bool      // full is of this round
	live  int       // of full

	later     tree.Tree // an earlier full tree that the output has followed so far
	laterNode int       // up to here, -1 where it has left it
	laterLive int

	gain  float64
	size  int       // nodes of the best tree, root counted
	path  []float64 // chance of each node of full that the output gets there
	order []int     // its nodes but the root, best first
	at    []int     // where they are in tree
}

const (
	// Plain rounds that a request may stand to lose: to what is not known yet, to trees
	// whose chances are known from every round, and to a draft model that has gained so
	// far. Less is safer, and spends more of a short request on earning what the first
	// good trees cost: with 0.1 for all, six prompts of each of six sets lost up to a
	// third of the best method's speed in replays, with these up to a fifth.
	credit     = 0.1
	creditFree = 0.7
	creditAsk  = 1
	share      = 0.01 // and of its tokens
	patience   = 96   // rounds after which a candidate that did not pay is tried again
	newcomer   = 3    // rounds of a first trial
	quiet      = 32   // rounds without a choice after which candidates are asked less often
	// What of a sample of earlier requests is left after each that follows.
	remembered = 0.998
	surest     = 0.75 // chance of a tree that is believed when it is asked what it risks
	leastGain  = 0.01 // of a plain round, for which a tree is drafted
)

func (a *chooser) Start(prompt []int32) error {
	a.prompt, a.rounds, a.emitted, a.account, a.idle, a.others = len(prompt), 0, 0, 0, 0, 0
	a.chosen = -1
	for _, c := range a.all {
		c.fresh, c.laterNode, c.here = false, -1, cells{}
		if err := c.d.Start(prompt); err != nil {
			return err
		}
	}
	return nil
}

// Harvest asks for the rows of the prompt if a candidate does.
func (a *chooser) Harvest() bool {
	return slices.ContainsFunc(a.all, func(c *arm) bool {
		h, ok := c.d.(infer.Harvester)
		return ok && h.Harvest()
	})
}

func (a *chooser) Grow(p *infer.Proposal, rows []infer.Row, ch infer.Chance) ([]int, error) {
	if rows != nil {
		return a.all[a.chosen].d.Grow(p, rows, ch)
	}
	a.shared.Lock()
	defer a.shared.Unlock()
	a.chosen = -1
	plain := a.cost(1)
	// Candidates that have not paid for long cost as little as they earn.
	look := a.idle < quiet || a.rounds%(1+min(a.idle/quiet, 15)) == 0
	for _, c := range a.all {
		c.fresh = false
		if c.asks || !look {
			continue
		}
		if err := c.draw(p, &c.full, p.MaxNodes, p.MaxDepth, ch); err != nil {
			return nil, err
		}
		c.fresh, c.live = c.prop.Tree.Len() > 1, c.prop.LiveNodes()
		if c.prop.Tree != &c.full { // the drafter's own, which the next call changes
			copyTree(&c.full, c.prop.Tree)
		}
	}
	if plain > 0 {
		a.choose(p, plain)
	}
	var ask []int
	for i, c := range a.all {
		switch {
		case i == a.chosen && c.asks:
			var err error
			most := a.funds(plain, credit)
			switch {
			case c.tried < c.trial():
				most = min(most, plain/2)
			case c.gain > 0:
				most = max(most, plain)
			}
			p.MaxNodes = min(p.MaxNodes, a.within(most))
			if ask, err = c.d.Grow(p, nil, ch); err != nil {
				return nil, err
			}
		case i == a.chosen && c.size == c.full.Len():
			if err := c.draw(p, &c.tree, p.MaxNodes, p.MaxDepth, ch); err != nil {
				return nil, err
			}
			p.Tree, p.Live = c.prop.Tree, c.prop.Live
		case !c.asks && look:
			// This is not its tree: it begins a round without a draft.
			if err := c.draw(p, &c.tree, 1, 0, ch); err != nil {
				return nil, err
			}
			if i == a.chosen {
				c.cut()
				p.Tree = &c.tree
			}
		}
	}
	return ask, nil
}

// cut makes tree the best size nodes of full.
func (c *arm) cut() {
	best := c.order[:c.size-1]
	slices.Sort(best)
	c.tree.Reset(c.full.Token(0), c.size)
	c.at = slices.Grow(c.at[:0], c.full.Len())[:c.full.Len()]
	c.at[0] = 0
	for _, n := range best {
		c.at[n] = c.tree.Add(c.at[c.full.Parent(n)], c.full.Token(n))
	}
}

// draw lets a candidate that asks nothing grow a tree of at most n nodes in t.
func (c *arm) draw(p *infer.Proposal, t *tree.Tree, n, depth int, ch infer.Chance) error {
	t.Reset(p.Tree.Token(0), n)
	c.prop = infer.Proposal{Tree: t, Pos: p.Pos, MaxNodes: n, MaxDepth: depth}
	ask, err := c.d.Grow(&c.prop, nil, ch)
	if err == nil && len(ask) > 0 {
		return errors.New("auto: a candidate without a draft model asks one")
	}
	return err
}

func copyTree(dst, src *tree.Tree) {
	dst.Reset(src.Token(0), src.Len())
	for n := 1; n < src.Len(); n++ {
		dst.Add(src.Parent(n), src.Token(n))
	}
}

// cost returns what a pass takes in which this sequence has n rows, 0 where it is
// not known.
func (a *chooser) cost(n int) float64 { return a.shared.pass.cost(a.others + n) }

// trial is how many rounds a candidate with a draft model is tried at first, with
// trees that cost little more than none; one that measures costs itself needs
// more.
func (c *arm) trial() int {
	if c.timer != nil {
		return warm + newcomer
	}
	return newcomer
}

// within returns the largest tree whose pass takes at most so much longer than a
// plain one.
func (a *chooser) within(extra float64) int {
	n := 4 // fewer are no trial
	for n < tree.MaxNodes && a.cost(2*n)-a.cost(1) <= extra {
		n *= 2
	}
	return n
}

// choose picks the round's candidate, or none, given what a plain round takes.
func (a *chooser) choose(p *infer.Proposal, plain float64) {
	s := a.shared
	worth := min(s.spent.value(plain, 2), plain)
	funds := a.funds(plain, credit)
	best := leastGain * plain
	var probe *arm
	for i, c := range a.all {
		switch {
		case c.asks && c.tried > 0:
			c.gain = (c.tokens.value(1, 0)-1)*worth - (c.seconds.value(0, 0) - plain)
		case c.asks:
			c.gain = 0
		case c.fresh:
			a.size(c, worth, plain, a.funds(plain, creditFree))
			if c.live == c.full.Len() && (probe == nil || c.live > probe.live) {
				probe = c
			}
		default:
			continue
		}
		if c.asks {
			// At best, every round in which it adds anything adds one token.
			sure := min(c.tokens.value(1, 1)-1, surest)
			more := c.seconds.value(plain, 1) - plain
			gained := c.tried >= c.trial() && c.gain > 0
			if c.tried == 0 || more*(1-sure) > funds && !(gained && more <= a.funds(plain, creditAsk)) {
				continue
			}
		}
		if c.gain > best {
			best, a.chosen = c.gain, i
		}
	}
	// What is not known is tried if the request can bear it.
	for i, c := range a.all {
		if !c.asks || i == a.chosen {
			continue
		}
		if c.burst == 0 && (c.tried < c.trial() || c.since >= patience) {
			c.burst = newcomer
		}
		loss := max(-c.gain, 0)
		if c.tried == 0 {
			loss = plain / 2
		}
		if c.burst > 0 && funds >= loss {
			a.chosen = i
			return
		}
	}
	if a.chosen >= 0 || probe == nil {
		return
	}
	for n := 2; n <= 8; n *= 2 {
		if n <= probe.full.Len() && !s.pass.knows(a.others+n) && funds >= a.cost(n)-plain {
			a.chosen, probe.size = slices.Index(a.all, probe), n
			return
		}
	}
}

// funds returns how many seconds the request can lose, given so many plain rounds of
// credit.
func (a *chooser) funds(plain, credit float64) float64 {
	return max(0, a.account+plain*(credit+share*float64(a.emitted)))
}

// size finds the part of c's tree that pays most and risks no more than funds.
func (a *chooser) size(c *arm, worth, plain, funds float64) {
	t := &c.full
	c.path = append(c.path[:0], 1)
	var sum float64
	for n := 1; n < t.Len(); n++ {
		v := c.path[t.Parent(n)] * c.chance(t, n)
		c.path = append(c.path, v)
		if n < c.live {
			sum += v
		}
	}
	c.gain, c.size = 0, 1
	if c.live < t.Len() { // what is only scored serves later rounds: it is there or not
		if more := a.cost(t.Len()) - plain; more <= funds {
			c.gain, c.size = sum*worth-more, t.Len()
		}
		return
	}
	c.order = c.order[:0]
	for n := 1; n < t.Len(); n++ {
		c.order = append(c.order, n)
	}
	// A child is never likelier than its parent, and comes behind it.
	slices.SortFunc(c.order, func(m, n int) int {
		return cmp.Or(cmp.Compare(c.path[n], c.path[m]), cmp.Compare(m, n))
	})
	sum = 0
	for i, n := range c.order {
		sum += c.path[n]
		more := a.cost(i+2) - plain
		// The likeliest node is lost with the rest of its branch.
		if more*(1-min(c.path[c.order[0]], surest)) > funds {
			break
		}
		if g := sum*worth - more; g > c.gain {
			c.gain, c.size = g, i+2
		}
	}
}

// chance is how likely node n is right where its parent is.
func (c *arm) chance(t *tree.Tree, n int) float64 {
	rank := 0
	for s := t.FirstChild(t.Parent(n)); s != n && rank < len(c.cells[0])-1; s = t.NextSibling(s) {
		rank++
	}
	return c.rate(t.Depth(n)-1, rank)
}

// rate is the chance of a child of that rank below a node of that depth. Where
// little is known of a depth, it is like the one above; where little is known of a
// request, it is like the others.
func (c *arm) rate(depth, rank int) float64 {
	depth = min(depth, len(c.cells)-1)
	all := [4]float64{0.3, 0.05, 0.02, 0.01}[rank]
	here := 0.0
	for d := range depth + 1 {
		all = c.cells[d][rank].value(all, 2)
		if d == 0 {
			here = all
		}
		// Half from the depth above in this request, half from this one in others.
		here = c.here[d][rank].value((here+all)/2, 4)
	}
	return here
}

// follow counts what became of the children of node n and those below where the
// output goes on with tokens. It returns the node that the output has reached, -1
// where it has left the tree.
func (c *arm) follow(t *tree.Tree, live, n int, tokens []int32) int {
	for _, token := range tokens {
		next, rank := -1, 0
		for m := t.FirstChild(n); m >= 0 && m < live; m = t.NextSibling(m) {
			d, r := min(t.Depth(n), len(c.cells)-1), min(rank, len(c.cells[0])-1)
			right := 0.0
			if t.Token(m) == token {
				next, right = m, 1
			}
			c.here[d][r].add(right, 1)
			c.cells[d][r].fade(right, 1, remembered)
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

func (a *chooser) Observe(p infer.Proposal, v infer.Verdict, s infer.Scores) error {
	if p.Pos >= a.prompt-1 {
		a.observe(&p, v)
	}
	for _, c := range a.all {
		if err := c.d.Observe(p, v, s); err != nil {
			return err
		}
	}
	return nil
}

func (a *chooser) observe(p *infer.Proposal, v infer.Verdict) {
	a.shared.Lock()
	defer a.shared.Unlock()
	a.round = len(v.Path)
	a.emitted += a.round
	var buf [64]int32
	tokens := buf[:0]
	for _, n := range v.Path[1:] {
		tokens = append(tokens, p.Tree.Token(n))
	}
	tokens = append(tokens, v.Next)
	for _, c := range a.all {
		if c.laterNode >= 0 {
			c.laterNode = c.follow(&c.later, c.laterLive, c.laterNode, tokens)
		}
		if !c.fresh {
			continue
		}
		c.fresh = false
		if n := c.follow(&c.full, c.live, 0, tokens); n >= 0 && c.laterNode < 0 {
			copyTree(&c.later, &c.full)
			c.laterNode, c.laterLive = n, c.live
		}
	}
}

// Took learns what the round cost, and whether it paid.
func (a *chooser) Took(t infer.Timing) {
	a.shared.Lock()
	defer a.shared.Unlock()
	s := a.shared
	a.rounds++
	a.idle++
	a.others = t.Rows - t.Nodes
	s.pass.add(t.Rows, t.Verify.Seconds())
	took := (t.Verify + t.Draft + t.Overhead).Seconds()
	s.spent.add(took, float64(a.round))
	for i, c := range a.all {
		c.since++
		if i != a.chosen {
			continue
		}
		a.idle = 0
		a.account += float64(a.round)*a.cost(1) - took
		if c.asks {
			if c.tried == c.trial()-newcomer {
				c.tokens, c.seconds = ratio{}, ratio{} // it has measured what it wanted
			}
			c.tokens.add(float64(a.round), 1)
			c.seconds.add(took, 1)
			c.tried++
			c.since, c.burst = 0, max(0, c.burst-1)
		}
		if c.timer != nil {
			c.timer.Took(t)
		}
	}
	a.chosen = -1
}
