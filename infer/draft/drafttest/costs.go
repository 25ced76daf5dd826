package drafttest

import (
	"context"
	"time"

	"talf/infer"
)

// Costs are the costs of passes in a world of tables, with a clock for Engine.Clock that passes
// advance. They make tests of drafters that adapt to costs exact.
type Costs struct {
	Pass func(rows int) time.Duration // of the target
	Step func(rows int) time.Duration // of the source
	// After, if not nil, makes the source one that says everything in a round's first pass, which takes Step: what is
	// asked after that takes this.
	After func(rows int) time.Duration
	now   time.Time
}

// Now returns the clock's time.
func (c *Costs) Now() time.Time { return c.now }

// Advance lets time pass.
func (c *Costs) Advance(d time.Duration) { c.now = c.now.Add(d) }

// Target returns t with passes that take time.
func (c *Costs) Target(t infer.Target) infer.Target { return costlyTarget{t, c} }

// Source returns s with passes that take time.
func (c *Costs) Source(s infer.Source) infer.Source { return costlySource{s, c} }

type costlyTarget struct {
	infer.Target
	c *Costs
}

// Abilities withholds what could run beside the clock.
func (costlyTarget) Abilities() infer.Abilities { return infer.Abilities{} }

func (t costlyTarget) Score(ctx context.Context, jobs []infer.Job) ([]infer.Rows, error) {
	rows := 0
	for _, j := range jobs {
		rows += j.Tree.Len()
	}
	t.c.Advance(t.c.Pass(rows))
	return t.Target.Score(ctx, jobs)
}

type costlySource struct {
	infer.Source
	c *Costs
}

// Abilities withholds what could run beside the clock.
func (s costlySource) Abilities() infer.Abilities { return infer.Abilities{AtOnce: s.c.After != nil} }

func (s costlySource) Rows(ctx context.Context, asks []infer.Ask) ([]infer.Row, error) {
	rows, first := 0, false
	for i := range asks {
		if a := &asks[i]; a.Tree == nil {
			rows, first = rows+a.Width, true
		} else {
			rows, first = rows+a.Tree.Len()-a.From, first || a.From == 0
		}
	}
	switch {
	case rows > 0 && !first && s.c.After != nil:
		s.c.Advance(s.c.After(rows))
	case rows > 0:
		s.c.Advance(s.c.Step(rows))
	}
	return s.Source.Rows(ctx, asks)
}
