package infer_test

import (
	"testing"
	"time"

	"talf/infer"
	"talf/infer/draft/drafttest"
)

// A timed drafter asks for the root, then for a chain of three, and proposes
// that; every call costs a millisecond.
type timed struct {
	costs *drafttest.Costs
	seen  []infer.Timing
}

func (d *timed) Start([]int32) error { return nil }

func (d *timed) Grow(p *infer.Proposal, rows []infer.Row, _ infer.Chance) ([]int, error) {
	d.costs.Advance(time.Millisecond)
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
	d.costs.Advance(time.Millisecond)
	return nil
}

func (d *timed) Traits() infer.Traits {
	return infer.Traits{Took: func(t infer.Timing) { d.seen = append(d.seen, t) }}
}

// A drafter that adapts to costs gets those of its own sequence, by the engine's clock: shared
// passes in full, the rest without Trace.
func TestDraftersAreToldWhatRoundsCost(t *testing.T) {
	costs := &drafttest.Costs{
		Pass: func(rows int) time.Duration { return time.Duration(100+rows) * time.Millisecond },
		Step: func(int) time.Duration { return 10 * time.Millisecond },
	}
	world := &drafttest.Target{Table: drafttest.Table{Seed: 4, Vocab: 9, Order: 2, Sharp: 2}, MaxLen: 500}
	e := &infer.Engine{Target: costs.Target(world), Config: infer.Default(), Clock: costs.Now}
	d := &timed{costs: costs}
	req := plainRequest(t, 1, 2, 3)
	req.MaxTokens = 20
	plain, err := e.Open(req)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close(plain)
	req.Drafter, req.Source = d, costs.Source(&drafttest.Source{Target: world, Agree: 1})
	req.Trace = func(infer.Round) error { costs.Advance(time.Hour); return nil }
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
		Drafting: 4 * time.Millisecond,
	}
	if d.seen[0] != want {
		t.Errorf("the first round cost %+v, want %+v", d.seen[0], want)
	}
}
