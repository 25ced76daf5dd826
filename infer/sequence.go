package infer

import (
	"slices"

	"talf/model"
)

// A Sequence is a request being decoded. Its parts are in the files about them.
type Sequence struct {
	id SeqID
	asked
	held
	round
	bidding
	output
}

// asked is the request, with what the engine has asked its parts for: beside the loss of drafts it
// stays as it is.
type asked struct {
	req    Request
	prompt int // tokens
	eos    []int32
	maxLen int
	turn   int        // the target's Shape.Switch
	traits Traits     // of the drafter
	want   model.Want // of chunks of the prompt

	inTarget, inSource Abilities
	inProcessor        ProcessorAbilities
}

// ID names the sequence to the target and the source.
func (s *Sequence) ID() SeqID { return s.id }

// Prompt returns the prompt, which may not be changed.
func (s *Sequence) Prompt() []int32 { return slices.Clip(s.tokens[:s.prompt]) }

// left returns how many tokens the output may still have.
func (s *Sequence) left() int {
	return min(s.req.MaxTokens-(len(s.tokens)-s.prompt), s.maxLen-len(s.tokens))
}

// mostNodes returns the bound on the sequence's trees.
func (s *Sequence) mostNodes(most int) int {
	if n := s.req.MaxNodes; n > 0 {
		return min(n, most)
	}
	return most
}

// Cancel ends the sequence with the given cause: it takes no part in later rounds. The other
// sequences of a batch continue as if it had never been there, and what it holds in the target
// and its source stays until it is closed. A sequence that has ended stays as it is. Like all of
// the engine, Cancel is for the goroutine that calls Step: between two calls, or from the Trace
// of any sequence.
func (s *Sequence) Cancel(cause error) {
	if s.reason == "" {
		s.reason, s.err = Cancelled, cause
	}
}

// Fail ends the sequence as Cancel does, but as one that failed with err.
func (s *Sequence) Fail(err error) {
	if s.reason == "" {
		s.fail(err)
	}
}

// fail ends the sequence with err. A sequence that failed or was cancelled before keeps
// its reason; one whose output ended does not.
func (s *Sequence) fail(err error) {
	if s.growing = false; s.reason != Failed && s.reason != Cancelled {
		s.reason, s.err = Failed, err
	}
}

// disableDrafting makes all further rounds plain decoding, because the source is broken.
func (s *Sequence) disableDrafting(err error) {
	s.draftsOff = s.draftsOff || s.req.Drafter != nil
	s.req.Drafter, s.req.Source, s.traits, s.lost, s.missed = nil, nil, Traits{}, err, 0
}
