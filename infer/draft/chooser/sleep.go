package chooser

import (
	"time"

	"talf/infer"
	"talf/infer/lookup"
)

// A sleep is what candidates miss. They are told of rounds that they are not asked in when they are asked next, if they are. While
// nothing pays, the chooser sits out most rounds, too: a round of plain decoding must cost nothing.
type sleep struct {
	nap    int           // rounds that the chooser sits out from now on
	length int           // most rounds of the last nap
	dozed  int           // rounds that it sat out since its last one
	work   time.Duration // in these

	missed   []int32 // tokens that candidates have not been told, after the one before them
	missedAt int     // its position
	seen     int     // of these tokens, those that the chooser has caught up with
}

const (
	firstNap   = 7    // rounds
	longestNap = 31   // while nothing is gained naps grow to this
	mostDoze   = 0.02 // plain rounds that a round of one is charged, at most
)

// miss keeps a token that followed root, at a position of the sequence.
func (a *chooser) miss(pos int, root, token int32) {
	if len(a.missed) == 0 {
		a.missed, a.missedAt = append(a.missed, root), pos
	}
	a.missed = append(a.missed, token)
}

// rested takes the rounds that the chooser sat out.
func (a *chooser) rested(pos int, tokens []int32, work time.Duration) {
	for i, token := range tokens[1:] {
		a.miss(pos+i, tokens[i], token)
	}
	a.dozed += len(tokens) - 1
	a.work += work
}

// naps returns how many rounds the chooser sits out from now on: none soon after a draft, and then more after every nap, until
// trees are to be looked at again.
func (a *chooser) naps() int {
	if a.idle < settle {
		a.length = 0
		return 0
	}
	a.length = min(2*a.length+firstNap-min(a.length, firstNap-1), longestNap)
	n := a.length
	if a.text != nil {
		n = min(n, a.untilLook())
	}
	return n
}

// catchUp puts the rounds that the chooser sat out to the account, and follows their tokens.
func (a *chooser) catchUp() {
	if n := a.dozed; n > 0 {
		s := a.shared
		s.drafts = 0
		s.length.Have += float64(n)
		a.rounds, a.tokens, a.idle, a.unused = a.rounds+n, a.tokens+n, a.idle+n, a.unused+n
		for range n {
			a.spent.Fade(1, 1, recent)
		}
		for _, c := range a.all {
			c.age(n)
		}
		if a.plain > 0 {
			a.gained -= min(a.work.Seconds()/a.plain, mostDoze*float64(n))
		}
		a.dozed, a.work = 0, 0
	}
	if len(a.missed) > 1+a.seen {
		a.follow(a.missed[1+a.seen:])
		a.seen = len(a.missed) - 1
	}
}

// follow follows tokens that were emitted without a draft, or below one.
func (a *chooser) follow(tokens []int32) {
	for _, c := range a.all {
		if c.laterNode >= 0 { // the output may leave its tree now
			c.laterNode = c.follow(&c.later, c.laterLive, c.laterNode, tokens)
		}
	}
	if a.text != nil {
		a.text.follow(tokens)
	}
}

// wake tells the candidates what was emitted while they slept: in rounds in which they were not asked. Their rows are
// gone.
func (a *chooser) wake() error {
	for i, token := range a.missed[:max(len(a.missed)-1, 0)] {
		a.root.Reset(token, 1)
		p := infer.Proposal{Tree: &a.root, Pos: a.missedAt + i, MaxNodes: 1}
		for _, c := range a.all {
			if err := c.d.Observe(p, infer.Verdict{Path: onlyRoot, Next: a.missed[i+1]}, unscored{}); err != nil {
				return err
			}
		}
	}
	a.missed, a.seen = a.missed[:0], 0
	return nil
}

var onlyRoot = []int{0}

// unscored are the scores of a round whose rows are gone. Candidates may have grown trees for it at first, if it was begun
// again: one that takes it for the round of its last tree asks for rows.
type unscored struct{ infer.Scores }

func (unscored) TopK(int, int) []infer.Candidate    { return nil }
func (unscored) Rank(dst []int32, _, _ int) []int32 { return dst }

// A text is the sequence, with where its n-grams occurred before. It tells for little whether the output repeats what it
// had, so that candidates which copy need not be asked to find that out.
type text struct {
	*lookup.Context
	run  int // newest tokens that each followed the n-gram before them as they did when it last occurred
	hint int // such tokens for which trees are looked at
}

const (
	copied    = 3 // tokens of an n-gram
	firstHint = 2
)

func newText() *text { return &text{Context: lookup.NewContext(copied, copied)} }

func (t *text) start(prompt []int32) {
	t.Reset()
	t.Append(prompt...)
	t.run, t.hint = 0, firstHint
}

func (t *text) follow(tokens []int32) {
	for _, token := range tokens {
		if m, ok := t.Match(); ok && t.Tokens()[m.Next] == token {
			t.run++
		} else {
			t.run = 0
		}
		t.Append(token)
	}
}
