package infer

import (
	"fmt"
)

// The calls of a request's own parts. A panic in one of them is its error.

func callTraits(d Drafter) (t Traits, err error) {
	defer catch("traits of the drafter", &err)
	return d.Traits(), nil
}

// callAbilities asks what the parts of s can do.
func (s *Sequence) callAbilities(t Target) (err error) {
	defer catch("abilities", &err)
	s.inTarget, s.inProcessor = t.Abilities(), s.req.Processor.Abilities()
	if s.req.Source != nil {
		s.inSource = s.req.Source.Abilities()
	}
	return nil
}

func callStart(d Drafter, prompt []int32) (err error) {
	defer catch("start the drafter", &err)
	return d.Start(prompt)
}

func callDetok(f func() Detokenizer) (d Detokenizer, err error) {
	defer catch("make the detokenizer", &err)
	return f(), nil
}

func (s *Sequence) callGrow(rows []Row) (err error) {
	defer catch("draft", &err)
	if err := s.replay(); err != nil {
		return named("observe", err)
	}
	ask, err := s.req.Drafter.Grow(&s.prop, rows, s.draft)
	if err != nil {
		return fmt.Errorf("draft: %w", err)
	}
	return s.grown(ask) // which reads the drafter's own trees
}

// allow returns what the drafter says may follow nodes. A panic in it ends the sequence, not the
// pass of the source that calls it.
func (s *Sequence) allow() func(n int) []uint64 {
	if s.prop.Allow == nil {
		return nil
	}
	return func(n int) (tokens []uint64) {
		var err error
		defer func() {
			if err != nil {
				s.fail(err)
			}
		}()
		defer catch("draft", &err)
		return s.prop.Allow(n)
	}
}

// callFinish ends the tree of a drafter that asks for more.
func (s *Sequence) callFinish() (err error) {
	defer catch("draft", &err)
	if err := s.traits.Finish(&s.prop); err != nil {
		return fmt.Errorf("draft: %w", err)
	}
	return s.checkTree()
}

func (s *Sequence) callFits(k kind) (err error) {
	defer catch("verify", &err)
	return s.req.Verifier.Fits(k.draw, k.chain)
}

func (s *Sequence) callVerify() (v Verdict, err error) {
	defer catch("verify", &err)
	if v, err = s.req.Verifier.Verify(s.prop, &s.scores, &s.chance); err != nil {
		return v, fmt.Errorf("verify: %w", err)
	}
	return v, s.checkVerdict(v)
}

func (s *Sequence) callObserve(p *Proposal, v Verdict) (err error) {
	defer catch("observe", &err)
	if err := s.replay(); err != nil {
		return err
	}
	return s.req.Drafter.Observe(*p, v, &s.scores)
}

func (s *Sequence) callTrace(r Round) (err error) {
	defer catch("trace", &err)
	return s.req.Trace(r)
}

func (s *Sequence) callEnded() (err error) {
	defer catch("end the drafter", &err)
	if err := s.replay(); err != nil {
		return err
	}
	if s.traits.End != nil {
		s.traits.End()
	}
	return nil
}

// callAdd detokenizes a token.
func (s *Sequence) callAdd(token int32) (stopped bool, err error) {
	defer catch("detokenize", &err)
	return s.text.add(token), nil
}

// callComplete asks a processor that can tell whether the output is complete.
func (s *Sequence) callComplete() (ended bool, err error) {
	if s.inProcessor.End == nil {
		return false, nil
	}
	defer catch("end of the output", &err)
	return s.inProcessor.End.Ended(s.tokens)
}

// callEnd adds the rest of the text.
func (s *Sequence) callEnd(stopped bool) (err error) {
	defer catch("detokenize", &err)
	s.text.end(stopped)
	return nil
}

// The calls of the target and of a source for one sequence.

func (e *Engine) commit(id SeqID, path []int) (err error) {
	defer catch("commit", &err)
	return e.Target.Commit(id, path)
}

func (s *Sequence) callMatch() (n int, err error) {
	defer catch("match a prefix in the draft source", &err)
	return s.matchIn(s.req.Source, s.inSource, len(s.tokens))
}

func (s *Sequence) callOpen(keep int) (err error) {
	defer catch("open the draft source", &err)
	return s.openIn(s.req.Source, s.inSource, keep)
}

func (s *Sequence) callTake(p *Proposal, v Verdict) (err error) {
	defer catch("commit to the draft source", &err)
	return s.req.Source.Commit(s.id, *p, v, &s.scores)
}

func callRelease(pool KVReleaser) (err error) {
	defer catch("release the draft source's memory", &err)
	pool.ReleaseKV()
	return nil
}

func (s *Sequence) callClose() (err error) {
	defer catch("close the draft source", &err)
	s.req.Source.Close(s.id)
	return nil
}
