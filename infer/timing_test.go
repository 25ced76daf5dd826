package infer_test

import (
	"context"
	"testing"
	"time"

	"talf/infer"
	"talf/infer/draft/drafttest"
	"talf/tree"
)

// A slow target and a slow source advance a clock by what their rows cost.
type (
	slowTarget struct {
		infer.Target
		clock *time.Time
	}
	slowSource struct {
		infer.Source
		clock *time.Time
	}
)

func (s slowTarget) Score(ctx context.Context, jobs []infer.Job) ([]infer.Rows, error) {
	n := 0
	for _, j := range jobs {
		n += j.Tree.Len()
	}
	*s.clock = s.clock.Add(time.Duration(100+n) * time.Millisecond)
	return s.Target.Score(ctx, jobs)
}

func (s slowSource) Rows(ctx context.Context, asks []infer.Ask) ([]infer.Row, error) {
	*s.clock = s.clock.Add(10 * time.Millisecond)
	return s.Source.Rows(ctx, asks)
}

// A timed drafter asks for the root, then for a chain of three, and proposes
// that; every call costs a millisecond.
type timed struct {
	clock *time.Time
	work  tree.Tree
	seen  []infer.Timing
}

func (d *timed) Start([]int32) error { return nil }

func (d *timed) Grow(p *infer.Proposal, rows []infer.Row, _ infer.Chance) ([]int, error) {
	*d.clock = d.clock.Add(time.Millisecond)
	switch {
	case rows == nil:
		p.Width = 1
		return []int{0}, nil
	case p.Tree.Len() == 1 && p.MaxDepth >= 3:
		n := p.Tree.Add(0, rows[0].Tokens[0])
		m := p.Tree.Add(n, 0)
		return []int{n, m, p.Tree.Add(m, 0)}, nil
	}
	return nil, nil
}

func (d *timed) Observe(infer.Proposal, infer.Verdict, infer.Scores) error {
	*d.clock = d.clock.Add(time.Millisecond)
	return nil
}

func (d *timed) Took(t infer.Timing) { d.seen = append(d.seen, t) }

// A drafter that adapts to costs is told those of its own sequence, by the
// engine's clock: the passes that it shared whole, the rest without Emit.
func TestDraftersAreToldWhatRoundsCost(t *testing.T) {
	var clock time.Time
	world := &drafttest.Target{Table: drafttest.Table{Seed: 4, Vocab: 9, Order: 2, Sharp: 2}, MaxLen: 500}
	e := &infer.Engine{Target: slowTarget{world, &clock}, Config: infer.Default(), Clock: func() time.Time { return clock }}
	d := &timed{clock: &clock}
	req := plainRequest(t, 1, 2, 3)
	req.MaxTokens = 20
	plain, err := e.Open(req)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close(plain)
	req.Drafter, req.Source = d, slowSource{&drafttest.Source{Target: world, Agree: 1}, &clock}
	req.Emit = func(infer.Delta) error { clock = clock.Add(time.Hour); return nil }
	s, err := e.Open(req)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close(s)
	seqs := []*infer.Sequence{plain, s}
	for {
		if err := e.Step(t.Context(), seqs); err != nil {
			t.Fatal(err)
		}
		_, a := plain.Done()
		if _, b := s.Done(); a && b {
			break
		}
	}
	if len(d.seen) != s.Stats().Passes {
		t.Fatalf("%d rounds were told of, %d were run", len(d.seen), s.Stats().Passes)
	}
	want := infer.Timing{
		Rows: 5, Nodes: 4, Steps: 2, Asked: 4,
		Verify: 105 * time.Millisecond, Draft: 20 * time.Millisecond, Overhead: 4 * time.Millisecond,
	}
	if d.seen[0] != want {
		t.Errorf("the first round cost %+v, want %+v", d.seen[0], want)
	}
}
