package infer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"talf/model"
)

// A Pass says what a step did.
type Pass struct {
	Rows    int // of the target's pass
	Prompt  int // of these, rows of prompts and of what was preempted
	Trees   int // draft trees scored
	Passes  int // of sources, for which all sequences wait
	Draft   time.Duration
	Verify  time.Duration
	Took    time.Duration // the whole step
	Delayed int           // sequences whose prompts had to wait because the KV pool was full
	Dropped int           // sequences preempted
	Tokens  int           // emitted
	Drafted int           // trees with more than their root
	Drafts  []DraftPass   // of sources, valid until the next step
}

// A DraftPass is a pass of a source.
type DraftPass struct {
	Source Source
	Rows   int
	Later  bool // no round began with it, and no text was read
	Took   time.Duration
}

// LastPass returns what the last step did. It is zero if the step failed or had nothing to do.
func (e *Engine) LastPass() Pass { return e.pass }

// Step runs one round of every sequence that is not done: a chunk of its prompt, or a draft, one
// target pass and a verdict. An error means that a pass failed or was cancelled. Then the
// sequences are as before the call, and Step may be called again with any of them. A failure in
// a single sequence ends only that one, with its Err. The set of sequences may change from call
// to call: none depends on which others are in it.
//
// Their order is their rank. If the KV pool is full, the last of them make room: first prompts wait, then
// rounds run without drafts, and finally sequences are preempted, which Preempted reports. The next Step that
// is given a preempted sequence computes it again. The first sequence always makes progress; if the pool is
// too small for it alone, it fails with an error that wraps model.ErrKVFull.
//
// A panic of a request's own parts is a failure of its sequence, with a *PanicError. If a pass of a source
// fails, the sequences that asked it run this round without drafts, which Undrafted reports; after a panic in
// it they never draft again. A panic of the target is an error of Step that wraps a *PanicError, after which
// the engine must not be used.
func (e *Engine) Step(ctx context.Context, seqs []*Sequence) error {
	begin := e.now()
	e.pass = Pass{}
	e.reopen(seqs)
	pass := Pass{Drafts: e.drafts[:0]}
	var err error
	if pass.Draft, err = e.draftAll(ctx, seqs, &pass); err != nil {
		return fmt.Errorf("draft: %w", err)
	}
	if e.Control != nil {
		e.cut(seqs)
	}
	e.fill(seqs)
	if len(e.jobs) == 0 {
		return nil
	}
	var rows []Rows
	var start time.Time
	for {
		start = e.now()
		if rows, err = e.score(ctx); err == nil {
			break
		}
		if !errors.Is(err, model.ErrKVFull) || ctx.Err() != nil {
			return fmt.Errorf("score %d nodes: %w", e.rows(), err)
		}
		if e.makeRoom(seqs, err, &pass); len(e.jobs) == 0 {
			return nil
		}
	}
	now := e.now()
	pass.Verify = now.Sub(start)
	pass.Rows = e.rows()
	for i, s := range e.owners {
		if s.reason != "" {
			continue // cancelled by another's Trace
		}
		if s.prefilling() {
			pass.Prompt += e.jobs[i].Tree.Len()
			s.keepChunk(e, rows[i])
			if now = e.now(); s.reason == "" {
				s.stats.Prefill += now.Sub(begin)
			}
			continue
		}
		if s.unusable(rows[i]) {
			continue
		}
		pass.Trees++
		s.stats.Draft += pass.Draft
		s.stats.Verify += pass.Verify
		if s.nodes = e.jobs[i].Tree.Len(); s.nodes > 1 {
			pass.Drafted++
		}
		before := len(s.tokens)
		s.finishRound(e, rows[i])
		pass.Tokens += len(s.tokens) - before
		now = e.now()
		took := now.Sub(begin)
		s.stats.Decode += took
		s.stats.Overhead += took - pass.Draft - pass.Verify
		if s.stats.TTFT == 0 && s.stats.Tokens > 0 {
			s.stats.TTFT = now.Sub(s.opened)
		}
	}
	pass.Took = now.Sub(begin)
	e.pass, e.drafts = pass, pass.Drafts
	if e.Control != nil {
		e.learn(seqs)
	}
	return nil
}

// reopen opens preempted sequences again, and starts those again that have become long texts (Shape.Switch).
func (e *Engine) reopen(seqs []*Sequence) {
	for _, s := range seqs {
		if s.outgrown() {
			s.out, s.growing, s.done = true, false, 0
			e.release(s)
		}
		if s.out && s.reason == "" {
			if err := e.open(s); err != nil {
				s.fail(fmt.Errorf("begin again after a preemption: %w", err))
			}
		}
	}
}

// fill makes the jobs of a pass: the trees of rounds, and chunks of prompts in the rows that are left.
func (e *Engine) fill(seqs []*Sequence) {
	e.jobs, e.owners, e.prompts = e.jobs[:0], e.owners[:0], e.prompts[:0]
	trees := 0
	for _, s := range seqs {
		switch {
		case s.reason != "" || s.out:
		case s.prefilling():
			e.prompts = append(e.prompts, rowsPart{left: min(s.Pending(), e.Config.PrefillChunk)})
		default:
			trees += s.prop.Tree.Len()
		}
	}
	shareRows(e.prompts, e.promptRows(trees))
	next := 0
	for _, s := range seqs {
		switch {
		case s.reason != "" || s.out:
			continue
		case s.prefilling():
			n := e.prompts[next].rows
			if next++; n == 0 {
				continue
			}
			e.jobs = append(e.jobs, s.nextChunk(n))
		default:
			e.jobs = append(e.jobs, Job{ID: s.id, Tree: s.prop.Tree, Want: model.WantAll, Draws: s.wishes(e)})
		}
		e.owners = append(e.owners, s)
	}
}

func (e *Engine) rows() (n int) {
	for i := range e.jobs {
		n += e.jobs[i].Tree.Len()
	}
	return n
}

// releaseEnded releases a sequence that has ended and is not closed yet. It reports false if there is none.
func (e *Engine) releaseEnded(seqs []*Sequence) bool {
	for _, s := range seqs {
		if s.reason != "" && !s.out && !s.closed {
			s.out = true
			e.release(s)
			return true
		}
	}
	return false
}

// makeRoom takes rows or blocks from the sequence of the lowest rank that has some to give.
func (e *Engine) makeRoom(seqs []*Sequence, full error, pass *Pass) {
	drop := func(i int) {
		e.jobs, e.owners = slices.Delete(e.jobs, i, i+1), slices.Delete(e.owners, i, i+1)
	}
	if e.releaseEnded(seqs) {
		return
	}
	// First a prompt waits. It keeps what it holds.
	for i := len(e.owners) - 1; i > 0; i-- {
		if e.owners[i].prefilling() {
			drop(i)
			pass.Delayed++
			return
		}
	}
	// Then a round runs without drafts, unless its tree was drawn at random: a sampled output depends on such
	// a tree, and must not depend on the size of the pool.
	for i := len(e.owners) - 1; i >= 0; i-- {
		if s := e.owners[i]; !s.prefilling() && s.prop.Tree.Len() > 1 && !s.drawn() {
			s.plain(full)
			e.jobs[i].Tree, e.jobs[i].Draws = s.prop.Tree, s.wishes(e)
			return
		}
	}
	// Then a sequence is preempted.
	first := e.owners[0]
	for _, s := range slices.Backward(seqs) {
		if s == first || s.reason != "" || s.out {
			continue
		}
		if i := slices.Index(e.owners, s); i >= 0 {
			drop(i)
		}
		e.Preempt(s)
		pass.Dropped++
		return
	}
	if n := e.jobs[0].Tree.Len(); n > 1 {
		if first.prefilling() {
			e.jobs[0] = first.nextChunk(n / 2)
		} else {
			first.plain(full)
			e.jobs[0].Tree, e.jobs[0].Draws = first.prop.Tree, first.wishes(e)
		}
		return
	}
	first.fail(fmt.Errorf("infer: keys and values of %d tokens: %w", len(first.tokens), full))
	drop(0)
	first.out = true
	e.release(first)
}

// draftAll grows the proposals of all sequences, level by level. Each level is one pass
// of each source for all sequences that ask it. It returns the time spent in these
// passes.
func (e *Engine) draftAll(ctx context.Context, seqs []*Sequence, pass *Pass) (spent time.Duration, err error) {
	for _, s := range seqs {
		if err := e.brokenErr(s.req.Source); err != nil {
			s.disableDrafting(err)
		}
	}
	e.bid(seqs)
	for _, s := range seqs {
		if s.reason == "" && !s.prefilling() {
			if s.nodes, s.steps = 0, 0; s.bids {
				begin := e.now()
				s.beginRound(s.mostNodes(e.Config.MaxNodes))
				s.bid.Work = e.now().Sub(begin)
			} else {
				s.beginRound(s.mostNodes(e.Config.MaxNodes))
			}
		}
	}
	for level := 0; ; level++ {
		for i := range e.sources {
			q := &e.sources[i]
			q.asks, q.owners, q.backlog, q.reads = q.asks[:0], q.owners[:0], q.backlog[:0], q.reads[:0]
		}
		asked := false
		for _, s := range seqs {
			if s.reason != "" || !s.growing {
				continue
			}
			w, waits := s.prop.work(), 0
			if s.ran == 0 && e.Control != nil {
				waits = s.backlog()
			}
			q := e.asksOf(s.req.Source)
			q.asks = append(q.asks, Ask{ID: s.id, Tree: w, From: s.ran, Width: s.prop.Width, Full: s.prop.Full, Allow: s.allow()})
			q.owners, q.backlog = append(q.owners, s), append(q.backlog, waits)
			asked = true
		}
		if level == 0 {
			e.readAhead(seqs)
		}
		for i := range e.sources {
			q := &e.sources[i]
			if len(q.asks) > 0 {
				e.ration(q)
			}
			if len(q.asks)+len(q.reads) == 0 {
				continue
			}
			took, err := e.draftPass(ctx, q, seqs, pass)
			if err != nil {
				return 0, err
			}
			spent += took
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

// draftPass runs a pass of a source and hands its rows to the sequences that asked.
func (e *Engine) draftPass(ctx context.Context, q *sourceAsks, seqs []*Sequence, pass *Pass) (took time.Duration, err error) {
	size, later, start := q.size(), q.later(), e.now()
	rows, err := e.ask(ctx, q, seqs, pass)
	if err != nil {
		return 0, err
	}
	took = e.now().Sub(start)
	pass.Passes++
	pass.Drafts = append(pass.Drafts, DraftPass{q.source, size, later, took})
	for _, s := range q.owners {
		n := s.prop.work().Len() - s.ran
		s.ran += n
		s.steps++
		if start = (time.Time{}); s.bids {
			start = e.now()
		}
		s.grow(rows[:n:n])
		if s.bids {
			s.bid.Work += e.now().Sub(start)
		}
		rows = rows[n:]
	}
	return took, nil
}
