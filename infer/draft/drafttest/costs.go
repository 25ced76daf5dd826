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
	now  time.Time
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
func (costlySource) Abilities() infer.Abilities { return infer.Abilities{} }

func (s costlySource) Rows(ctx context.Context, asks []infer.Ask) ([]infer.Row, error) {
	rows := 0
	for i := range asks {
		if a := &asks[i]; a.Tree == nil {
			rows += a.Width
		} else {
			rows += a.Tree.Len() - a.From
		}
	}
	if rows > 0 {
		s.c.Advance(s.c.Step(rows))
	}
	return s.Source.Rows(ctx, asks)
}
