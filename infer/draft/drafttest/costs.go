package drafttest

import (
	"context"
	"time"

	"talf/infer"
	"talf/infer/experts"
)

// Costs are the costs of passes in a world of tables, with a clock for Engine.Clock that passes
// advance. They make tests of drafters that adapt to costs exact.
type Costs struct {
	Pass func(rows int) time.Duration // of the target
	Step func(rows int) time.Duration // of the source
	// Route, if not nil, returns which of the target's experts a row with this token reads, always as
	// many. Each that a pass reads takes Expert beside Pass, however many rows read it.
	Route  func(token int32) []int
	Of     int // experts that there are
	Expert time.Duration
	now    time.Time
	read   experts.Read // of the last pass
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

func (t costlyTarget) Score(ctx context.Context, jobs []infer.Job) ([]infer.Rows, error) {
	rows := 0
	distinct := map[int]bool{}
	for _, j := range jobs {
		rows += j.Tree.Len()
		for n := 0; n < j.Tree.Len() && t.c.Route != nil; n++ {
			for _, e := range t.c.Route(j.Tree.Token(n)) {
				distinct[e] = true
			}
		}
	}
	t.c.Advance(t.c.Pass(rows) + time.Duration(len(distinct))*t.c.Expert)
	if t.c.Route != nil {
		top := len(t.c.Route(0))
		one := t.c.Pass(1) + time.Duration(top)*t.c.Expert
		t.c.read = experts.Read{Of: t.c.Of, Top: top, Layers: 1, Share: t.c.Expert.Seconds() / one.Seconds(), Distinct: len(distinct)}
	}
	return t.Target.Score(ctx, jobs)
}

// Experts returns what the last pass read.
func (t costlyTarget) Experts() experts.Read { return t.c.read }

type costlySource struct {
	infer.Source
	c *Costs
}

func (s costlySource) Rows(ctx context.Context, asks []infer.Ask) ([]infer.Row, error) {
	rows := 0
	for _, a := range asks {
		rows += a.Tree.Len() - a.From
	}
	if rows > 0 {
		s.c.Advance(s.c.Step(rows))
	}
	return s.Source.Rows(ctx, asks)
}
