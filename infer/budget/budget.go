// Package budget shares the rows of passes among the draft trees of all sequences: a node is scored
// if it is expected to gain more time than its row costs.
//
// Decoding is a renewal process. If a round emits T tokens and takes C seconds, the long-run rate λ
// is E[T]/E[C], and it is largest if everything that is done earns its time at the rate λ itself
// (Dinkelbach 1967): a node whose path the text follows with probability P is worth a row that
// costs v seconds if P ≥ λv. The nodes of all sequences compete for the same rows. So does
// drafting: a pass of a draft model, shared by all that ask it, is run if what it is expected to
// add is worth its time, which is SALF's stop with one threshold for all trees, depth 0 included.
// Under load a row costs more of what others could have had: trees shrink, and at last there are
// none, which is plain batching.
//
// Costs are those of a cost.Model, probabilities those of an outlook: the draft's own, corrected by
// what the target accepted. A draft model that pays no more is asked again now and then, from a
// purse that holds a small share of the time.
package budget

import (
	"cmp"
	"math/bits"
	"slices"
	"time"

	"talf/infer"
	"talf/infer/draft/cost"
)

// A Budget is an infer.Budget. It belongs to the goroutine that owns the engine.
type Budget struct {
	model *cost.Model
	rows  int // most of a pass

	outlooks map[string]*outlook
	speed    [loads]cost.Ratio // tokens per plain round's, over costs per plain round's
	purse    float64           // seconds that may be spent on finding out
	tries    int               // rounds in which they were

	// Of the round.
	round  int
	n      int     // sequences
	plain  float64 // seconds of a round without drafts, 0 if unknown
	spent  float64 // seconds of draft models
	tokens int
	deeper int     // further passes that the purse pays
	idle   int     // rounds with sequences since a pass of a draft model was expected to pay
	sample float64 // seconds that a pass takes which finds out
	picks  []pick
	free   bool // everything is kept
	nodes  []node
}

// A node is one that could be scored, or all of a tree that is scored whole or not at all.
type node struct {
	p    float64 // gain of a row
	bid  int
	node int // 0: the whole tree
	rows int
}

const (
	forget    = 0.95  // weight that a round keeps with each later one
	certain   = 2     // rounds of plain decoding that the speed is assumed from at first
	leastP    = 1e-3  // probability below which no node is scored
	allowance = 0.01  // share of the time that goes to the purse
	quiet     = 32    // rounds without a kept node after which a sequence is asked less often
	fewest    = 16    // smallest size that trees are grown to
	few       = 64    // drafts that are not yet a judgement on a method
	idling    = 0.01  // tokens that a round's draft may cost in time without a gain
	rare      = 16    // rounds of which one has drafts where these are not worth their time
	lasting   = 0.998 // weight that a draft keeps in that with each later one
	trial     = 0.7   // weight that a yield keeps with a pass that was run to find out
	guess     = 0.6   // reach of a level in that of the one before, if the draft does not say
	shorter   = 0.9   // share of that size that the next tree may have at least
	trust     = 4     // reach that the prior of a yield counts for
	forgive   = 0.98  // weight that what is known of a sequence keeps with each round it is left out
	mostPurse = 4     // passes of a draft model that the purse holds at most
	enough    = 8     // sequences that a pass paid by the purse asks for, if there are so many
	lately    = 16    // rounds without a pass that pays after which draft models read no more ahead
	near      = 16    // committed tokens that an ask brings along in any case
	nearly    = 32    // further ones in a pass that its cost hardly shows
	spread    = 32    // rounds in which reading the others of them has to pay
	mostRead  = 512   // of the others in one pass, but for one sequence
)

// New returns a budget with the costs of m, in which a pass scores at most rows nodes beside the
// roots.
func New(m *cost.Model, rows int) *Budget {
	return &Budget{model: m, rows: rows, outlooks: map[string]*outlook{}}
}

// Rate returns how many tokens a second the sequences of the last round are expected to put out
// together, and how many without drafts; 0 if that is unknown.
func (u *Budget) Rate() (now, plain float64) {
	if u.plain == 0 {
		return 0, 0
	}
	plain = float64(u.n) / u.plain
	return u.gain() * plain, plain
}

// load is the index of what is known of about as many sequences.
func (u *Budget) load() int { return min(bits.Len(uint(u.n)), loads-1) }

func (u *Budget) recent() *cost.Ratio { return &u.speed[u.load()] }

// gain is how many times faster than plain decoding recent rounds of about as many sequences were.
func (u *Budget) gain() float64 { return u.recent().Value(1, certain) }

// price is λ: what a second is worth in tokens.
func (u *Budget) price() float64 {
	now, _ := u.Rate()
	return now
}

func (u *Budget) of(b *infer.Bid) *sequence {
	s, ok := b.State.(*sequence)
	if !ok {
		o := u.outlooks[b.Method]
		if o == nil {
			o = newOutlook()
			u.outlooks[b.Method] = o
		}
		s = &sequence{outlook: o}
		b.State = s
	}
	return s
}

// yield is what is known now of passes of the draft model at a level.
func (u *Budget) yield(s *sequence, level int) *cell {
	y := &s.yields[u.load()][min(level, depths-1)]
	y.to(s.clock, faster)
	return y
}

// Begin bounds trees by what recent ones were cut to, and leaves out sequences of whose drafts
// nothing was kept for a long time, and in most rounds those of a method whose drafts are not worth
// the time that drafters take.
func (u *Budget) Begin(bids []*infer.Bid) {
	u.round++
	u.n, u.spent, u.tokens, u.plain, u.deeper = len(bids), 0, 0, 0, 0
	if v := u.model.Target(u.n); u.n > 0 && v > 0 {
		u.plain = v + u.model.Rest(u.n)
	}
	measure := u.n > 0 && !u.model.Knows(u.n) // what drafts cost is known only beside rounds without
	// A method that follows costs needs no help with a sequence that is alone.
	if u.free = len(bids) == 1 && bids[0].Adapts; u.free {
		u.idle = 0
	} else if u.n > 0 {
		u.idle++
	}
	for _, b := range bids {
		s := u.of(b)
		s.round++
		s.asked, s.paid, s.kept = [depths]float64{}, [depths]float64{}, 0
		b.Most = int(s.most)
		switch {
		case s.net[u.load()].Value(0, few) < -idling:
			s.rests = u.round%rare != 0 // together, since the target finds the likeliest tokens of all rows at once
		default:
			s.rests = s.idle >= quiet && !s.asks && s.round%(1+min(s.idle/quiet, 15)) != 0
		}
		if s.rests || measure {
			b.Most = 1
		}
		if u.free {
			b.Most, s.rests = 0, false
		}
	}
}

// Ask lets those go on whose part of the pass pays, if together they pay for the pass.
func (u *Budget) Ask(bids []*infer.Bid) {
	level, nodes := bids[0].Level, 0
	for _, b := range bids {
		s := u.of(b)
		s.asks = true
		level, nodes = min(level, b.Level), nodes+b.Nodes
		if b.Reach == 0 {
			b.Reach = guess
			for range b.Level - 1 {
				b.Reach *= guess
			}
		}
	}
	pass, row, ok := u.model.Draft(level == 0)
	if !ok || u.plain == 0 || u.free {
		u.idle = 0
		return // it has to be measured, or is not ours to judge
	}
	price, token := u.price(), u.model.Reading()
	sum := -price * pass
	for _, b := range bids {
		s := u.of(b)
		y := u.yield(s, b.Level)
		v := y.kept/y.tried*b.Reach*s.factor() - price*(row*float64(b.Nodes)+token*unread(b)/spread)
		if b.Go = v > 0; b.Go {
			sum += v
		}
	}
	pays := sum > 0
	// Of the rounds paid by the purse every second goes one pass deeper, every fourth two.
	asks, cost := 0, 0.0
	if !pays {
		asks, cost = u.afford(bids, pass, row, token)
	}
	try := asks > 0
	switch {
	case pays:
		u.idle = 0
	case u.deeper > 0:
		u.deeper--
		try, asks, cost = true, len(bids), pass+row*float64(nodes)
	case try:
		u.tries++
		u.deeper = bits.TrailingZeros(uint(u.tries))
	}
	if try {
		u.purse -= cost
		for i, b := range bids {
			if b.Go = asks == len(bids); !b.Go {
				b.Go = slices.ContainsFunc(u.picks[:asks], func(x pick) bool { return x.bid == i })
			}
			if b.Go {
				y := u.yield(u.of(b), b.Level)
				y.kept, y.tried = trial*y.kept, trial*y.tried
			}
		}
		return
	}
	room := float64(mostRead)
	for _, b := range bids {
		b.Go = b.Go && pays
		if b.Go && unread(b) > 0 {
			b.Go = room > 0 // the others next time: nobody is to wait for all of it
			room -= unread(b)
		}
		if !b.Go && b.Level == 0 {
			s := u.of(b)
			s.hits, s.hoped = forgive*s.hits, forgive*s.hoped
		}
	}
}

// unread is how many tokens a draft model reads for b beyond those of its last round.
func unread(b *infer.Bid) float64 { return float64(max(0, b.Backlog-near)) }

// A pick is what it costs to ask for a bid.
type pick struct {
	bid     int
	seconds float64
}

// afford returns how many asks the purse pays for, the cheapest first, which are the first picks; none
// if it is too small for enough of them. A sequence for which much was left unread is dear.
func (u *Budget) afford(bids []*infer.Bid, pass, row, token float64) (asks int, cost float64) {
	u.picks = u.picks[:0]
	for i, b := range bids {
		u.picks = append(u.picks, pick{i, row*float64(b.Nodes) + token*unread(b)})
	}
	slices.SortStableFunc(u.picks, func(a, b pick) int { return cmp.Compare(a.seconds, b.seconds) })
	cost = pass
	room := float64(mostRead)
	for i, x := range u.picks {
		if room <= 0 || i >= enough && cost+x.seconds > u.purse {
			break
		}
		room -= unread(bids[x.bid])
		cost += x.seconds
		if asks++; asks <= enough && bids[x.bid].Level == 0 {
			u.sample = cost
		}
	}
	if cost > u.purse {
		return 0, 0
	}
	return asks, cost
}

// Postpones reports whether passes of draft models have not paid lately: then they need not read what
// they may never be asked about.
func (u *Budget) Postpones() bool { return u.idle > lately }

// Asked learns the cost of a pass.
func (u *Budget) Asked(bids []*infer.Bid, read int, took time.Duration) {
	nodes, first := 0, true
	for _, b := range bids {
		nodes, first = nodes+b.Nodes, first && b.Level == 0
		read -= min(b.Backlog, near)
		u.of(b).asked[min(b.Level, depths-1)] += b.Reach
	}
	for _, b := range bids {
		u.of(b).paid[min(b.Level, depths-1)] += took.Seconds() * float64(b.Nodes) / float64(nodes)
	}
	u.spent += took.Seconds()
	if pass, row, ok := u.model.Draft(first); ok && read > nearly {
		u.model.AddReading(read, took.Seconds()-pass-row*float64(nodes))
		return
	}
	u.model.AddDraft(first, nodes, took.Seconds())
}

// Cut keeps the nodes that together promise the most tokens per second, over this round and recent
// ones.
func (u *Budget) Cut(bids []*infer.Bid) {
	u.nodes = u.nodes[:0]
	rows := 0
	for i, b := range bids {
		if b.Tree == nil {
			rows += b.Rows
			continue
		}
		rows++
		s, t := u.of(b), b.Tree
		s.estimate(b)
		b.Keep = append(b.Keep, true)
		sum := 0.0
		for n := 1; n < t.Len(); n++ {
			b.Keep = append(b.Keep, u.plain == 0 || u.free)
			switch p := s.path[n]; {
			case b.Live < t.Len():
				if n < b.Live {
					sum += p
				}
			case p >= leastP:
				u.nodes = append(u.nodes, node{p, i, n, 1})
			}
		}
		if b.Live < t.Len() {
			u.nodes = append(u.nodes, node{sum / float64(t.Len()-1), i, 0, t.Len() - 1})
		}
	}
	if u.plain == 0 {
		return // every tree is a sample
	}
	// A child is less likely than its parent, so that the best nodes are trees.
	slices.SortFunc(u.nodes, func(a, b node) int {
		return cmp.Or(cmp.Compare(b.p, a.p), cmp.Compare(a.bid, b.bid), cmp.Compare(a.node, b.node))
	})
	keep := len(u.nodes)
	if !u.free {
		keep = u.best(rows)
	}
	for _, x := range u.nodes[:keep] {
		b := bids[x.bid]
		u.of(b).kept += x.rows
		if b.Keep[x.node] = true; x.node == 0 {
			for n := range b.Keep {
				b.Keep[n] = true
			}
		}
	}
	u.settle(bids, rows, keep)
}

// best returns how many of the nodes to keep, best first, beside so many rows.
func (u *Budget) best(rows int) (keep int) {
	h := u.recent()
	tokens, time := h.Have+certain, h.Of+certain
	all, sum := rows, 0.0
	best := 0.0
	for k := 0; ; k++ {
		cost := u.spent + u.model.Target(all) + u.model.Rest(u.n)
		if rate := (tokens + 1 + sum/float64(u.n)) / (time + cost/u.plain); rate > best {
			best, keep = rate, k
		}
		if k == len(u.nodes) || u.rows > 0 && all+u.nodes[k].rows > rows+u.rows {
			return keep
		}
		x := &u.nodes[k]
		all, sum = all+x.rows, sum+x.p*float64(x.rows)
	}
}

// settle learns what passes of draft models have yielded, and how large trees are to be grown.
func (u *Budget) settle(bids []*infer.Bid, rows, keep int) {
	more := max(1, keep, rows/8)
	row := u.price() * (u.model.Target(rows+more) - u.model.Target(rows)) / float64(more)
	for _, b := range bids {
		s := u.of(b)
		if !s.rests && !u.free {
			u.weigh(s, b, row)
		}
		if b.Tree == nil {
			if s.asked[0] > 0 { // the pass gave nothing
				u.harvest(s, b, row)
			}
			continue
		}
		if s.idle++; s.kept > 0 {
			s.idle = 0
		}
		s.most = max(fewest, float64(2*(s.kept+1)), shorter*s.most)
		if b.Live < b.Tree.Len() {
			s.most = 0 // it is not to be smaller
		}
		u.harvest(s, b, row)
	}
}

// weigh learns whether the time that the drafter of s took was worth it, in rounds that it sits out, too.
func (u *Budget) weigh(s *sequence, b *infer.Bid, row float64) {
	took := b.Grown.Seconds()
	if s.grown == 0 && !b.Slept {
		s.grown = took
	}
	took = min(took, 4*s.grown) // what is more was other work of the machine
	if !b.Slept {               // it takes next to nothing then, which says nothing of the others
		s.grown += (took - s.grown) / few
	}
	gain := -u.price() * took
	if b.Tree != nil {
		for n := 1; n < b.Tree.Len(); n++ {
			if b.Keep[n] {
				gain += s.path[n] - row
			}
		}
	}
	s.net[u.load()].Fade(gain, 1, lasting)
}

// harvest learns the yield of the passes that made a tree.
func (u *Budget) harvest(s *sequence, b *infer.Bid, row float64) {
	var gain [depths]float64
	if b.Tree != nil {
		for n := 1; n < b.Tree.Len(); n++ {
			if b.Keep[n] {
				gain[min(b.Tree.Depth(n)-1, depths-1)] += s.path[n] - row
			}
		}
	}
	// A pass opens the way for those below it.
	f, below, price := s.factor(), 0.0, u.price()
	for l := depths - 1; l >= 0; l-- {
		if s.asked[l] > 0 {
			y := u.yield(s, l)
			y.kept, y.tried = y.kept+max(gain[l]+below, 0)/f, y.tried+s.asked[l]
			below = max(0, gain[l]+below-price*s.paid[l])
		}
	}
}

// Learn counts the tokens, and compares them with the draft.
func (u *Budget) Learn(b *infer.Bid, tokens []int32) {
	u.tokens += len(tokens)
	if b.Tree == nil {
		return
	}
	s := u.of(b)
	if s.taught != u.round {
		s.taught = u.round
		s.clock++
	}
	s.follow(b, tokens)
}

// End learns how fast the round was.
func (u *Budget) End(p *infer.Pass) {
	if u.n == 0 || u.plain == 0 || p.Trees != u.n {
		return
	}
	cost := u.spent + u.model.Target(p.Rows-p.Prompt) + u.model.Rest(u.n)
	u.recent().Fade(float64(u.tokens)/float64(u.n), cost/u.plain, forget)
	u.purse += allowance * cost
	if pass, row, ok := u.model.Draft(true); ok {
		u.purse = min(u.purse, max(mostPurse*(pass+row*float64(u.n)), 2*u.sample))
	}
}

var _ infer.Budget = (*Budget)(nil)
