package infer

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"talf/model"
)

// sourceAsks are the asks of one pass of one source.
type sourceAsks struct {
	source  Source
	asks    []Ask
	owners  []*Sequence
	backlog []int // of each owner, if its round begins
	reads   []Ask // of sequences that ask nothing
	all     []Ask
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

// Bounds on what sources read of sequences that ask for nothing.
const (
	lag       = 64   // committed tokens that may wait; a pass for fewer is not worth it
	readChunk = 256  // that one sequence reads in a pass, which bounds how long the others wait
	waitMost  = 4096 // that may wait while drafts of their sequence do not pay: a head keeps the hidden states of as many
)

// readAhead lists what the sources are to read of sequences that ask for nothing. Where a controller decides
// that, only a backlog of waitMost tokens is read without it.
func (e *Engine) readAhead(seqs []*Sequence) {
	room := e.Config.PrefillChunk
	for _, s := range seqs {
		if s.req.Source == nil || s.reason != "" || s.out || s.growing || room == 0 {
			continue
		}
		least := lag
		if e.controls(s) {
			least = waitMost
		}
		// The root is read with the ask that needs it.
		if n := s.backlog() - 1; n >= least {
			n = min(n, room, readChunk)
			q := e.asksOf(s.req.Source)
			q.reads = append(q.reads, Ask{ID: s.id, Width: n})
			room -= n
		}
	}
}

// score runs the jobs.
func (e *Engine) score(ctx context.Context) (rows []Rows, err error) {
	defer catch("the target's pass", &err)
	return e.Target.Score(ctx, e.jobs)
}

// rows runs the asks.
func (q *sourceAsks) rows(ctx context.Context) (rows []Row, err error) {
	defer catch("the draft source's pass", &err)
	q.all = append(append(q.all[:0], q.asks...), q.reads...)
	if rows, err = q.source.Rows(ctx, q.all); err != nil {
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

// size is the number of rows of the pass.
func (q *sourceAsks) size() (n int) {
	for i, a := range q.asks {
		if n += a.Tree.Len() - a.From; a.From == 0 {
			n += max(q.backlog[i]-1, 0)
		}
	}
	for _, a := range q.reads {
		n += a.Width
	}
	return n
}

// backlog returns how many committed tokens of a sequence its source is still to read. A panic is ignored
// here, since it recurs in the pass that follows.
func (s *Sequence) backlog() (n int) {
	defer func() { _ = recover() }()
	return s.req.Source.Backlog(s.id)
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

// ask runs a pass of a source. If it fails, the sequences that ask go on without its answers and
// are no longer q's owners; an error is that ctx ended.
func (e *Engine) ask(ctx context.Context, q *sourceAsks, seqs []*Sequence, pass *Pass) ([]Row, error) {
	for {
		rows, err := q.rows(ctx)
		switch {
		case err == nil:
			return rows, nil
		case ctx.Err() != nil && !panicked(err):
			return nil, err
		}
		if errors.Is(err, model.ErrKVFull) && len(q.reads) > 0 && len(q.asks) > 0 {
			q.reads = q.reads[:0] // later
			continue
		}
		if errors.Is(err, model.ErrKVFull) && e.makeRoomIn(q, seqs, err, pass) {
			if !q.further() {
				continue
			}
			// What ran in this round is lost. Trees drawn at random are grown again, from the same random
			// numbers.
			for _, s := range q.owners {
				if s.drawn() {
					s.beginRound(s.mostNodes(e.Config.MaxNodes))
				} else {
					s.plain(err)
				}
			}
			q.asks, q.owners, q.backlog = q.asks[:0], q.owners[:0], q.backlog[:0]
			return nil, nil
		}
		e.sourceFailed(q, seqs, err)
		q.asks, q.owners, q.backlog = q.asks[:0], q.owners[:0], q.backlog[:0]
		return nil, nil
	}
}

// later reports whether all asks are beyond the first of their rounds.
func (q *sourceAsks) later() bool {
	return len(q.reads) == 0 && !slices.ContainsFunc(q.asks, func(a Ask) bool { return a.From == 0 })
}

// further reports whether an ask is beyond the first of its round.
func (q *sourceAsks) further() bool {
	return slices.ContainsFunc(q.asks, func(a Ask) bool { return a.From > 0 })
}

// drawn reports whether the round's draft is drawn at random, so that the output depends on it.
func (r *round) drawn() bool { return r.prop.Choice() != Chosen }

// makeRoomIn leaves a sequence out of a pass for which q's source has no room, as makeRoom does for the target's. It
// reports false if that is no help.
func (e *Engine) makeRoomIn(q *sourceAsks, seqs []*Sequence, full error, pass *Pass) bool {
	leave := func(i int) {
		q.asks, q.owners, q.backlog = slices.Delete(q.asks, i, i+1), slices.Delete(q.owners, i, i+1), slices.Delete(q.backlog, i, i+1)
	}
	if e.releaseEnded(seqs) {
		return true
	}
	// Trees that have only begun can be left out one by one.
	if len(q.asks) > 1 && !q.further() {
		for i, s := range slices.Backward(q.owners) {
			if !s.drawn() {
				s.plain(full)
				leave(i)
				return true
			}
		}
	}
	// A tree drawn at random cannot be left out. The sequence of the lowest rank is preempted for it, which
	// may be its own.
	if !slices.ContainsFunc(q.owners, (*Sequence).drawn) {
		return false
	}
	var last *Sequence
	holders := 0
	for _, s := range seqs {
		if s.reason == "" && !s.out && s.req.Source == q.source {
			last = s
			holders++
		}
	}
	if holders < 2 {
		return false
	}
	if i := slices.Index(q.owners, last); i >= 0 {
		leave(i)
	}
	e.Preempt(last)
	pass.Dropped++
	return true
}

// sourceFailed lets the sequences that ask q go on without its answers.
func (e *Engine) sourceFailed(q *sourceAsks, seqs []*Sequence, err error) {
	if panicked(err) {
		e.breakSource(q.source, err)
		for _, s := range seqs {
			if s.req.Source == q.source {
				s.disableDrafting(err)
			}
		}
	}
	for _, s := range q.owners {
		s.plain(err)
	}
}
