package chooser

import (
	"math"
	"time"

	"talf/infer"
	"talf/infer/experts"
)

// An account is what a request has gained over plain decoding by the time that its rounds took, and
// what it may lose, in plain rounds.
//
// It plays as a gambler does who has come with a small sum. Credit is a share of the time of plain
// decoding for as many tokens as the answer is expected to have, which drafts may lose before they
// have won anything. What they win is added, what they cost is taken away, and nothing is done that
// costs more than is left. So whatever is accepted, the answer takes at most a share longer than
// plain decoding, if it is as long as expected and but for the last round's risk, which is misjudged
// where passes of its size are new.
//
// The draft model's reading of a prompt is more than that share of a short answer, though it often pays. It is lent,
// while it has paid in most requests, up to a share of the time of the prompt's own passes and the answer.
//
// While most requests gain by drafts, or may be expected to, as greedy ones, the account is a bold one, which lends at
// once and measures again what seemed too dear. Otherwise an answer that nothing is known for loses no more than its credit: reading
// comes out of it until it has paid in one request. Where it never suffices, since prompts are long, one request in
// some is lent the price all the same.
type account struct {
	gained  float64
	tokens  int     // emitted
	prefill float64 // plain rounds that the target's passes over the prompt took
	ahead   float64 // tokens that the request is expected to emit,
	least   float64 // and was at its start
	lent    float64 // for a draft model to read what has waited, as much as it took
	loan    float64 // the most that this round is lent of that
}

const (
	// A request may take share longer than plain decoding. It is told by measurements, so that it
	// is a little less than what nobody should notice, 0.03.
	share     = 0.025
	lendShare = 0.05 // the same for reading
	lendSound = 0.5  // least share of requests that gained by a draft model, its reading included, for one to be lent to

	pasts       = 16 // requests whose lengths are remembered
	priorLength = 48 // tokens of an answer, before so many are known

	sound   = 0.7 // least share of requests that gained by drafts for the account to be bold
	soundOf = 3   // requests that are taken to have done so before any has

	starved = 8 // requests that could not pay for reading, one after another, before a draft model that nobody knows is lent to
)

// funds returns how much the request can lose.
func (c *account) funds() float64 {
	return max(0, c.gained+c.lent+share*max(float64(c.tokens), c.ahead))
}

// end notes the end of a request.
func (s *shared) end(c *account, drafted bool, earned int) {
	if c.tokens > 0 {
		s.past[s.ended%pasts] = float64(c.tokens)
		s.ended++
	}
	if drafted {
		w := weight(earned)
		s.fortune.Fade(w*gains(c.gained), w, fortuneFade)
	}
}

const (
	trialWeight = 0.25 // of a request that only tried drafts
	enough      = 8    // rounds with drafts after which a request counts fully
	fortuneFade = 0.9  // weight that a request's gain or loss keeps with the next one with drafts,
	idleFade    = 0.9  // and with each request: what has lost is looked at again at last
)

// weight is how much a request's gain or loss says, of which so many rounds drafted because that was expected to pay: one that only tried
// drafts has paid for what the next ones know, and one whose first drafts took all that it could lose had bad luck.
func weight(earned int) float64 {
	return trialWeight + (1-trialWeight)*min(float64(earned)/enough, 1)
}

// gains is 1 for a request that gained.
func gains(net float64) float64 {
	if net > 0 {
		return 1
	}
	return 0
}

// bold reports whether requests may be expected to gain: by what others gained, and by hope before any has told.
func (s *shared) bold() bool { return s.fortune.Value(s.hope, soundOf) >= sound }

// ahead returns how many tokens a request that has emitted some is expected to emit: as many as the shortest of recent
// ones that were not shorter, since what ends early has lost a larger share; for a bold account as many as the next one, if it knows enough of them,
// since most lose nothing. The fewer they are, the less they say.
func (s *shared) ahead(tokens int) float64 {
	n := float64(tokens)
	first, second, longer := math.Inf(1), math.Inf(1), 0
	for i := range pasts {
		x := float64(priorLength)
		if i < s.ended {
			x = s.past[i]
		}
		switch {
		case x < n:
			continue
		case x < first:
			first, second = x, first
		case x < second:
			second = x
		}
		longer++
	}
	if longer == 0 {
		return n
	}
	if longer > pasts/2 && s.ended >= pasts && s.bold() {
		first = second
	}
	return n + (first-n)*float64(longer)/pasts
}

// lends returns what the request is lent so that c's draft model reads the prompt; while nothing is known of it, also what waits between its
// first trials.
func (a *chooser) lends(c *arm) float64 {
	switch {
	case c.used && c.known():
		return 0
	case c.won.Value(1, soundOf) < lendSound:
		return 0
	case c.won.Of == 0 && c.denied < starved && !a.shared.bold():
		return 0
	}
	return max(0, min(c.entry(a), lendShare*(a.prefill+a.least)-a.lent))
}

// least returns what a round with the smallest of c's drafts costs, without reading.
func (c *arm) least(a *chooser) float64 { return c.step.Value(firstDraft, 0.5) + a.extra(narrowest) }

// one returns the seconds of a plain round now, 0 if they are unknown.
func (a *chooser) one() float64 { return a.meter.Level * a.shared.pass.Cost(a.others+1) }

// extra returns the extra time, in plain rounds, of a pass in which this sequence has n
// rows instead of one. Few measures may all have been interrupted: they are believed within what is
// likely by passes over prompts.
func (a *chooser) extra(n int) float64 {
	one := a.shared.pass.Cost(a.others + 1)
	if one == 0 {
		return 0
	}
	x := a.shared.pass.Cost(a.others+n)/one - 1
	if !a.shared.pass.Sure(a.others + n) {
		x = min(max(x, a.cheapest(n)), a.dearest(n))
	}
	return x
}

// cheapest is the least that a pass with n rows takes longer than a plain one: nothing while reading weights takes
// all of the time, and then what computing takes, as in passes over prompts.
func (a *chooser) cheapest(n int) float64 { return max(0, a.shared.row*float64(n)-1) }

// told reports whether passes with n rows have been measured often enough: once, and for a bold account until
// their mean is known.
func (a *chooser) told(n int) bool {
	if a.shared.bold() {
		return a.shared.pass.Sure(a.others + n)
	}
	return a.knows(n)
}

// hoped is extra for sizes that have been measured often enough. For a bold account, others cost as little as is
// likely: what might pay is measured again.
func (a *chooser) hoped(n int) float64 {
	x := a.extra(n)
	if s := a.shared; s.bold() && !s.pass.Sure(a.others+n) && s.row > 0 {
		x = min(x, s.row*float64(n-1))
	}
	return x
}

// cheap is extra, or for few rows what those of a prompt cost, if that is less: passes with drafts among plain ones take longer than
// one after the other.
func (a *chooser) cheap(n int) float64 {
	x := a.hoped(n)
	if row := a.shared.row; row > 0 && n <= smallest {
		x = min(x, row*float64(n-1))
	}
	return x
}

// dearest is the most that a pass with n rows is likely to take longer than a plain one. Rows of a prompt
// cost less than those of a tree, which are few and need logits.
func (a *chooser) dearest(n int) float64 {
	if a.shared.row == 0 {
		return unheard
	}
	return rowSlack + rowFactor*a.shared.row*float64(n-1)
}

// risk returns what a pass with n rows may cost at worst. One of a new size may cost more than those
// of smaller sizes let expect.
func (a *chooser) risk(n int) float64 {
	x := a.extra(n)
	if !a.knows(n) {
		x += newRow * float64(n) / 2 // those in the first half are known
	}
	return x
}

func (a *chooser) knows(n int) bool { return a.shared.pass.Knows(a.others + n) }

// A charge is what a round took longer than a plain one, in plain rounds.
type charge struct {
	pass  float64 // more rows
	draft float64 // the draft model, but for
	read  float64 // what it read that had waited
	work  float64 // drafters, and what follows from more tokens
}

func (c charge) sum() float64 { return c.pass + c.draft + c.read + c.work }

const (
	outlier     = 1    // relative deviation that is other work of the machine
	unheard     = 32   // plain rounds: a pass of a new size that takes longer was interrupted
	newRow      = 0.1  // plain rounds that a row of a new size may cost more than expected
	rowFactor   = 2    // by which a row of a tree may be dearer than one of a prompt, at most,
	rowSlack    = 0.25 // and plain rounds beside
	manyRows    = 32   // tokens of a prompt that say what a row costs
	firstDraft  = 0.25 // assumed cost of a pass of a draft model, in plain rounds
	firstRead   = 0.25 // and of reading a token, in those of the target's passes over the prompt
	readWeight  = 32   // tokens that the guess counts for
	readFade    = 0.9  // weight that a measure of it keeps with the next one, and with each request
	believed    = 2    // times what was expected that a first measure of either can say
	firstWeight = 0.25 // and of that of a pass beside later ones
	quickSlack  = 1.1  // times the quickest of recent passes that one is expected to take
	quickFade   = 0.05 // part of the way that the quickest pass moves to a slower one
	cachedRead  = 0.02 // the same in plain rounds if these took no time
	near        = 2    // tokens that a draft model reads in any round
)

// charge says what a round took. It learns from its pass.
func (a *chooser) charge(t infer.Timing) (x charge) {
	s := a.shared
	sure := s.pass.Sure(t.Rows)
	a.meter.Add(&s.pass, t.Rows, t.Experts, t.Verify.Seconds())
	s.level = a.meter.Level
	one := a.one()
	if one == 0 {
		return charge{}
	}
	// A round is charged the usual cost of its rows and the request's mean deviation from that: this
	// round's own is mostly other work on the machine. Of sizes that are new, what was measured
	// counts if it is more.
	if usual := a.extra(t.Nodes); t.Nodes > 1 {
		took := t.Verify.Seconds()/one - 1
		a.off.Fade(min(max(took-usual, -outlier*(1+usual)), outlier*(1+usual)), 1, recent)
		x.pass = max(0, usual+a.off.Value(0, 4))
		if !sure {
			x.pass = max(x.pass, min(took, 2*a.dearest(t.Nodes), unheard))
		}
	}
	x.draft, x.read = a.drafting(t.Draft.Seconds() / one)
	x.work = a.working(t, one)
	return x
}

// drafting splits the time of the chosen candidate's draft model, and learns from it.
func (a *chooser) drafting(took float64) (draft, read float64) {
	if a.chosen < 0 || !a.all[a.chosen].asks || a.steps == 0 {
		return took, 0
	}
	c := a.all[a.chosen]
	draft = took
	if waited := a.waited(); waited > 0 {
		price := c.reads(a) * waited
		if c.draft.Of == 0 {
			read = took * price / (price + firstDraft)
		} else {
			read = min(max(0, took-c.step.Value(firstDraft, 0)*float64(a.steps)), 4*price)
		}
		c.reading.Fade(min(read, believed*price), waited, math.Pow(readFade, waited/readWeight))
		draft -= read
	}
	if c.draft.Of > 2 {
		draft = min(draft, 3*c.draft.Value(draft, 0))
	}
	// A first pass maps weights and memory. Were what it took believed, there might be no second.
	learnt, w := draft, 1.0
	if c.draft.Of == 0 {
		learnt, w = min(draft, believed*c.step.Value(firstDraft, 0.5)*float64(a.steps)), firstWeight
	}
	c.draft.Add(w*learnt, w)
	c.step.Add(w*learnt, w*float64(a.steps))
	if each := draft / float64(a.steps); c.quick == 0 || each < c.quick {
		c.quick = each
	} else {
		c.quick *= 1 + min(each/c.quick-1, 1)*quickFade
	}
	return draft, read
}

// working returns what a round cost beside passes that a plain one does not, and learns what it
// costs to grow trees that are not used and to learn from rows.
func (a *chooser) working(t infer.Timing, one float64) float64 {
	s := a.shared
	rest := (t.Overhead - t.Drafting).Seconds()
	more := 0.0
	if t.Nodes == 1 {
		if s.rest.Of > 4 {
			rest = min(rest, 4*s.rest.Value(0, 0))
		}
		s.rest.Add(rest, float64(a.round))
	} else if s.rest.Of > 0 {
		more = max(0, rest-s.rest.Value(0, 0)*float64(a.round)) / one
	}
	own := t.Drafting.Seconds() / one
	usual := s.watch.Value(firstWatch, 1)
	if !a.looked {
		usual = min(usual, firstWatch)
	}
	usual += s.harvest.Value(0, 1) * float64(t.Nodes-1)
	if s.watch.Of > 4 {
		own = min(own, 4*usual)
	} else {
		own = min(own, mostWatch) // it may be cold, or interrupted, and would not be measured again if it seemed too dear
	}
	switch {
	case a.looked && t.Nodes == 1:
		s.watch.Add(own, 1)
	case t.Nodes > 1:
		s.harvest.Add(max(0, own-s.watch.Value(firstWatch, 1)), float64(t.Nodes-1))
	}
	return own + min(more, 1)
}

const (
	firstWatch = 0.01  // assumed cost of growing trees that are not used
	mostWatch  = 0.25  // the most that the first measures of it say
	watchShare = 0.002 // share of the time for it while nothing is used
	settle     = 4     // rounds without a draft after which this begins
)

// every returns in one of how many rounds candidates without a draft model grow their trees.
func (a *chooser) every() int {
	every := 1
	if a.unused >= settle {
		every = max(1, int(math.Ceil(min(a.shared.watch.Value(firstWatch, 1), 1)/watchShare)))
	}
	// Candidates that have not paid for a long time cost as little as they earn.
	if a.unused >= quiet {
		every = max(every, 1+min(a.unused/quiet, 15))
	}
	return every
}

// due reports whether this round is one of them.
func (a *chooser) due() bool { return (a.rounds+1)%a.every() == 0 }

// looks reports whether they do in this round: also if the output repeats what it had, and if one that was due has waited.
func (a *chooser) looks() bool {
	if a.meter.Level == 0 {
		return true
	}
	due := a.owed || a.due() || a.text != nil && a.text.run >= a.text.hint
	return due && a.shared.watch.Value(firstWatch, 1) <= a.funds()
}

// untilLook returns how many rounds there are before they do, if the output does not repeat anything.
func (a *chooser) untilLook() int {
	if a.owed {
		return 0
	}
	every := a.every()
	return (every - (a.rounds+1)%every) % every
}

// waited returns how many tokens a draft model would read beyond those of a round.
func (a *chooser) waited() float64 { return float64(max(0, a.backlog-near)) }

// reads returns what it costs c to read a token, in plain rounds.
func (c *arm) reads(a *chooser) float64 {
	guess := cachedRead
	if a.perToken > 0 {
		guess = firstRead * a.perToken
	}
	return c.reading.Value(guess, readWeight)
}

// entry returns what it costs c to read what has waited.
func (c *arm) entry(a *chooser) float64 { return c.reads(a) * a.waited() }

// prefilled takes what the passes over the prompt took, and over what was read again, of so many tokens.
func (a *chooser) prefilled(took time.Duration, tokens int) {
	a.ran = max(a.promptLen, tokens)
	if one := a.one(); one > 0 {
		rounds := took.Seconds() / one
		a.perToken = rounds / float64(a.ran)
		a.prefill = rounds
	}
}

// learnRow notes what a row of the prompt's passes cost. Where rows choose experts, few of them
// say nothing of more.
func (a *chooser) learnRow(x experts.Read) {
	if s := a.shared; x.Of == 0 && a.ran >= manyRows && a.prefill > 0 {
		row := max((a.prefill-1)/float64(a.ran-1), 0)
		if s.row > 0 {
			row = (s.row + min(row, believed*s.row)) / 2
		}
		s.row = row
	}
}

// remaining returns how many more tokens the request is expected to emit.
func (a *chooser) remaining() float64 {
	left, n := float64(a.left), float64(a.tokens)
	l := &a.shared.length
	if l.Of <= 1 {
		return left
	}
	mean := max(l.Have-n, 0) / (l.Of - 1)
	return min(left, max(mean-n, n/2))
}
