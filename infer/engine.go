package infer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"talf/model"
	"talf/tree"
)

// An Engine decodes sequences with one target. Several sequences that are passed to one
// Step share its passes. An Engine is not safe for concurrent use.
type Engine struct {
	Target Target
	Config Config
	// Clock measures durations; nil is time.Now. A target that replays recorded passes
	// brings a clock of their costs.
	Clock func() time.Time
	// Control, if not nil, decides which drafts are worth their time, for sequences whose drafters leave that to it, and
	// for all if Config.Shared.
	Control Controller

	next    SeqID
	jobs    []Job
	owners  []*Sequence // of jobs
	prompts []rowsPart
	pass    Pass
	sources []sourceAsks
	broken  []brokenSource
	bids    []*Bid // of the round
	asking  []*Bid
	drafts  []DraftPass
	opened  []openedSource // since the last ReleaseKV
	epoch   time.Time
}

// A Config bounds what the engine does in one pass.
type Config struct {
	PrefillChunk int // prompt tokens of one sequence per pass
	MaxNodes     int // largest draft tree, root counted
	// PassRows, if not 0, bounds the rows of a pass: draft trees come first, and prompts share
	// what they leave, or an eighth of PassRows if that is more. A pass without draft trees
	// takes at least PrefillChunk rows. The output does not depend on it.
	PassRows int
	// Shared: Control decides for all sequences whose output does not depend on their trees.
	Shared bool
}

// Default returns the engine's defaults. They do not limit the trees of methods.
func Default() Config { return Config{PrefillChunk: 256, MaxNodes: tree.MaxNodes} }

// Validate checks the ranges.
func (c Config) Validate() error {
	if c.PrefillChunk < 1 || c.PrefillChunk > tree.MaxNodes {
		return fmt.Errorf("infer: prefill chunk is %d, want 1..%d", c.PrefillChunk, tree.MaxNodes)
	}
	if c.MaxNodes < 1 || c.MaxNodes > tree.MaxNodes {
		return fmt.Errorf("infer: largest tree is %d nodes, want 1..%d", c.MaxNodes, tree.MaxNodes)
	}
	if c.PassRows < 0 {
		return fmt.Errorf("infer: a pass has %d rows, want 0 or more", c.PassRows)
	}
	return nil
}

// Check reports why Open would refuse a request. It may be called from any goroutine.
func (e *Engine) Check(req *Request) error {
	shape := e.Target.Shape()
	switch {
	case len(req.Prompt) == 0:
		return errors.New("infer: the prompt has no tokens, want at least one")
	case len(req.Prompt) >= shape.MaxLen:
		return fmt.Errorf("infer: the prompt has %d tokens, want fewer than the context of %d", len(req.Prompt), shape.MaxLen)
	case req.MaxTokens < 1:
		return fmt.Errorf("infer: max tokens is %d, want at least 1", req.MaxTokens)
	case req.Verifier == nil || req.Processor == nil:
		return errors.New("infer: a request needs a verifier and a processor")
	case len(req.Stop) > 0 && req.Detok == nil:
		return errors.New("infer: stop strings need a detokenizer")
	case req.MaxNodes < 0:
		return fmt.Errorf("infer: largest tree is %d nodes, want 1 or more, or 0 for the engine's bound", req.MaxNodes)
	case req.Top < 0 || req.Top > shape.Vocab:
		return fmt.Errorf("infer: %d likeliest tokens, want 0..%d", req.Top, shape.Vocab)
	}
	for i, id := range req.Prompt {
		if id < 0 || int(id) >= shape.Vocab {
			return fmt.Errorf("infer: prompt token %d is %d, want 0..%d", i, id, shape.Vocab-1)
		}
	}
	return nil
}

// Open starts a request. The caller closes the sequence with Close.
func (e *Engine) Open(req Request) (*Sequence, error) {
	if err := e.Config.Validate(); err != nil {
		return nil, err
	}
	if err := e.Check(&req); err != nil {
		return nil, err
	}
	shape := e.Target.Shape()
	if req.Drafter == nil {
		req.Source = nil
	}
	e.next++
	s := &Sequence{id: e.next, asked: asked{req: req, prompt: len(req.Prompt), maxLen: shape.MaxLen, turn: shape.Switch}}
	s.opened = e.now()
	most := min(req.MaxTokens, shape.MaxLen-len(req.Prompt))
	s.tokens = append(make([]int32, 0, len(req.Prompt)+most+e.Config.MaxNodes), req.Prompt...)
	s.eos = req.EOS
	if s.eos == nil {
		s.eos = shape.EOS
	}
	if req.NoEOS {
		s.eos = nil
	}
	s.text.stops = req.Stop
	var err error
	if req.Detok != nil {
		if s.text.detok, err = callDetok(req.Detok); err != nil {
			return nil, err
		}
	}
	s.draft, s.chance = newSequential(req.Seed), keyed{seed: req.Seed}
	s.scores.proc, s.scores.vocab = req.Processor, shape.Vocab
	if err := s.callAbilities(e.Target); err != nil {
		return nil, err
	}
	s.scores.quantiler = s.inProcessor.Quantile
	s.want = model.WantNone
	if req.Drafter != nil {
		if s.traits, err = callTraits(req.Drafter); err != nil {
			return nil, err
		}
	}
	if s.traits.Harvest != Unread || req.PromptLogProbs {
		s.want = model.WantAll
	}

	if err := e.open(s); err != nil {
		return nil, err
	}
	if s.req.Drafter != nil {
		if err := callStart(s.req.Drafter, req.Prompt); err != nil {
			s.traits.End = nil // it has not begun
			e.Close(s)
			return nil, named("start the drafter", err)
		}
	}
	s.stats.Prompt, s.stats.Cached = len(req.Prompt), s.done
	return s, nil
}

// Preempt gives back what s holds in the target and its source. The next Step that s is part of computes it
// again; the output, the drafter and the random numbers continue as if nothing had happened. Preempt may be
// called whenever Cancel may.
func (e *Engine) Preempt(s *Sequence) {
	if s.out || s.closed || s.reason != "" {
		return
	}
	s.out, s.growing, s.done = true, false, 0
	s.stats.Preempted++
	e.release(s)
}

// open opens s in the target and its source, behind the longest prefix that both have kept.
func (e *Engine) open(s *Sequence) error {
	if err := e.brokenErr(s.req.Source); err != nil {
		s.disableDrafting(err)
	}
	s.owner = e.owner(s.req.Tenant, s.tokens)
	// The last token is the next root, so it is never taken from a prefix.
	keep, err := len(s.tokens)-1, error(nil)
	if s.traits.Harvest == Anew || s.req.PromptLogProbs {
		keep = min(keep, s.seen) // a kept prefix has no logits to harvest
	}
	if s.req.Source != nil {
		n, err := s.callMatch()
		if err != nil {
			return err
		}
		keep = min(keep, n)
	}
	// The target comes last: it may be unable to continue after what the source has.
	if keep, err = s.matchIn(e.Target, s.inTarget, keep); err != nil {
		return err
	}
	if err := s.openIn(e.Target, s.inTarget, keep); err != nil {
		return fmt.Errorf("open sequence: %w", err)
	}
	if s.req.Source != nil {
		if err := s.callOpen(keep); err != nil {
			e.Target.Close(s.id)
			return named("open the draft source", err)
		}
		e.remember(s.req.Source, s.inSource.Release)
	}
	s.done, s.seen, s.out = keep, max(s.seen, keep), false
	return nil
}

// errClosed is the Err of a sequence that was closed before its end.
var errClosed = errors.New("infer: the sequence was closed before its end")

// Close releases what s holds in the target and its source, and cancels s if it has not ended. A
// second call does nothing. Close may be called whenever Cancel may.
func (e *Engine) Close(s *Sequence) {
	if s.closed {
		return
	}
	s.closed = true
	s.Cancel(errClosed)
	if !s.out {
		e.release(s)
	}
	if s.traits.End != nil || s.missed > 0 {
		if err := s.callEnded(); err != nil {
			s.fail(err)
		}
	}
}

// release closes s in the target and its source.
func (e *Engine) release(s *Sequence) {
	e.Target.Close(s.id)
	if s.req.Source != nil {
		if err := s.callClose(); err != nil {
			e.breakSource(s.req.Source, err)
		}
	}
}

// now returns the time. A round reads it a dozen times, and a difference of monotonic times is cheaper than
// time.Now, which reads the wall clock as well.
func (e *Engine) now() time.Time {
	if e.Clock != nil {
		return e.Clock()
	}
	if e.epoch.IsZero() {
		e.epoch = time.Now()
	}
	return e.epoch.Add(time.Since(e.epoch))
}

// Generate decodes one request until it ends. After an error the sequence has the tokens decoded
// so far. The sequence's reason is Cancelled if ctx ended, otherwise Failed.
//
// It is the simplest way to use an engine, for tests and tools. Package infer/loop serves any number of
// requests.
func (e *Engine) Generate(ctx context.Context, req Request) (*Sequence, error) {
	return e.Stream(ctx, req, nil)
}

// Stream is Generate with a function that is called after each round with what is new, unless it
// is nil. An error of it ends the sequence.
func (e *Engine) Stream(ctx context.Context, req Request, emit func(Delta) error) (*Sequence, error) {
	s, err := e.Open(req)
	if err != nil {
		return nil, err
	}
	defer e.Close(s)
	var read Reader
	for seqs := []*Sequence{s}; s.reason == ""; {
		err := ctx.Err()
		if err == nil {
			err = e.Step(ctx, seqs)
		}
		if err != nil {
			if ctx.Err() != nil {
				s.Cancel(err)
			} else {
				s.fail(err)
			}
			return s, err
		}
		now := s.Snapshot()
		if d, ok := read.Next(&now); ok && emit != nil {
			if err := emit(d); err != nil {
				s.reason, s.err = Failed, fmt.Errorf("emit: %w", err)
			}
		}
	}
	return s, s.err
}
