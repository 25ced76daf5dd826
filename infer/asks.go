package infer

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"talf/infer/panics"
	"talf/model"
)

// sourceAsks are the asks of one pass of one source.
type sourceAsks struct {
	source Source
	asks   []Ask
	owners []*Sequence
	used   bool // ran in this step
	later  bool // what nobody asks about is not to be read
	read   int  // committed tokens that the last pass has read, if the source says so
	left   int  // steps since a pass
	behind bool // the last pass that nobody asked for had something to read
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

// postpones reports whether a source leaves unread what nobody asks about. Those who share passes
// have no say: what one reads there costs the others little.
func (e *Engine) postpones(src Source, seqs []*Sequence) bool {
	if e.Budget != nil && (len(seqs) > 1 || e.Budget.Postpones()) {
		return e.Budget.Postpones()
	}
	return !slices.ContainsFunc(seqs, func(s *Sequence) bool { return s.req.Source == src && !s.traits.Defers })
}

// unreadSteps is how many steps a source that postpones its reading may go without a pass. It bounds what waits, and a
// few tokens more do no harm. A source that exceeds its bound then has one in each step until it does not.
const unreadSteps = 64

// unread reports whether a source that nobody asks in this step has a pass nevertheless, to read what was committed. It
// takes time from a step that is otherwise plain decoding, so a source that postpones its reading has few.
func (e *Engine) unread(q *sourceAsks, seqs []*Sequence) bool {
	q.left++
	if _, ok := q.source.(Postponer); ok && q.left < unreadSteps && !q.behind && e.postpones(q.source, seqs) &&
		!slices.ContainsFunc(seqs, func(s *Sequence) bool { return s.req.Source == q.source && s.prefilling() }) {
		return false
	}
	q.left = 0
	return true
}

// score runs the jobs.
func (e *Engine) score(ctx context.Context) (rows []Rows, err error) {
	defer panics.Catch("the target's pass", &err)
	return e.Target.Score(ctx, e.jobs)
}

// rows runs the asks.
func (q *sourceAsks) rows(ctx context.Context) (rows []Row, err error) {
	defer panics.Catch("the draft source's pass", &err)
	p, _ := q.source.(Postponer)
	if p != nil {
		p.Postpone(q.later)
		defer func() { q.read = p.Read() }()
	}
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

// backlog returns how many committed tokens of a sequence its source is still to read, 0 if that is
// unknown. A source that panics does so again in the pass that follows.
func (s *Sequence) backlog() (n int) {
	defer func() { _ = recover() }()
	if p, ok := s.req.Source.(Postponer); ok {
		n = p.Backlog(s.id)
	}
	return n
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
		case ctx.Err() != nil && !panics.Is(err):
			return nil, err
		}
		if errors.Is(err, model.ErrKVFull) && e.makeRoomIn(q, seqs, err, pass) {
			if !q.further() {
				continue
			}
			// What ran in this round is gone. Trees that are drawn at random begin again, with the same numbers.
			for _, s := range q.owners {
				if s.drawn() {
					s.beginRound(s.nodes(e.Config.MaxNodes))
				} else {
					s.plain(err)
				}
			}
			q.asks, q.owners = q.asks[:0], q.owners[:0]
			return nil, nil
		}
		e.sourceFailed(q, seqs, err)
		q.asks, q.owners = q.asks[:0], q.owners[:0]
		return nil, nil
	}
}

// further reports whether an ask is about a tree that has grown already.
func (q *sourceAsks) further() bool {
	return slices.ContainsFunc(q.asks, func(a Ask) bool { return a.From > 0 })
}

// drawn reports whether the round's draft is drawn at random, so that it has a say in the output.
func (s *Sequence) drawn() bool { return s.prop.Draw() != Chosen }

// makeRoomIn leaves a sequence out of a pass for which q's source has no room, as makeRoom does for the target's. It reports
// false if that is no help.
func (e *Engine) makeRoomIn(q *sourceAsks, seqs []*Sequence, full error, pass *Pass) bool {
	leave := func(i int) { q.asks, q.owners = slices.Delete(q.asks, i, i+1), slices.Delete(q.owners, i, i+1) }
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
	// For one that is drawn at random another begins again later, or itself if it has the lowest rank.
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
	if panics.Is(err) {
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
