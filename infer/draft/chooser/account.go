package chooser

import (
	"math"
	"time"

	"talf/infer"
)

// An account is what a request has gained over plain decoding by the time that its rounds took, and
// what it may lose, in plain rounds.
//
// Nothing is done that could cost more than the funds: the gains so far, and a share of the time
// that plain decoding would have taken by now. So however long an answer becomes and whatever is
// accepted, it takes at most a share longer than plain decoding, the passes over its prompt
// included.
type account struct {
	gained float64
	tokens int     // emitted
	prompt float64 // plain rounds that the passes over the prompt took, mostPrompt at most
	ahead  float64 // tokens that the request is taken to emit at least
	lent   float64 // for a draft model to read what has waited
}

const (
	// A request may take share longer than plain decoding. It is told by measurements, so that it
	// is a little less than what nobody should notice, 0.03.
	share      = 0.025
	mostPrompt = 32 // so that decoding alone is hardly slower after long prompts, either
	mostAhead  = 64
)

// funds returns how much the request can lose.
func (c *account) funds() float64 {
	return max(0, c.gained+c.lent+share*(c.prompt+max(float64(c.tokens), c.ahead)))
}

// A past request is what one has emitted and gained.
type past struct{ tokens, gained float64 }

const (
	pasts   = 16  // requests that are remembered
	trusted = 2   // as many that together gained let one spend the share of its first tokens at once:
	surely  = 0.5 // as many as this part of the shortest

	// Before anything is known of a draft model, trials of it are paid from a purse that all
	// requests have together, but of one no more than this share of what it may emit.
	firstPurse = 1.5
	purseShare = 0.02
)

// end notes the end of a request.
func (s *shared) end(c *account) {
	s.past[s.ended%pasts] = past{float64(c.tokens), c.gained}
	s.ended++
}

// ahead returns how many tokens a request is taken to emit at least: with little risk if recent
// ones have gained by drafts, so that it may begin with them, none otherwise.
func (s *shared) ahead() float64 {
	n := min(s.ended, pasts)
	if n < trusted {
		return 0
	}
	shortest, gained := math.Inf(1), 0.0
	for _, p := range s.past[:n] {
		shortest, gained = min(shortest, p.tokens), gained+p.gained
	}
	if gained <= 0 {
		return 0
	}
	return min(surely*shortest, mostAhead)
}

const (
	sound    = 0.9 // share of requests with a draft model that gained by it, its reading included
	soundOf  = 2   // requests, about
	mostLent = 2   // plain rounds
)

// lends returns what the request is lent to begin with c's drafts, reading included: that is their
// price, and has paid in past requests.
func (a *chooser) lends(c *arm) float64 {
	if c.won.Of < soundOf || c.won.Value(0, 0) < sound {
		return 0
	}
	x := c.entry(a)
	if !c.used {
		x += c.least(a) / utmost
	}
	return max(0, min(x, mostLent-a.lent))
}

// least returns what a round with the smallest of c's drafts costs, without reading.
func (c *arm) least(a *chooser) float64 { return c.step.Value(firstDraft, 0.5) + a.extra(smallest) }

// means returns what a round that drafts with c may cost at worst.
func (a *chooser) means(c *arm) float64 {
	most := utmost * a.funds()
	if c.tried < c.trial() {
		most += min(a.shared.purse, purseShare*float64(a.left))
	}
	return most
}

// refund pays for a round of the first trials.
func (a *chooser) refund(c *arm, gained float64) {
	if c.tried < c.trial() && gained < 0 {
		paid := min(-gained, a.shared.purse)
		a.shared.purse -= paid
		a.gained += paid
	}
}

// one returns the seconds of a plain round now, 0 if they are unknown.
func (a *chooser) one() float64 { return a.meter.Level * a.shared.pass.Cost(a.others+1) }

// extra returns the extra time, in plain rounds, of a pass in which this sequence has n
// rows instead of one.
func (a *chooser) extra(n int) float64 {
	one := a.shared.pass.Cost(a.others + 1)
	if one == 0 {
		return 0
	}
	return a.shared.pass.Cost(a.others+n)/one - 1
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
	outlier    = 1    // relative deviation that is other work of the machine
	unheard    = 32   // plain rounds: a pass of a new size that takes longer was interrupted
	newRow     = 0.1  // plain rounds that a row of a new size may cost more than expected
	firstDraft = 0.25 // assumed cost of a pass of a draft model, in plain rounds
	firstRead  = 0.1  // and of reading a token, in those of the target's passes over the prompt
	readFade   = 0.9  // weight that a measure of it keeps with the next one, and with each request
	cachedRead = 0.02 // the same in plain rounds if these took no time
	near       = 16   // tokens that a draft model may read in any round
)

// charge says what a round took. It learns from its pass.
func (a *chooser) charge(t infer.Timing) (x charge) {
	s := a.shared
	sure := s.pass.Sure(t.Rows)
	a.meter.Add(&s.pass, t.Rows, t.Verify.Seconds())
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
			x.pass = max(x.pass, min(took, unheard))
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
	if waited := a.waited(); waited >= near {
		price := c.reads(a)
		if c.tried == 0 {
			read = took * price * waited / (price*waited + firstDraft)
		} else {
			read = min(max(0, took-c.draft.Value(firstDraft, 0)), 4*price*waited)
		}
		c.reading.Fade(read, waited, readFade)
		draft -= read
	}
	if c.tried > 2 {
		draft = min(draft, 3*c.draft.Value(draft, 0))
	}
	c.draft.Add(draft, 1)
	c.step.Add(draft, float64(a.steps))
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
	firstWatch = 0.02  // assumed cost of growing trees that are not used
	watchShare = 0.005 // share of the time for it while nothing is used
	settle     = 4     // rounds without a draft after which this begins
)

// looks reports whether candidates without a draft model grow their trees in this round.
func (a *chooser) looks() bool {
	if a.meter.Level == 0 {
		return true
	}
	watch := a.shared.watch.Value(firstWatch, 1)
	every := 1
	if a.idle >= settle {
		every = int(math.Ceil(min(watch, 1) / watchShare))
	}
	// Candidates that have not paid for a long time cost as little as they earn.
	if a.idle >= quiet {
		every = max(every, 1+min(a.idle/quiet, 15))
	}
	return a.rounds%every == 0 && watch <= a.funds() && !(a.saving && a.idle >= settle)
}

// waited returns how many tokens a draft model would read beyond those of a round.
func (a *chooser) waited() float64 { return float64(max(0, a.backlog-near)) }

// reads returns what it costs c to read a token, in plain rounds.
func (c *arm) reads(a *chooser) float64 {
	guess := cachedRead
	if a.perToken > 0 {
		guess = firstRead * a.perToken
	}
	return c.reading.Value(guess, 4)
}

// entry returns what it costs c to read what has waited.
func (c *arm) entry(a *chooser) float64 { return c.reads(a) * a.waited() }

// prefilled takes what the passes over the prompt took.
func (a *chooser) prefilled(took time.Duration) {
	if one := a.one(); one > 0 {
		rounds := took.Seconds() / one
		a.perToken = rounds / float64(a.promptLen)
		a.prompt = min(rounds, mostPrompt)
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
