// Package rounds tells where the time of a round of decoding goes. It times every pass within
// decoding, runs the passes of each model again on their own, and compares the two.
package rounds

import (
	"slices"
	"time"
)

// A Pass is a pass of one model within decoding, and the same pass run again.
type Pass struct {
	Rows int `json:"rows"`
	At   int `json:"at"` // positions before the tree
	// Loop is the time within decoding. Alone is the time when only this model's passes and
	// commits run.
	Loop  time.Duration `json:"loop"`
	Alone time.Duration `json:"alone"`
}

// A Round is the time of one round of decoding by parts.
type Round struct {
	Target Pass          `json:"target"`
	Draft  []Pass        `json:"draft,omitempty"` // the draft model's passes, in order
	Other  time.Duration `json:"other"`           // the rest: building trees, verifying, bookkeeping
}

// like reports whether r ran the same passes as o.
func (r *Round) like(o *Round) bool {
	same := func(a, b Pass) bool { return a.Rows == b.Rows && a.At == b.At }
	return same(r.Target, o.Target) && slices.EqualFunc(r.Draft, o.Draft, same)
}

// best takes the shorter time of every part.
func (r *Round) best(o *Round) {
	least := func(p *Pass, q *Pass) { p.Loop, p.Alone = min(p.Loop, q.Loop), min(p.Alone, q.Alone) }
	least(&r.Target, &o.Target)
	for i := range r.Draft {
		least(&r.Draft[i], &o.Draft[i])
	}
	r.Other = min(r.Other, o.Other)
}

// Parts say where a method's time goes, in seconds per round. If all repetitions ran the same
// passes, each part counts with its shortest time, which leaves out what other programs did to
// the machine. If they did not, as with trees that depend on the clock, both the parts and
// what they are compared with are means.
type Parts struct {
	Best   bool    `json:"best_of_repetitions"`
	Rounds int     `json:"rounds"`  // counted: with Best, the repetitions of a text once
	Rows   float64 `json:"rows"`    // mean rows of the target's passes
	At     float64 `json:"context"` // mean positions before them
	Steps  float64 `json:"draft_passes"`

	Target      float64 `json:"target_seconds"`
	TargetAlone float64 `json:"target_alone_seconds"`
	Draft       float64 `json:"draft_seconds"`
	DraftAlone  float64 `json:"draft_alone_seconds"`
	Other       float64 `json:"other_seconds"`

	// Plain is the time of plain decoding's round, PlainAlone that of its pass alone.
	Plain      float64 `json:"plain_seconds"`
	PlainAlone float64 `json:"plain_alone_seconds"`

	// Speedup is plain decoding's time per token over this method's, both by these parts.
	// Allowed is what it would be if a round took no longer than its passes do alone:
	// τ / (cost of the target's passes + cost of the draft's), with costs relative to plain
	// decoding's pass alone. Of is Speedup / Allowed.
	Speedup float64 `json:"speedup"`
	Allowed float64 `json:"allowed"`
	Of      float64 `json:"of_allowed"`

	tokens float64
}

// Total returns the seconds of a round within decoding.
func (p *Parts) Total() float64 { return p.Target + p.Draft + p.Other }

// alone returns the seconds of a round's passes run alone.
func (p *Parts) alone() float64 { return p.TargetAlone + p.DraftAlone }

// A Text is the rounds of one decoding of a text. Repetitions agree in prompt and seed.
type Text struct {
	Set, Prompt string
	Seed        uint64
	Rounds      []Round
	Tokens      int // emitted
}

// textKey is what repetitions of a text have in common.
type textKey struct {
	set, prompt string
	seed        uint64
}

func (t *Text) key() textKey { return textKey{t.Set, t.Prompt, t.Seed} }

// Of sums up the rounds of one method and compares them with those of plain decoding. It
// returns nil if some text has no rounds.
func Of(texts, plain []Text) *Parts {
	best := repeats(texts) && repeats(plain)
	p, b := sum(texts, best), sum(plain, best)
	if p == nil || b == nil {
		return nil
	}
	p.Plain, p.PlainAlone = b.Total(), b.alone()
	p.Speedup = b.Total() / b.tokens / (p.Total() / p.tokens)
	p.Allowed = b.alone() / b.tokens / (p.alone() / p.tokens)
	p.Of = p.Speedup / p.Allowed
	return p
}

// repeats reports whether all repetitions of every text ran the same passes.
func repeats(texts []Text) bool {
	first := map[textKey][]Round{}
	for i := range texts {
		t := &texts[i]
		if _, again := first[t.key()]; !again {
			first[t.key()] = t.Rounds
		}
		if !slices.EqualFunc(t.Rounds, first[t.key()], func(a, b Round) bool { return a.like(&b) }) {
			return false
		}
	}
	return true
}

// sum returns means over rounds. With best, the repetitions of a text count as one text with
// the shortest time of every part; otherwise each repetition counts.
func sum(texts []Text, best bool) *Parts {
	p := &Parts{Best: best}
	at := map[textKey]int{}
	var counted [][]Round
	for i := range texts {
		t := &texts[i]
		if len(t.Rounds) == 0 {
			return nil
		}
		first, again := at[t.key()]
		if again && best {
			for k := range counted[first] {
				counted[first][k].best(&t.Rounds[k])
			}
			continue
		}
		at[t.key()] = len(counted)
		rounds := slices.Clone(t.Rounds)
		for k := range rounds {
			rounds[k].Draft = slices.Clone(rounds[k].Draft)
		}
		counted = append(counted, rounds)
		p.tokens += float64(t.Tokens)
	}
	if len(counted) == 0 {
		return nil
	}
	for _, rounds := range counted {
		for i := range rounds {
			r := &rounds[i]
			p.Rounds++
			p.Rows += float64(r.Target.Rows)
			p.At += float64(r.Target.At)
			p.Steps += float64(len(r.Draft))
			p.Target += r.Target.Loop.Seconds()
			p.TargetAlone += r.Target.Alone.Seconds()
			p.Other += r.Other.Seconds()
			for _, d := range r.Draft {
				p.Draft += d.Loop.Seconds()
				p.DraftAlone += d.Alone.Seconds()
			}
		}
	}
	for _, x := range []*float64{&p.Rows, &p.At, &p.Steps, &p.Target, &p.TargetAlone, &p.Draft, &p.DraftAlone, &p.Other, &p.tokens} {
		*x /= float64(p.Rounds)
	}
	return p
}
