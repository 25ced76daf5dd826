package infer

import (
	"errors"
	"fmt"
	"runtime/debug"
)

// A PanicError is a panic of code that a request brought along, or of a model. It ends what
// called it and nothing else.
type PanicError struct {
	Op    string // what was called, such as "verify"
	Value any    // what panic was called with
	Stack []byte // of the goroutine, where it panicked
}

func (e *PanicError) Error() string { return fmt.Sprintf("%s: panic: %v", e.Op, e.Value) }

// Unwrap returns the value if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// guard turns a panic into an error. It must be deferred itself.
func guard(op string, err *error) {
	if v := recover(); v != nil {
		*err = &PanicError{Op: op, Value: v, Stack: debug.Stack()}
	}
}

func isPanic(err error) bool {
	var p *PanicError
	return errors.As(err, &p)
}

// failed is err with the operation, which a panic names already.
func failed(op string, err error) error {
	if _, ok := err.(*PanicError); ok {
		return err
	}
	return fmt.Errorf("%s: %w", op, err)
}

// The calls of a request's own parts. A panic in one of them is its error.

func callTraits(d Drafter) (t Traits, err error) {
	defer guard("traits of the drafter", &err)
	return d.Traits(), nil
}

func callStart(d Drafter, prompt []int32) (err error) {
	defer guard("start the drafter", &err)
	return d.Start(prompt)
}

func callDetok(f func() Detokenizer) (d Detokenizer, err error) {
	defer guard("make the detokenizer", &err)
	return f(), nil
}

func (s *Sequence) callGrow(rows []Row) (err error) {
	defer guard("draft", &err)
	s.wake()
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
		defer guard("draft", &err)
		return s.prop.Allow(n)
	}
}

// callFinish ends the tree of a drafter that asks for more.
func (s *Sequence) callFinish() (err error) {
	defer guard("draft", &err)
	if err := s.traits.Finish(&s.prop); err != nil {
		return fmt.Errorf("draft: %w", err)
	}
	return s.checkTree()
}

func (s *Sequence) callFits(k kind) (err error) {
	defer guard("verify", &err)
	return s.req.Verifier.Fits(k.draw, k.chain)
}

func (s *Sequence) callVerify() (v Verdict, err error) {
	defer guard("verify", &err)
	if v, err = s.req.Verifier.Verify(s.prop, &s.scores, &s.chance); err != nil {
		return v, fmt.Errorf("verify: %w", err)
	}
	return v, s.checkVerdict(v)
}

func (s *Sequence) callObserve(p *Proposal, v Verdict) (err error) {
	defer guard("observe", &err)
	s.wake()
	return s.req.Drafter.Observe(*p, v, &s.scores)
}

func (s *Sequence) callTrace(r Round) (err error) {
	defer guard("trace", &err)
	return s.req.Trace(r)
}

func (s *Sequence) callTook(t Timing) (err error) {
	defer guard("time a round", &err)
	s.traits.Took(t)
	if s.traits.Rest != nil {
		s.rest.left = s.traits.Rest()
	}
	return nil
}

func (s *Sequence) callEnded() (err error) {
	defer guard("end the drafter", &err)
	s.wake()
	s.traits.End()
	return nil
}

// callAdd detokenizes a token.
func (s *Sequence) callAdd(token int32) (stopped bool, err error) {
	defer guard("detokenize", &err)
	return s.text.Add(token), nil
}

// callComplete asks a processor that can tell whether the output is complete.
func (s *Sequence) callComplete() (ended bool, err error) {
	if s.ender == nil {
		return false, nil
	}
	defer guard("end of the output", &err)
	return s.ender.Ended(s.tokens)
}

// callEnd adds the rest of the text.
func (s *Sequence) callEnd(stopped bool) (err error) {
	defer guard("detokenize", &err)
	s.text.End(stopped)
	return nil
}

// The calls of the target and of a source for one sequence.

func (e *Engine) commit(id SeqID, path []int) (err error) {
	defer guard("commit", &err)
	return e.Target.Commit(id, path)
}

func (s *Sequence) callMatch() (n int, err error) {
	defer guard("match a prefix in the draft source", &err)
	return s.matchIn(s.req.Source, len(s.tokens))
}

func (s *Sequence) callOpen(keep int) (err error) {
	defer guard("open the draft source", &err)
	return s.openIn(s.req.Source, keep)
}

func (s *Sequence) callTake(p *Proposal, v Verdict) (err error) {
	defer guard("commit to the draft source", &err)
	return s.req.Source.Commit(s.id, *p, v, &s.scores)
}

func callRelease(src Source) (err error) {
	defer guard("release the draft source's memory", &err)
	src.(KVReleaser).ReleaseKV()
	return nil
}

func callIdle(r Releaser) (err error) {
	defer guard("release the drafters' memory", &err)
	r.Release()
	return nil
}

func (s *Sequence) callClose() (err error) {
	defer guard("close the draft source", &err)
	s.req.Source.Close(s.id)
	return nil
}
