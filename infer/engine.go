package infer

import (
	"context"
	"errors"
	"fmt"
	"slices"
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

	next    SeqID
	jobs    []Job
	owners  []*Sequence
	sources []sourceAsks
}

// A Config bounds what the engine does in one pass.
type Config struct {
	PrefillChunk int // prompt tokens of one sequence per pass
	MaxNodes     int // largest draft tree, root counted
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
	return nil
}

// Open starts a request. The caller closes the sequence with Close.
func (e *Engine) Open(req Request) (*Sequence, error) {
	if err := e.Config.Validate(); err != nil {
		return nil, err
	}
	shape := e.Target.Shape()
	switch {
	case len(req.Prompt) == 0:
		return nil, errors.New("infer: the prompt has no tokens, want at least one")
	case len(req.Prompt) >= shape.MaxLen:
		return nil, fmt.Errorf("infer: the prompt has %d tokens, want fewer than the context of %d", len(req.Prompt), shape.MaxLen)
	case req.MaxTokens < 1:
		return nil, fmt.Errorf("infer: max tokens is %d, want at least 1", req.MaxTokens)
	case req.Verifier == nil || req.Processor == nil:
		return nil, errors.New("infer: a request needs a verifier and a processor")
	case len(req.Stop) > 0 && req.Detok == nil:
		return nil, errors.New("infer: stop strings need a detokenizer")
	}
	for i, id := range req.Prompt {
		if id < 0 || int(id) >= shape.Vocab {
			return nil, fmt.Errorf("infer: prompt token %d is %d, want 0..%d", i, id, shape.Vocab-1)
		}
	}
	if req.Drafter == nil {
		req.Source = nil
	}
	e.next++
	s := &Sequence{id: e.next, req: req, prompt: len(req.Prompt), maxLen: shape.MaxLen, opened: e.now()}
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
	if req.Detok != nil {
		s.text.detok = req.Detok()
	}
	s.draft, s.chance = newSequential(req.Seed), keyed{seed: req.Seed}
	s.scores.proc, s.scores.vocab = req.Processor, shape.Vocab
	s.want = model.WantNone
	if req.Drafter != nil {
		s.traits = req.Drafter.Traits()
	}
	if s.traits.Harvest {
		s.want = model.WantAll
	}

	// The last prompt token is the first root, so it is never taken from a prefix.
	keep := min(e.Target.Match(req.Prompt), len(req.Prompt)-1)
	if req.Source != nil {
		keep = min(keep, req.Source.Match(req.Prompt))
	}
	if s.traits.Harvest && !s.traits.Keeps {
		keep = 0 // a kept prefix has no logits to harvest
	}
	if err := e.Target.Open(s.id, req.Prompt, keep); err != nil {
		return nil, fmt.Errorf("open sequence: %w", err)
	}
	if req.Source != nil {
		if err := req.Source.Open(s.id, req.Prompt, keep); err != nil {
			e.Target.Close(s.id)
			return nil, fmt.Errorf("open the draft source: %w", err)
		}
	}
	if req.Drafter != nil {
		if err := req.Drafter.Start(req.Prompt); err != nil {
			e.Close(s)
			return nil, fmt.Errorf("start the drafter: %w", err)
		}
	}
	s.done, s.stats.Prompt, s.stats.Cached = keep, len(req.Prompt), keep
	return s, nil
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
	e.Target.Close(s.id)
	if s.req.Source != nil {
		s.req.Source.Close(s.id)
	}
}

func (e *Engine) now() time.Time {
	if e.Clock != nil {
		return e.Clock()
	}
	return time.Now()
}

// sourceAsks are the asks of one pass of one source.
type sourceAsks struct {
	source Source
	asks   []Ask
	owners []*Sequence
	used   bool // ran in this step
}

func (e *Engine) asksOf(src Source) *sourceAsks {
	for i := range e.sources {
		if e.sources[i].source == src {
			return &e.sources[i]
		}
	}
	e.sources = append(e.sources, sourceAsks{source: src})
	return &e.sources[len(e.sources)-1]
}

// Step runs one round of every sequence that is not done: a chunk of its prompt, or a draft, one
// target pass and a verdict. An error means that a pass failed or was cancelled. Then the
// sequences are as before the call, and Step may be called again with any of them. A failure in
// a single sequence ends only that one, with its Err. The set of sequences may change from call
// to call: none depends on which others are in it.
func (e *Engine) Step(ctx context.Context, seqs []*Sequence) error {
	begin := e.now()
	drafting, err := e.draftAll(ctx, seqs)
	if err != nil {
		return fmt.Errorf("draft: %w", err)
	}

	e.jobs, e.owners = e.jobs[:0], e.owners[:0]
	nodes := 0
	for _, s := range seqs {
		switch {
		case s.reason != "":
			continue
		case s.prefilling():
			e.jobs = append(e.jobs, Job{ID: s.id, Tree: s.chunk(e.Config.PrefillChunk), Want: s.want})
		default:
			e.jobs = append(e.jobs, Job{ID: s.id, Tree: s.prop.Tree, Want: model.WantAll})
		}
		e.owners = append(e.owners, s)
		nodes += e.jobs[len(e.jobs)-1].Tree.Len()
	}
	if len(e.jobs) == 0 {
		return nil
	}
	start := e.now()
	rows, err := e.Target.Score(ctx, e.jobs)
	if err != nil {
		return fmt.Errorf("score %d nodes: %w", nodes, err)
	}
	verifying := e.now().Sub(start)

	for i, s := range e.owners {
		if s.reason != "" {
			continue // cancelled by another's Emit or Trace
		}
		if s.prefilling() {
			s.keepChunk(e, rows[i])
			if s.reason == "" {
				s.stats.Prefill += e.now().Sub(begin)
			}
			continue
		}
		s.stats.Draft += drafting
		s.stats.Verify += verifying
		s.timing.Rows, s.timing.Nodes, s.timing.Verify = nodes, e.jobs[i].Tree.Len(), verifying
		s.finishRound(e, rows[i])
		took := e.now().Sub(begin)
		s.stats.Decode += took
		s.stats.Overhead += took - drafting - verifying
		if s.stats.TTFT == 0 {
			s.stats.TTFT = e.now().Sub(s.opened)
		}
	}
	return nil
}

// draftAll grows the proposals of all sequences, level by level. Each level is one pass
// of each source for all sequences that ask it. It returns the time spent in these
// passes.
func (e *Engine) draftAll(ctx context.Context, seqs []*Sequence) (time.Duration, error) {
	for i := range e.sources {
		e.sources[i].used = false
	}
	for _, s := range seqs {
		if s.reason == "" && !s.prefilling() {
			start := e.now()
			s.beginRound(e.Config.MaxNodes)
			s.timing = Timing{Overhead: e.now().Sub(start)}
		}
		if s.req.Source != nil {
			e.asksOf(s.req.Source)
		}
	}
	var spent time.Duration
	for {
		for i := range e.sources {
			q := &e.sources[i]
			q.asks, q.owners = q.asks[:0], q.owners[:0]
		}
		asked := false
		for _, s := range seqs {
			if s.reason != "" || !s.growing {
				continue
			}
			w := s.prop.work()
			q := e.asksOf(s.req.Source)
			q.asks = append(q.asks, Ask{ID: s.id, Tree: w, From: s.ran, Width: s.prop.Width, Full: s.prop.Full})
			q.owners = append(q.owners, s)
			asked = true
		}
		start := e.now()
		for i := range e.sources {
			q := &e.sources[i]
			if len(q.asks) == 0 && (asked || q.used) {
				continue
			}
			q.used = true
			// Without asks this runs the prompt chunks that were committed last.
			rows, err := q.source.Rows(ctx, q.asks)
			if err != nil {
				return 0, err
			}
			answered := e.now()
			took := answered.Sub(start)
			spent += took
			for _, s := range q.owners {
				n := s.prop.work().Len() - s.ran
				s.ran += n
				s.grow(rows[:n:n])
				rows = rows[n:]
				start, answered = answered, e.now()
				s.timing.Steps++
				s.timing.Asked += n
				s.timing.Draft += took
				s.timing.Overhead += answered.Sub(start)
			}
			start = answered
		}
		if !asked {
			break
		}
	}
	// A source is forgotten once no sequence uses it.
	e.sources = slices.DeleteFunc(e.sources, func(q sourceAsks) bool {
		return !slices.ContainsFunc(seqs, func(s *Sequence) bool { return s.req.Source == q.source })
	})
	return spent, nil
}

// Generate decodes one request until it ends. After an error the sequence has the tokens decoded
// so far. Emit may not have seen the tokens of a round that failed after its verdict. The
// sequence's reason is Cancelled if ctx ended, otherwise Failed.
func (e *Engine) Generate(ctx context.Context, req Request) (*Sequence, error) {
	s, err := e.Open(req)
	if err != nil {
		return nil, err
	}
	defer e.Close(s)
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
	}
	return s, s.err
}
