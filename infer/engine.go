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

// An Engine decodes sequences with one target. It is not safe for concurrent
// use; batching is passing several sequences to Step.
type Engine struct {
	Target Target
	Config Config
	// Clock is what durations are measured with; nil is time.Now. A target whose
	// passes are recorded ones has a clock of their costs.
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

// Default returns the engine's defaults. Trees may be as large as a method asks.
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

// A Request is what to decode and how.
type Request struct {
	Prompt    []int32
	MaxTokens int     // most tokens to emit
	EOS       []int32 // tokens that end the output; nil means the target's
	NoEOS     bool    // let no token end the output
	Seed      uint64

	// Drafter, Verifier and Processor belong to the sequence until it is closed.
	// A nil Drafter is plain decoding. Source may serve any number of sequences
	// and is nil where the drafter asks none.
	Drafter   Drafter
	Source    Source
	Verifier  Verifier
	Processor Processor

	// Detok makes what turns this sequence's tokens into text; it is needed for
	// Stop and for Delta.Text.
	Detok func() Detokenizer
	Stop  []string // the output ends before the first of these
	// Emit is called after each round with what is new; an error ends the sequence.
	Emit func(Delta) error
	// Trace is called in each round once its verdict is known; an error ends the
	// sequence.
	Trace func(Round) error
}

// A Delta is what one round adds to the output. Text lags behind Tokens where a
// character is incomplete or a stop string may have begun.
type Delta struct {
	Tokens []int32
	Text   string
	Reason Reason
}

// A Reason says why a sequence ended.
type Reason string

// The reasons. A sequence that is not done has none.
const (
	EOS       Reason = "eos"
	Length    Reason = "length"
	Stop      Reason = "stop"
	Failed    Reason = "error"
	Cancelled Reason = "cancelled" // by Cancel, or closed before its end
)

// A Sequence is a request being decoded.
type Sequence struct {
	id      SeqID
	req     Request
	eos     []int32
	maxLen  int
	tokens  []int32 // prompt and output; the last is the next root
	prompt  int
	done    int // tokens in the target's KV store
	reason  Reason
	err     error
	text    textStream
	stats   Stats
	opened  time.Time
	draft   sequential
	chance  keyed
	scores  scores
	prop    Proposal
	root    tree.Tree // the tree that the engine hands out
	chain   tree.Tree // a chunk of the prompt
	path    []int
	ran     int // nodes of the work tree that a source ran
	growing bool
	closed  bool
	fits    kind   // of the last tree that the verifier was asked about
	traits  Traits // of the drafter
	want    model.Want
	timing  Timing // of the round that is under way
}

// A kind is what decides whether a verifier fits a tree.
type kind struct {
	draw  Draw
	chain bool
	known bool // the zero kind is none
}

// Tokens returns the output so far; it is the sequence's own slice.
func (s *Sequence) Tokens() []int32 { return s.tokens[s.prompt:] }

// Text returns the output's text, stop string excluded; empty without Detok.
func (s *Sequence) Text() string { return s.text.text }

// Done reports whether the sequence has ended, and why.
func (s *Sequence) Done() (Reason, bool) { return s.reason, s.reason != "" }

// Err returns what made the sequence fail, or why it was cancelled.
func (s *Sequence) Err() error { return s.err }

// Cancel ends the sequence for the given reason: it takes no part in later rounds. The
// other sequences of a batch go on as if it had never been there, and what it holds in
// the target and its source stays until it is closed. A sequence that has ended stays
// as it is. Like all of the engine, Cancel is for the goroutine that calls Step: between
// two calls, or from the Emit or Trace of any sequence.
func (s *Sequence) Cancel(cause error) {
	if s.reason == "" {
		s.reason, s.err = Cancelled, cause
	}
}

// Stats returns the counts so far.
func (s *Sequence) Stats() *Stats { return &s.stats }

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

	// The last prompt token is the first root: it is never taken from a prefix.
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

// Close gives back what s holds in the target and its source, and cancels s if it has
// not ended. A second call does nothing. Close may be called when Cancel may.
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

// Step runs one round of every sequence that is not done: a chunk of its prompt,
// or a draft, one target pass and a verdict. An error is a pass that failed or
// was cancelled; the sequences are then as before the call and Step may be
// called again, with any of them. What goes wrong in a single sequence ends that one,
// with its Err. The set of sequences may change from call to call: none depends on
// which others are in it.
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

// draftAll grows the proposals of all sequences, level by level, one pass of each
// source for all that ask it. It returns the time spent in these passes.
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
			// Without asks this runs the chunks of prompts that came last.
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
	// A source is forgotten with the last sequence that used it.
	e.sources = slices.DeleteFunc(e.sources, func(q sourceAsks) bool {
		return !slices.ContainsFunc(seqs, func(s *Sequence) bool { return s.req.Source == q.source })
	})
	return spent, nil
}

func (p *Proposal) work() *tree.Tree {
	if p.Work != nil {
		return p.Work
	}
	return p.Tree
}

func (s *Sequence) prefilling() bool { return s.done < s.prompt-1 }

// fail ends the sequence with err. What ended it before remains its reason, other than
// the end of its output.
func (s *Sequence) fail(err error) {
	if s.growing = false; s.reason != Failed && s.reason != Cancelled {
		s.reason, s.err = Failed, err
	}
}

// beginRound makes an empty proposal and the drafter's first call.
func (s *Sequence) beginRound(maxNodes int) {
	left := min(s.req.MaxTokens-(len(s.tokens)-s.prompt), s.maxLen-len(s.tokens))
	s.root.Reset(s.tokens[len(s.tokens)-1], maxNodes)
	s.prop = Proposal{Tree: &s.root, Pos: len(s.tokens) - 1, MaxNodes: maxNodes}
	s.ran, s.growing = 0, false
	// A round emits its accepted nodes and one token more.
	if s.req.Drafter == nil || left < 2 || maxNodes < 2 {
		return
	}
	s.prop.MaxDepth = left - 1
	s.grow(nil)
}

// grow hands rows to the drafter and notes what it asks next.
func (s *Sequence) grow(rows []Row) {
	ask, err := s.req.Drafter.Grow(&s.prop, rows, s.draft)
	if err != nil {
		s.fail(fmt.Errorf("draft: %w", err))
		return
	}
	if s.growing = len(ask) > 0; !s.growing {
		if err := s.checkTree(); err != nil {
			s.fail(err)
		}
		return
	}
	w := s.prop.work()
	switch {
	case s.req.Source == nil:
		s.fail(errors.New("draft: the drafter asks a source and the request has none"))
	case s.ran == 0 && w.Len() != 1:
		s.fail(fmt.Errorf("draft: asked for %d nodes at first, want the root alone", w.Len()))
	case ask[0] != s.ran || len(ask) != w.Len()-s.ran:
		s.fail(fmt.Errorf("draft: asked for %d nodes from %d, want all of [%d,%d)", len(ask), ask[0], s.ran, w.Len()))
	}
}

// checkTree holds a finished tree to the contract, because a pass that it breaks
// would fail for all sequences, and to what the verifier is lossless with.
func (s *Sequence) checkTree() error {
	t := s.prop.Tree
	if n := t.Len(); n > s.prop.MaxNodes {
		return fmt.Errorf("draft: a tree of %d nodes, want at most %d", n, s.prop.MaxNodes)
	}
	for n, token := range t.Tokens() {
		if d := t.Depth(n); d > s.prop.MaxDepth {
			return fmt.Errorf("draft: node %d is %d edges deep, want at most %d", n, d, s.prop.MaxDepth)
		}
		if token < 0 || int(token) >= s.scores.vocab {
			return fmt.Errorf("draft: node %d has token %d, want 0..%d", n, token, s.scores.vocab-1)
		}
	}
	if k := (kind{s.prop.Draw(), s.prop.Chain(), true}); s.prop.LiveNodes() > 1 && k != s.fits {
		if err := s.req.Verifier.Fits(k.draw, k.chain); err != nil {
			return err
		}
		s.fits = k
	}
	return nil
}

// chunk builds the next part of the prompt as a chain.
func (s *Sequence) chunk(most int) *tree.Tree {
	n := min(most, s.prompt-1-s.done)
	s.chain.Reset(s.tokens[s.done], n)
	for i := 1; i < n; i++ {
		s.chain.Add(i-1, s.tokens[s.done+i])
	}
	return &s.chain
}

func (s *Sequence) keepChunk(e *Engine, rows Rows) {
	n := s.chain.Len()
	s.path = s.path[:0]
	for i := range n {
		s.path = append(s.path, i)
	}
	p := Proposal{Tree: &s.chain, Pos: s.done, MaxNodes: n, MaxDepth: n - 1}
	v := Verdict{Path: s.path, Next: s.tokens[s.done+n]}
	s.keep(e, p, v, rows, s.tokens[:s.done+1])
	s.done += n
}

// keep commits a verdict everywhere. The source comes last but before the next
// target pass: it reads the target's hidden states.
func (s *Sequence) keep(e *Engine, p Proposal, v Verdict, rows Rows, tokens []int32) {
	if s.req.Drafter != nil {
		// The drafter may ask for rows off the path, whose context must not be
		// written over the tokens that follow.
		s.scores.begin(rows, p.Tree, tokens[:len(tokens):len(tokens)])
		if err := s.req.Drafter.Observe(p, v, &s.scores); err != nil {
			s.fail(fmt.Errorf("observe: %w", err))
		}
		if s.req.Source != nil {
			if err := s.req.Source.Commit(s.id, p, v, &s.scores); err != nil {
				s.fail(fmt.Errorf("commit to the draft source: %w", err))
			}
		}
	}
	if err := e.Target.Commit(s.id, v.Path); err != nil {
		s.fail(fmt.Errorf("commit %d nodes: %w", len(v.Path), err))
	}
}

// finishRound verifies a scored proposal, commits what is kept and emits it.
func (s *Sequence) finishRound(e *Engine, rows Rows) {
	start := e.now()
	s.scores.begin(rows, s.prop.Tree, s.tokens)
	s.chance.begin(s.prop.Pos)
	v, err := s.req.Verifier.Verify(s.prop, &s.scores, &s.chance)
	if err != nil {
		s.fail(fmt.Errorf("verify: %w", err))
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
		switch {
		case slices.Contains(s.eos, tok):
			reason = EOS
		case s.text.add(tok):
			reason = Stop
		case len(s.tokens)-s.prompt >= s.req.MaxTokens || len(s.tokens) >= s.maxLen:
			reason = Length
		}
	}
	kept := len(s.tokens) - first
	s.stats.round(&s.prop, v.Path, kept)
	var untraced error
	if s.req.Trace != nil {
		// As in keep, what is read must not write over the tokens that follow.
		s.scores.begin(rows, s.prop.Tree, s.tokens[:first:first])
		begin := e.now()
		untraced = s.req.Trace(Round{Proposal: &s.prop, Scores: &s.scores, Verdict: v, Kept: kept})
		start = start.Add(e.now().Sub(begin))
	}
	v.Path, v.Next = v.Path[:kept], s.tokens[len(s.tokens)-1]
	s.keep(e, s.prop, v, rows, s.tokens[:first])
	if s.reason != "" {
		return
	}
	s.done += kept
	if untraced != nil {
		s.fail(fmt.Errorf("trace: %w", untraced))
		return
	}
	s.reason = reason
	text := ""
	if reason != "" {
		text = s.text.end(reason == Stop)
	} else {
		text = s.text.take()
	}
	if s.traits.Took != nil {
		s.timing.Overhead += e.now().Sub(start)
		s.traits.Took(s.timing)
	}
	if s.req.Emit == nil {
		return
	}
	if err := s.req.Emit(Delta{Tokens: s.tokens[first:], Text: text, Reason: reason}); err != nil {
		s.fail(fmt.Errorf("emit: %w", err))
	}
}

// Generate decodes one request to its end. After an error, the sequence holds
// what was decoded until then; Emit may not have seen the tokens of a round that
// failed behind its verdict.
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
			s.Cancel(err)
			return s, err
		}
	}
	return s, s.err
}

// ID names the sequence to the target and the source.
func (s *Sequence) ID() SeqID { return s.id }
