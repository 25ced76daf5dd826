package loop

import (
	"context"
	"errors"
	"fmt"
	"time"

	"talf/infer"
	"talf/model/sample"
)

// Calibrate measures passes of the target, and of src unless it is nil, over trees of one node to
// mostProbe, so that the first requests find their costs known. It takes a few times as long as the
// largest of these passes, but begins none after long; the costs are refined as requests run. It
// may be called before anything is submitted.
func (l *Loop) Calibrate(ctx context.Context, src infer.Source, long time.Duration) error {
	if err := l.take(ctx); err != nil {
		return err
	}
	defer l.leave()
	shape := l.engine.Target.Shape()
	p := &probe{asks: src != nil, vocab: shape.Vocab, now: time.Now}
	if l.engine.Clock != nil {
		p.now = l.engine.Clock
	}
	greedy, err := infer.NewSampling(sample.Greedy(), 2)
	if err != nil {
		return fmt.Errorf("loop: calibrate: %w", err)
	}
	req := infer.Request{
		Prompt: []int32{0, int32(min(1, shape.Vocab-1))}, MaxTokens: shape.MaxLen, NoEOS: true, Source: src,
		Drafter: p, Verifier: p, Processor: greedy,
	}
	s, err := l.engine.Open(req)
	if err != nil {
		return fmt.Errorf("loop: calibrate: %w", err)
	}
	defer l.engine.Close(s)
	begin := p.now()
	shared := l.engine.Budget
	l.engine.Budget = nil // nothing is cut, and nothing learned of the drafts
	defer func() { l.engine.Budget = shared }()
	for round := 0; ; round++ {
		// Every size is measured several times in a row; the first pass of a size also maps
		// memory.
		p.rows = 1 << max(0, (round-1)/(1+samples))
		if _, done := s.Done(); done || p.rows > min(mostProbe, l.engine.Config.MaxNodes) || round > 1+samples && p.now().Sub(begin) > long {
			return nil
		}
		if err := l.engine.Step(ctx, []*infer.Sequence{s}); err != nil {
			return fmt.Errorf("loop: calibrate: %w", err)
		}
		pass := l.engine.LastPass()
		if pass.Trees == 0 || (round-1)%(1+samples) == 0 {
			continue
		}
		l.costs.add(&pass)
		for i, t := range p.took {
			l.costs.model.AddDraft(i == 0, t.nodes, t.seconds)
		}
	}
}

const (
	mostProbe = 256 // nodes
	samples   = 3   // of a size
)

// A probe is a drafter and verifier that measure: trees of a given number of nodes, after a pass
// of the draft model over the root and one over up to as many nodes, of which none is kept.
type probe struct {
	rows  int
	asks  bool
	vocab int
	now   func() time.Time
	steps int
	begin time.Time
	took  []measure
}

type measure struct {
	nodes   int
	seconds float64
}

var errProbe = errors.New("loop: a probe verifies nothing but chosen children")

func (p *probe) Start([]int32) error { return nil }

// mostAsked bounds the nodes that a draft model is asked for: searches ask for few at once.
const mostAsked = 32

func (p *probe) Grow(x *infer.Proposal, rows []infer.Row, _ infer.Chance) ([]int, error) {
	now := p.now()
	if rows == nil {
		p.took, p.steps = p.took[:0], 0
	} else {
		p.took = append(p.took, measure{len(rows), now.Sub(p.begin).Seconds()})
		p.steps++
	}
	x.Width = 1
	switch {
	case p.asks && p.steps == 0:
		p.begin = now
		return []int{0}, nil
	case p.asks && p.steps == 1 && p.rows > 1:
		p.bush(x, min(p.rows, mostAsked+1))
		ask := make([]int, 0, mostAsked)
		for n := 1; n < x.Tree.Len(); n++ {
			ask = append(ask, n)
		}
		p.begin = p.now()
		return ask, nil
	}
	p.bush(x, p.rows)
	return nil, nil
}

// bush adds children of the root until there are n nodes.
func (p *probe) bush(x *infer.Proposal, n int) {
	for i := x.Tree.Len(); i < min(n, x.MaxNodes) && x.MaxDepth > 0; i++ {
		x.Tree.Add(0, int32(i%p.vocab))
	}
}

func (p *probe) Observe(infer.Proposal, infer.Verdict, infer.Scores) error { return nil }

func (p *probe) Traits() infer.Traits { return infer.Traits{} }

// Verify keeps the root alone.
func (p *probe) Verify(_ infer.Proposal, s infer.Scores, _ infer.Chance) (infer.Verdict, error) {
	return infer.Verdict{Path: []int{0}, Next: s.Argmax(0)}, nil
}

func (p *probe) Fits(d infer.Draw, _ bool) error {
	if d != infer.Chosen {
		return errProbe
	}
	return nil
}
