package infer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"talf/model"
)

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
//
// A panic of a request's own parts is such a failure, with a *PanicError. If a pass of a source
// fails, the sequences that asked it go through this round without drafts, which Undrafted
// reports; after a panic in it they go on without for good. A panic of the target is an error of
// Step that wraps a *PanicError, after which the engine must not be used.
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
	rows, err := e.score(ctx)
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
		if s.unusable(rows[i]) {
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
		if err := e.brokenErr(s.req.Source); err != nil {
			s.forsake(err)
		}
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
			rows, err := q.rows(ctx)
			if err != nil {
				if ctx.Err() != nil {
					return 0, err
				}
				e.sourceFailed(q, seqs, err)
			}
			answered := e.now()
			took := answered.Sub(start)
			spent += took
			for _, s := range q.owners {
				if err != nil {
					break
				}
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

// score runs the jobs.
func (e *Engine) score(ctx context.Context) (rows []Rows, err error) {
	defer guard("the target's pass", &err)
	return e.Target.Score(ctx, e.jobs)
}

// rows runs the asks.
func (q *sourceAsks) rows(ctx context.Context) (rows []Row, err error) {
	defer guard("the draft source's pass", &err)
	if rows, err = q.source.Rows(ctx, q.asks); err != nil {
		return nil, err
	}
	want := 0
	for _, a := range q.asks {
		want += a.Tree.Len() - a.From
	}
	if len(rows) != want {
		return nil, fmt.Errorf("the draft source answered %d rows, want %d", len(rows), want)
	}
	return rows, nil
}

// A brokenSource is a source that panicked: its state is unknown, so it is not called again.
type brokenSource struct {
	source Source
	err    error
}

func (e *Engine) brokenErr(src Source) error {
	for i := range e.broken {
		if src != nil && e.broken[i].source == src {
			return e.broken[i].err
		}
	}
	return nil
}

func (e *Engine) breakSource(src Source, err error) {
	if e.brokenErr(src) == nil {
		e.broken = append(e.broken, brokenSource{src, err})
	}
}

// sourceFailed lets the sequences that ask q go on without its answers.
func (e *Engine) sourceFailed(q *sourceAsks, seqs []*Sequence, err error) {
	var panicked *PanicError
	if errors.As(err, &panicked) {
		e.breakSource(q.source, err)
		for _, s := range seqs {
			if s.req.Source == q.source {
				s.forsake(err)
			}
		}
	}
	for _, s := range q.owners {
		s.plain(err)
	}
}
