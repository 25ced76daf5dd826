// Package auto decides whether drafting pays, and how much of it: for one request, and for all that share passes.
//
// There is one rule. A node is scored if the probability that it is accepted, times what a token is worth, exceeds what
// its row costs. A token is worth the time that plain decoding takes for one; what a row costs is on the measured curve
// of passes by their rows. The nodes of all requests compete for the same rows. A pass of a draft model is run if what
// it and those after it are expected to add exceeds its own time in the same way.
//
// Where nothing pays, rounds are plain decoding: the drafter is not asked, told or timed in them.
package auto

import (
	"cmp"
	"slices"

	"talf/infer"
	"talf/tree"
)

// All constants of the rule.
const (
	// trial is the share of the time that finding out may take: looking for drafts where none pay, passes of a draft model
	// that are not expected to, and rounds without drafts where they do. Two measurements of one speed differ by 1%.
	trial = 0.01
	// margin is how many times what it costs a draft has to save. Of many guesses, those that are chosen are too good
	// on average; where a draft saves what it costs, nothing is lost without it.
	margin = 1.25
	// memory is how many samples an average of times follows: what a machine does beside changes soon.
	memory = 64
	// trials is how many trials a rate follows: 256 know it to 0.03, and are a page of text.
	trials = 256
	// few is how many trials a guess counts for: half of what is believed after as many.
	few = 4
	// hope is how often a draft model is right at first. It is asked once where one that is right so often would pay;
	// what it brings then counts.
	hope = 0.6
	// newRow is what a further row costs of a pass before any was measured, which the first passes over a prompt end.
	// It is too little for most machines, so that a first tree is drafted, and measured.
	newRow = 1.0 / 16
	// stale is after how many passes a size that has not run is unknown again, so that what seemed too dear is tried
	// again.
	stale = 1024
	// fewest is the smallest bound of a tree. Fewer nodes would show too little of what could pay.
	fewest = 16
	// answer is how many tokens an answer is expected to have, and one that has got further to have again.
	answer = 64
	// chunk is how much a draft model reads of a text in a pass, as the target does, so that nobody waits for all of it.
	chunk = 256
	// mostRows bounds the rows of a pass, each of which has a row of logits in memory.
	mostRows = 4096
)

// A Controller is an infer.Controller. It belongs to the goroutine that owns the engine.
type Controller struct {
	target curve
	prompt average // seconds of a row of a prompt beside draft trees
	rest   average // seconds of a plain round beside its pass, for each sequence
	drafts map[infer.Source]*costs
	known  map[method]*odds

	round int
	n     int     // sequences in the round
	plain float64 // seconds of a round without drafts, 0 if unknown

	asking []*infer.Bid
	nodes  []node
	beside int // rows of draft trees in the last pass
}

// A method is one of a request, with its draft model.
type method struct {
	name   string
	source infer.Source
}

// A node is one that could be scored, or all of a tree that is scored whole or not at all.
type node struct {
	p    float64 // of a row
	bid  int
	node int // 0: the whole tree
	rows int
}

// costs are what passes of a draft model cost: those with which rounds begin, and later ones.
type costs struct{ first, later *curve }

// New returns a controller that knows nothing.
func New() *Controller {
	return &Controller{drafts: map[infer.Source]*costs{}, known: map[method]*odds{}}
}

func (c *Controller) of(b *infer.Bid) *sequence {
	s, ok := b.State.(*sequence)
	if !ok {
		k := method{b.Method, b.Source}
		if c.known[k] == nil {
			c.known[k] = new(odds)
		}
		s = &sequence{odds: c.known[k], room: fewest}
		b.State = s
	}
	return s
}

// draft returns what passes of a draft model cost. Those of one that says everything in a round's first pass, as a block
// drafter does, are of two kinds, whatever their rows: a later one may cost nothing at all. The passes of others are alike.
func (c *Controller) draft(src infer.Source) *costs {
	if c.drafts[src] == nil {
		x := &costs{first: new(curve)}
		if x.later = x.first; src != nil && src.Abilities().AtOnce {
			x.later = new(curve)
		}
		c.drafts[src] = x
	}
	return c.drafts[src]
}

// at returns the costs of passes of a level.
func (x *costs) at(level int) *curve {
	if level == 0 {
		return x.first
	}
	return x.later
}

// Begin bounds the trees of a round of so many sequences. Once in 1/trial rounds there are none, so that it stays known
// what plain rounds cost.
func (c *Controller) Begin(bids []*infer.Bid, sequences int) {
	c.n, c.plain = sequences, 0
	if x := c.target.of(sequences); x > 0 {
		c.plain = x + c.rest.mean*float64(sequences)
	}
	measured := c.target.fresh(sequences, 1/trial)
	row := c.target.of(sequences+1) - c.target.of(sequences)
	for _, b := range bids {
		s := c.of(b)
		s.asked, s.kept, s.gain = 0, 0, 0
		if b.Most = s.room; !measured {
			b.Most = 1
		}
		if b.Least, s.pays = 0, 0; c.plain > 0 {
			s.pays = row / c.token()
			draft := c.draft(b.Source).later
			// A node that is expanded brings a token if the text comes to it and the draft is right there.
			b.Least = min(margin*(row+draft.of(2)-draft.of(1))/(hope*c.token()), surest)
		}
	}
}

// token is what a token is worth, in seconds.
func (c *Controller) token() float64 { return c.plain / float64(max(c.n, 1)) }

// Ask runs a pass of a draft model for those whose part of it pays, if together they pay for it and those after it.
func (c *Controller) Ask(bids []*infer.Bid) {
	draft, worth, level := c.draft(bids[0].Source), c.token(), bids[0].Level
	c.asking = c.asking[:0]
	nodes, late := 0, 0.0
	row := c.target.of(c.n+1) - c.target.of(c.n)
	least := bids[0]
	for _, b := range bids {
		s := c.of(b)
		if b.Level == 0 {
			s.missing(b)
			b.Nodes = min(b.Backlog, fewest) // the root is the last of what is not read
		}
		if b.Backlog < least.Backlog {
			least = b
		}
		at := min(b.Level, levels-1)
		if s.reach[at] = b.Reach; b.Level > 0 && b.Reach == 0 {
			s.reach[at] = s.reach[at-1] * s.ahead(at-1)
		}
		s.next = min(s.reach[at]*s.came[at].value(1), 1) * s.open * s.ahead(at)
		if b.Go = s.reading || s.next*worth > margin*row; b.Go {
			c.asking = append(c.asking, b)
			nodes += b.Nodes
			late += (draft.first.of(b.Backlog) - draft.first.of(min(b.Backlog, fewest))) / s.rounds(b)
		}
	}
	if len(c.asking) == 0 || c.gain(draft, level, nodes)-late <= 0 {
		c.try(bids, least, draft.first)
	}
	for _, b := range bids {
		s := c.of(b)
		if b.Read = b.Go && b.Level == 0 && b.Backlog > chunk; b.Read {
			b.Go = false
		} else if b.Go {
			s.asked = b.Level + 1
		}
		s.reading = b.Read
	}
}

// try lets a pass of a draft model that is not expected to pay run if the last one was long enough ago: for all who
// have little to read, or for the one with the least.
func (c *Controller) try(bids []*infer.Bid, least *infer.Bid, draft *curve) {
	most := max(least.Backlog, fewest)
	nodes := 0
	for _, b := range bids {
		if b.Backlog <= most {
			nodes += b.Backlog
		}
	}
	o := c.of(least)
	now := bids[0].Level == 0 && draft.of(nodes) < trial*float64(c.round-o.tried)*c.plain
	for _, b := range bids {
		b.Go = c.of(b).reading || now && b.Backlog <= most
	}
	if now {
		o.tried = c.round
	}
}

// gain returns how many seconds a pass of a draft model saves with those after it that pay with it.
func (c *Controller) gain(draft *costs, level, nodes int) (best float64) {
	k := len(c.asking)
	rows := c.n + k*level
	tokens, cost, one := 0.0, draft.at(level).of(nodes), draft.later.of(k)
	base := c.target.of(rows)
	for m := 1; level+m <= levels; m++ {
		for _, b := range c.asking {
			s := c.of(b)
			tokens += s.next
			s.next *= s.ahead(level + m)
		}
		best = max(best, tokens*c.token()-margin*(cost+c.target.of(rows+m*k)-base))
		cost += one
	}
	return best
}

// rounds is how many rounds what is read now may pay in: an answer goes on as far as it has come, with about two tokens
// a round.
func (s *sequence) rounds(b *infer.Bid) float64 {
	return max(1, float64(min(b.Left, answer+b.Emitted))/2)
}

// Cut keeps the nodes that together save the most time, in a pass of so many rows beside them.
func (c *Controller) Cut(bids []*infer.Bid, rows int) {
	c.nodes = c.nodes[:0]
	for i, b := range bids {
		if b.Tree != nil {
			c.offer(b, i)
		}
	}
	// A child is less likely than its parent, so the best nodes are trees.
	slices.SortFunc(c.nodes, func(a, b node) int {
		return cmp.Or(cmp.Compare(b.p, a.p), cmp.Compare(a.bid, b.bid), cmp.Compare(a.node, b.node))
	})
	worth, base := c.token(), c.target.of(rows)
	most := min(c.target.most(), mostRows)
	keep, best, sum, all, row := 0, 0.0, 0.0, rows, 0.0
	for i, x := range c.nodes {
		if all, sum = all+x.rows, sum+x.p*float64(x.rows); all > most {
			break
		}
		cost := c.target.of(all) - base
		if gain := sum*worth - margin*cost; gain > best {
			keep, best, row = i+1, gain, cost/float64(all-rows)
		}
	}
	for _, x := range c.nodes[:keep] {
		b := bids[x.bid]
		s := c.of(b)
		s.kept += x.rows
		s.gain += float64(x.rows) * (x.p*worth - row)
		if b.Keep[x.node] = true; x.node == 0 {
			for n := range b.Keep {
				b.Keep[n] = true
			}
		}
	}
}

// offer adds the nodes of b's tree to those that could be scored.
func (c *Controller) offer(b *infer.Bid, i int) {
	s, t := c.of(b), b.Tree
	s.estimate(b)
	b.Keep = append(b.Keep[:0], true)
	sum := 0.0
	for n := 1; n < t.Len(); n++ {
		b.Keep = append(b.Keep, false)
		if b.Live == t.Len() {
			c.nodes = append(c.nodes, node{s.path[n], i, n, 1})
		} else if n < b.Live {
			sum += s.path[n]
		}
	}
	if b.Live < t.Len() {
		c.nodes = append(c.nodes, node{sum / float64(t.Len()-1), i, 0, t.Len() - 1})
	}
}

// Learn ends a round. A drafter that was asked and is not expected to save the time of its own work sits rounds out: 1,
// 3, 7 … up to as many as make looking cost trial.
func (c *Controller) Learn(bids []*infer.Bid, p *infer.Pass) {
	c.round++
	c.measure(p)
	for _, b := range bids {
		s := c.of(b)
		if b.Most == 1 || c.plain == 0 {
			continue
		}
		if b.Tree != nil {
			s.follow(b, b.Tokens)
			if s.room = max(fewest, 3*(s.kept+1), s.room-1); b.Live < b.Tree.Len() {
				s.room = tree.MaxNodes // it is not to be smaller
			}
		}
		s.work.add(b.Work.Seconds())
		s.looks = min(s.looks+1, memory)
		s.net += (s.gain - s.work.mean - s.net) / float64(s.looks)
		if s.skip = min(2*s.skip+1, int(s.work.mean/(trial*c.plain))); s.net > 0 {
			s.skip = 0
		}
		b.Skip = s.skip
	}
}

// measure learns what passes take.
func (c *Controller) measure(p *infer.Pass) {
	for _, d := range p.Drafts {
		x := c.draft(d.Source).first
		if d.Later {
			x = c.draft(d.Source).later
		}
		if x.add(d.Rows, d.Took.Seconds()); d.Rows >= 2*fewest {
			x.row.add(d.Took.Seconds() / float64(d.Rows))
		}
	}
	trees, verify := p.Rows-p.Prompt, p.Verify.Seconds()
	c.beside = trees
	switch {
	case p.Prompt == 0:
		c.target.add(trees, verify)
		if trees == p.Trees {
			c.rest.add(max(0, (p.Took-p.Verify-p.Draft).Seconds()) / float64(trees))
		}
	case trees > 0:
		c.prompt.add(max(0, verify-c.target.of(trees)) / float64(p.Prompt))
	case p.Prompt >= 2*fewest:
		c.target.row.add(verify / float64(p.Prompt))
	}
}

// Prompts returns how many rows of prompts the next pass may have beside draft trees if it is to take at most limit
// seconds, or for a limit of 0 at most stretch times as long as without them. There are some in any case.
func (c *Controller) Prompts(stretch, limit float64) (trees, prompts int) {
	trees = max(c.beside, 1)
	row := c.prompt.mean
	if c.prompt.n == 0 {
		row = c.target.row.mean
	}
	base := c.target.of(trees)
	if row == 0 || base == 0 {
		return trees, 2 * fewest
	}
	if limit == 0 {
		limit = stretch * base
	}
	return trees, max(int(min((limit-base)/row, 1<<20)), fewest/2)
}

// Cost returns what a pass without prompts usually takes, with its drafts and without; 0 if that is unknown. A pass
// that was interrupted must not look as if its drafts had cost the time.
func (c *Controller) Cost(p *infer.Pass) (with, without float64) {
	if with, without = c.target.of(p.Rows), c.target.of(p.Trees); without == 0 {
		return 0, 0
	}
	for _, d := range p.Drafts {
		if x := c.draft(d.Source); d.Later {
			with += x.later.of(d.Rows)
		} else {
			with += x.first.of(d.Rows)
		}
	}
	rest := c.rest.mean * float64(p.Trees)
	return with + rest, without + rest
}

var _ infer.Controller = (*Controller)(nil)
