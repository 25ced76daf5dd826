package grow

import (
	"math"
	"sync"

	"talf/infer"
	"talf/infer/draft/cost"
	"talf/infer/draft/search"
)

// An Account is what the drafters of one method have measured. The zero value knows nothing.
type Account struct {
	mu         sync.Mutex
	curve      cost.Curve  // of a pass of the target, by its rows
	meter      cost.Meter  // seconds of one that costs 1
	others     int         // rows of other sequences in the last pass
	step       cost.Affine // seconds of a pass of the draft model, by the nodes asked for
	draft      cost.Affine // seconds of a round's draft passes by the nodes of its tree
	spent      cost.Ratio  // seconds per token
	calibrated cost.Ratio  // accepted nodes per path probability
	harvested  cost.Ratio  // gains per sum
	rounds     int
	cut        bool // the last tree could not have the size that was to be measured
	cuts       int  // rounds that did not count for that
	bare       int  // rounds whose draft passes led to no node

	size  sizing
	pause pausing
}

// plan returns the threshold and the most nodes of the next tree. It keeps prices in price.
func (a *Account) plan(c Pace, most int, price []float64) (search.Tuning, int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := c.N
	if n == 0 {
		n = a.size.now()
		if a.pause.left > 0 && !c.Always {
			return search.Tuning{Th: c.Th}, 1
		}
	}
	if a.rounds < cost.Warm { // small sizes first, as the curve wants it
		n = max(n>>[4]int{16, 3, 1, 0}[a.rounds%4], 1)
		a.cut = n > most
		return search.Tuning{Th: c.Th}, min(n, most)
	}
	n = min(n, most)
	if a.bare >= mostBare {
		return search.Tuning{Th: c.Th}, min(n, trialSize)
	}
	return a.tuning(c, n, price), n
}

// mostCut is how many rounds wait for a bound on trees to let a size be measured.
const mostCut = 8 * cost.Warm

// Where no node seems worth its row, some have to be drafted nevertheless: only verdicts on them can show
// that they are.
const (
	mostBare  = 8 // rounds of draft passes without a node that is worth its row
	trialSize = 8 // most nodes of a tree that is to show it
)

// seconds returns what a pass with a tree of n nodes takes.
func (a *Account) seconds(n int) float64 { return a.meter.Level * a.curve.Cost(a.others+n) }

// tuning follows the costs of trees of at most n nodes.
func (a *Account) tuning(c Pace, n int, price []float64) search.Tuning {
	t := search.Tuning{Th: c.Th}
	worth := a.calibrated.Value(1, 2) * a.spent.Value(0, 0)
	more := 0.0
	if c.Stop {
		pass, node, _ := a.step.Fit()
		share := a.harvested.Value(0.5, 1)
		t = search.Tuning{Th: pass / (worth * share), PerNode: node / (worth * share)}
	} else {
		_, more, _ = a.draft.Fit()
	}
	one := a.seconds(1)
	price = append(price[:0], 0)
	least := math.Inf(1)
	for i := 1; i < n; i++ {
		x := (a.seconds(1+i) - one + more*float64(i)) / worth
		price, least = append(price, x), min(least, x/float64(i))
	}
	// What is found is looked at before it is priced: a node that is less likely than the lowest mean price
	// is in no tree that pays.
	t.Price, t.Least = price, least
	if !(t.Th < 1e9 && t.PerNode < 1e9 && t.Least < 1) {
		// The clock stands still, or nothing is worth its row.
		t = search.Tuning{Th: min(t.Th, 1e9), PerNode: min(t.PerNode, 1e9), Least: 0.9}
	}
	if math.IsNaN(t.Th + t.PerNode) {
		t.Th, t.PerNode = c.Th, 0
	}
	return t
}

// observe takes a verdict on a tree whose path probabilities sum to predicted.
func (a *Account) observe(accepted, predicted float64, gains, sums []float64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.calibrated.Add(accepted, predicted)
	for i, g := range gains {
		if i > 0 {
			a.harvested.Add(g, sums[i])
		}
	}
}

// took takes the cost of a round that yielded so many tokens. limit is the size that plan returned, 0
// if the round's tree is not one of the search's, and most the bound that plan was given.
func (a *Account) took(t infer.Timing, tokens, limit, most int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	// A size that nobody has measured is tried later: a line through smaller ones, of which one
	// was interrupted, would keep trees small for good.
	if a.cut && a.cuts < mostCut {
		a.cuts++
	} else {
		a.rounds++
	}
	a.others = t.Rows - t.Nodes
	a.meter.Add(&a.curve, t.Rows, t.Experts, t.Verify.Seconds())
	switch {
	case t.Nodes > 1:
		a.bare = 0
	case t.Steps > 0:
		a.bare++
	}
	if t.Steps > 0 {
		n := float64(t.Steps)
		a.step.Add(float64(t.Asked)/n, t.Draft.Seconds()/n)
		a.draft.Add(float64(t.Nodes), t.Draft.Seconds())
	}
	a.spent.Add((t.Verify + t.Draft + t.Overhead).Seconds(), float64(tokens))
	if limit == 0 || a.others > 0 {
		a.pause.left = 0 // others share the pass: what a tree costs is not this sequence's alone
		return
	}
	a.size.add(t.Nodes, limit, most)
	a.pause.add(a, t, tokens)
}

// Constants of sizing.
const (
	firstSize = 16 // most nodes of the first trees
	fullTrees = 2  // trees as large as may be before they may be larger
	sizeSpan  = 64 // trees after which they must be smaller if none used its room
)

// sizing bounds trees whose size follows costs. How many nodes are worth their rows is decided tree by
// tree; the bound keeps the costs of rows known that far, since a line through small passes says little
// about large ones, and draft models from ranking more tokens than are used.
type sizing struct {
	bound, full, seen, largest int
}

func (s *sizing) now() int { return max(s.bound, firstSize) }

// add takes the nodes of a tree that could have had limit.
func (s *sizing) add(nodes, limit, most int) {
	n := s.now()
	if limit < n || most < n {
		return
	}
	if nodes == n {
		if s.full++; s.full == fullTrees {
			*s = sizing{bound: min(2*n, MostNodes)}
			return
		}
	}
	s.largest = max(s.largest, nodes)
	if s.seen++; s.seen == sizeSpan {
		if s.largest <= n/4 {
			n /= 2
		}
		*s = sizing{bound: n}
	}
}

// Constants of pausing.
const (
	shortPause = 16  // rounds of the first pause
	longPause  = 256 // and of the longest
	trial      = 4   // rounds with drafts after a pause
)

// pausing stops drafting while rounds with drafts take longer per token than rounds without would.
// Times are what passes of the round's sizes usually take, so that one that was interrupted counts like any
// other.
type pausing struct {
	overhead cost.Ratio // seconds per round beside the passes
	drafted  cost.Ratio // seconds per token of rounds with drafts
	left     int        // rounds of the current pause
	next     int        // rounds of the next
	trial    int        // rounds until the next may begin
}

func (p *pausing) add(a *Account, t infer.Timing, tokens int) {
	over := t.Overhead.Seconds()
	if was := p.overhead.Value(0, 0); was > 0 {
		over = min(over, 4*was)
	}
	p.overhead.Add(over, 1)
	over = p.overhead.Value(0, 0)
	if p.left > 0 {
		if p.left--; p.left == 0 {
			p.trial = trial
		}
		return
	}
	if t.Steps > 0 {
		pass, node, _ := a.step.Fit()
		p.drafted.Add(a.seconds(t.Nodes)+pass*float64(t.Steps)+node*float64(t.Asked)+over, float64(tokens))
	}
	p.trial = max(p.trial-1, 0)
	if a.rounds < cost.Warm || p.trial > 0 {
		return
	}
	if p.drafted.Value(0, 0) <= a.seconds(1)+over {
		p.next = 0
		return
	}
	p.left = max(p.next, shortPause)
	p.next = min(2*p.left, longPause)
	p.drafted.Have, p.drafted.Of = p.drafted.Have/4, p.drafted.Of/4 // another stretch of text may be easier
}
