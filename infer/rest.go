package infer

import "time"

// A resting is what a sequence knows of rounds that its drafter sits out. Their loop is that of plain decoding.
type resting struct {
	left int  // such rounds to come
	now  bool // the round in progress is one
	from int  // the first that the drafter has not been told of: the place of its root in the sequence's tokens
	have int  // tokens that it and those after it emitted
	work time.Duration
}

// rested ends a round that the drafter sat out.
func (s *Sequence) rested(kept int) {
	r := &s.rest
	if r.have == 0 {
		r.from = len(s.tokens) - kept - 1
	}
	r.left--
	r.have += kept
	r.work += s.timing.Drafting
	r.now = false
}

// wake tells the drafter of the rounds that it sat out.
func (s *Sequence) wake() {
	r := &s.rest
	if r.have == 0 {
		return
	}
	tokens, work := s.tokens[r.from:r.from+1+r.have], r.work
	r.have, r.work = 0, 0
	s.traits.Rested(r.from, tokens, work)
}
