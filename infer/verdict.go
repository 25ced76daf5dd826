package infer

import (
	"fmt"
	"slices"
	"time"
)

// finishRound verifies a scored proposal, commits what is kept and emits it.
func (s *Sequence) finishRound(e *Engine, rows Rows) {
	s.scores.begin(rows, s.prop.Tree, s.tokens)
	s.chance.begin(s.prop.Pos)
	s.begun, s.alone = false, nil
	if s.plainly != nil {
		s.lost = s.plainly
		s.stats.Undrafted++
		s.fellBack(s.lost)
	} else if s.draftsOff {
		s.fellBack(s.lost)
	}
	v, err := s.callVerify()
	if err != nil {
		s.fail(err)
		return
	}
	first := len(s.tokens)
	var reason Reason
	for i := 1; i <= len(v.Path) && reason == ""; i++ {
		tok := v.Next
		if i < len(v.Path) {
			tok = s.prop.Tree.Token(v.Path[i])
		}
		s.tokens = append(s.tokens, tok)
		stopped, complete := false, false
		if !slices.Contains(s.eos, tok) {
			if stopped, err = s.callAdd(tok); err == nil {
				complete, err = s.callComplete()
			}
			if err != nil {
				s.fail(err)
				return
			}
		}
		switch {
		case slices.Contains(s.eos, tok):
			reason = EOS
		case stopped:
			reason = Stop
		case complete:
			reason = Complete
		case len(s.tokens)-s.prompt >= s.req.MaxTokens || len(s.tokens) >= s.maxLen:
			reason = Length
		}
	}
	kept := len(s.tokens) - first
	s.bid.Tokens = s.tokens[first:len(s.tokens):len(s.tokens)]
	s.stats.round(s.prop.Tree, s.prop.LiveNodes(), v.Path, kept)
	s.log(rows, v.Path, s.tokens[first:])
	var untraced error
	if s.req.Trace != nil {
		// As in keep, reading must not overwrite the tokens that follow.
		s.scores.begin(rows, s.prop.Tree, s.tokens[:first:first])
		untraced = s.callTrace(Round{Proposal: &s.prop, Scores: &s.scores, Verdict: v, Kept: kept})
		if s.closed {
			return // by Trace: the drafter and the source are no longer the sequence's
		}
	}
	v.Path, v.Next = v.Path[:kept], s.tokens[len(s.tokens)-1]
	if s.keep(e, s.prop, v, rows, s.tokens[:first]); s.skips && s.req.Drafter != nil {
		s.miss(kept)
	}
	if s.reason != "" {
		return
	}
	s.done += kept
	s.seen = s.done
	if untraced != nil {
		s.fail(named("trace", untraced))
		return
	}
	s.reason = reason
	if reason != "" {
		if err := s.callEnd(reason == Stop); err != nil {
			s.reason, s.err = Failed, err
			return
		}
	}
}

// keep commits a verdict everywhere. The source comes last but before the next
// target pass: it reads the target's hidden states.
func (s *Sequence) keep(e *Engine, p Proposal, v Verdict, rows Rows, tokens []int32) {
	if s.req.Drafter != nil {
		var start time.Time
		if s.bids {
			start = e.now()
		}
		// The drafter may ask for rows off the path. Their context must not overwrite the
		// tokens that follow.
		s.scores.begin(rows, p.Tree, tokens[:len(tokens):len(tokens)])
		if s.done >= s.seen && !s.skips {
			if err := s.callObserve(&p, v); err != nil {
				s.fail(named("observe", err))
			}
		}
		if s.req.Source != nil {
			if err := s.callTake(&p, v); err != nil {
				s.fail(named("commit to the draft source", err))
			}
		}
		if s.bids {
			s.bid.Work += e.now().Sub(start)
		}
	}
	if err := e.commit(s.id, v.Path); err != nil {
		s.fail(named(fmt.Sprintf("commit %d nodes", len(v.Path)), err))
	}
}

// checkVerdict checks that a verdict's path is in the tree; that it is a path, the target's
// commit finds out.
func (r *round) checkVerdict(v Verdict) error {
	if len(v.Path) == 0 || v.Path[0] != 0 {
		return fmt.Errorf("verify: path %v, want one that begins with the root", v.Path)
	}
	for _, n := range v.Path {
		if n < 0 || n >= r.prop.Tree.Len() {
			return fmt.Errorf("verify: path %v in a tree of %d nodes", v.Path, r.prop.Tree.Len())
		}
	}
	if v.Next < 0 || int(v.Next) >= r.scores.vocab {
		return fmt.Errorf("verify: token %d after the path, want 0..%d", v.Next, r.scores.vocab-1)
	}
	return nil
}

// unusable reports whether no verdict can be reached because numbers of the target's pass are not
// finite. If the tree has drafts, they may be the reason: attention weighs a node that a row does
// not see by zero, and zero times infinity is not a number. Plain decoding would not have run
// them, so the round begins again with the root alone. Otherwise the sequence ends, as it does in
// plain decoding.
func (s *Sequence) unusable(rows Rows) bool {
	err := rows.Err()
	switch {
	case err == nil:
		return false
	case s.prop.Tree.Len() > 1:
		s.alone = err
	default:
		s.fail(err)
	}
	return true
}
