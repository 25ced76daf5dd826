package train

import (
	"context"
	"errors"
	"fmt"
	"io"

	"talf/compute"
	"talf/data"
	"talf/train/internal/gg"
	"talf/train/loss"
)

// scorer finds the most likely token of hidden states.
type scorer struct {
	q            compute.Queue
	ops          compute.TrainOps
	w            compute.Linear
	logits, logp compute.Buffer
	ids          compute.Buffer
	got          []int32
	hidden       int
}

// scoreRows is how many rows of logits are kept at a time.
const scoreRows = 64

func newScorer(dev compute.Device, q compute.Queue, w compute.Weight) (*scorer, error) {
	s := &scorer{q: q, ops: q.(compute.TrainOps), w: compute.Linear{W: w}, hidden: w.In(), got: make([]int32, scoreRows)}
	var err error
	for _, b := range []struct {
		to    *compute.Buffer
		t     compute.DType
		width int
	}{{&s.logits, compute.F32, w.Out()}, {&s.ids, compute.I32, 1}, {&s.logp, compute.F32, 1}} {
		if *b.to, err = dev.Alloc(b.t, scoreRows, b.width); err != nil {
			return nil, fmt.Errorf("make room for logits: %w", err)
		}
	}
	return s, nil
}

// hits counts the rows r of h [rows][H] that count and whose most likely next
// token is want[r].
func (s *scorer) hits(h []float32, want []int32, mask []float32) (hits int) {
	for at := 0; at < len(want); at += scoreRows {
		n := min(scoreRows, len(want)-at)
		x := s.ops.Host(h[at*s.hidden:(at+n)*s.hidden], n, s.hidden)
		s.q.Linear(s.logits, x, &s.w, compute.Store, n)
		s.q.TopK(s.ids, s.logp, s.logits, 1, n)
		s.q.Read(s.got[:n], s.ids, 0)
		for i, id := range s.got[:n] {
			if mask[at+i] != 0 && id == want[at+i] {
				hits++
			}
		}
	}
	return hits
}

// headEval runs the head over held-out sequences: the whole trees, whatever the
// loss, so that runs can be compared by level.
type headEval struct {
	task  *headTask
	graph *gg.Graph
	batch *headBatch
	terms []loss.Term
	score *scorer
}

func newHeadEval(dev compute.Device, q compute.Queue, h *headTask, table, lm *gg.Tensor, w compute.Weight, rope compute.Buffer) (*headEval, error) {
	g, err := gg.New(q)
	if err != nil {
		return nil, err
	}
	all, err := loss.Parse("talf")
	if err != nil {
		return nil, err
	}
	plan, err := all.Plan(labelling(h.meta))
	if err != nil {
		return nil, err
	}
	e := &headEval{task: h, graph: g, batch: newHeadBatch(g, h.params, table, rope, h.meta, plan, h.limit)}
	in := e.batch.inputs(g, lm)
	g.Keep(in.FHat...)
	e.terms = all.Build(in)
	if err := g.CompileForward(); err != nil {
		return nil, err
	}
	e.score, err = newScorer(dev, q, w)
	return e, err
}

// eval evaluates the held-out sequences, always the same ones.
func (h *headTask) eval(ctx context.Context) (*Eval, error) {
	e, sp := h.eval0, h.split(data.Held)
	n, err := h.job.Data.Count(sp)
	if err != nil || n == 0 {
		return nil, err
	}
	if h.cfg.EvalSeqs > 0 {
		n = min(n, h.cfg.EvalSeqs)
	}
	reader, err := h.job.Data.Sequential(sp)
	if err != nil {
		return nil, err
	}
	var sum []float64
	res := &Eval{Levels: make([]LevelEval, len(e.terms))}
	hits := make([]int, len(e.terms))
	sum = make([]float64, len(e.terms))
	for range n {
		r, err := reader.Next()
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err
		}
		if span(r, h.limit) == 0 {
			continue
		}
		feat, err := h.features(ctx, r)
		if err != nil {
			return nil, err
		}
		e.batch.reset()
		if err := e.batch.add(r, feat, feat, h.limit); err != nil {
			return nil, err
		}
		for i := range e.terms {
			e.terms[i].Set(e.batch.mask[i], 1)
		}
		if err := e.graph.Run(ctx); err != nil {
			return nil, err
		}
		res.Positions += e.batch.count
		for i := range e.terms {
			for j, m := range e.batch.mask[i] {
				if m != 0 {
					sum[i] += float64(e.terms[i].RowLoss()[j])
					res.Levels[i].Rows++
				}
			}
			hits[i] += e.score.hits(e.batch.head.Levels[i].Out.Data(), e.batch.top[i], e.batch.mask[i])
		}
	}
	for i := range res.Levels {
		if l := &res.Levels[i]; l.Rows > 0 {
			l.Loss, l.Top1 = sum[i]/float64(l.Rows), float64(hits[i])/float64(l.Rows)
			res.Loss += sum[i] / float64(res.Positions)
		}
	}
	return res, nil
}
