package train

import (
	"context"
	"fmt"
	"iter"
	"math"
	"slices"

	"talf/compute"
	"talf/data"
	"talf/internal/slab"
	"talf/train/internal/batch"
	"talf/train/internal/gg"
	"talf/train/loss"
	"talf/train/mix"
)

// A headEval runs the head over the whole trees of held-out sequences, whatever the
// loss is, so that runs can be compared level by level.
type headEval struct {
	task  *headTask
	graph *gg.Graph
	batch *batch.Batch
	terms []loss.Term
	score *scorer

	top            [][]int32   // [level]: [rows][k], the head's choices
	expect, greedy [][]float64 // [level]: [rows], tokens accepted below a node
}

// newHeadEval returns an evaluation whose LM head is w.
func newHeadEval(dev compute.Device, q compute.Queue, h *headTask, w compute.Weight) (*headEval, error) {
	g, err := gg.New(q)
	if err != nil {
		return nil, err
	}
	all, err := loss.Parse("talf")
	if err != nil {
		return nil, err
	}
	plan, err := all.Plan(h.labelling())
	if err != nil {
		return nil, err
	}
	e := &headEval{task: h, graph: g, batch: batch.New(g, h.params, h.table, h.rope, h.meta, plan, h.vocab, h.limit, h.limit)}
	lm := h.lm
	if own := h.params.OwnLMHead(); own != nil {
		lm = own // without a gradient
	}
	in := e.batch.Inputs(g, lm)
	g.Keep(in.FHat...)
	g.Keep(in.Pair...)
	e.terms = all.Build(in)
	if err := g.CompileForward(); err != nil {
		return nil, err
	}
	e.top, e.expect, e.greedy = make([][]int32, plan.Levels), make([][]float64, plan.Levels), make([][]float64, plan.Levels)
	e.score, err = newScorer(dev, q, w, h.meta.Branch)
	return e, err
}

// tau sums, over the positions of the batch that count, how many drafted tokens the
// target would accept if the head drafted its Branch most likely tokens below every
// node: in expectation over the target's distribution (expect: temperature 1), and on
// the target's most likely path (greedy: temperature 0).
//
//	E(n) = Σ_{x ∈ top(q_n)} p_n(x) · (1 + E(child x of n))
//
// Only tokens among a node's labels and children in the stored tree are counted. So
// both are lower bounds, and at most the number of levels of the trees.
func (e *headEval) tau() (expect, greedy float64) {
	b, k := e.batch, e.score.k
	for l := len(b.Head.Levels) - 1; l >= 0; l-- {
		rows := b.Head.Levels[l].Rows.N
		e.expect[l], e.greedy[l] = slab.Zeros(e.expect[l], rows), slab.Zeros(e.greedy[l], rows)
		for r := range rows {
			if b.Mask[l][r] == 0 {
				continue
			}
			for _, x := range e.top[l][r*k : (r+1)*k] {
				e.expect[l][r] += b.Prob(l, r, x)
				if x == b.Top[l][r] {
					e.greedy[l][r]++
				}
			}
		}
		if l+1 == len(b.Head.Levels) {
			continue
		}
		below := b.Head.Levels[l+1]
		for r, x := range below.IDs {
			up := int(below.From[r])
			if !slices.Contains(e.top[l][up*k:(up+1)*k], x) {
				continue
			}
			e.expect[l][up] += float64(b.Prob(l, up, x) * e.expect[l+1][r]) // converted so that it is not fused: it decides which checkpoint is best
			if x == b.Top[l][up] {
				e.greedy[l][up] += e.greedy[l+1][r]
			}
		}
	}
	for r, m := range b.Mask[0] {
		if m != 0 {
			expect, greedy = expect+e.expect[0][r], greedy+e.greedy[0][r]
		}
	}
	return expect, greedy
}

// held yields the held-out sequences of every set, at most the set's share of EvalSeqs,
// rounded up.
func (h *headTask) held() iter.Seq2[mix.Sample, error] {
	return func(yield func(mix.Sample, error) bool) {
		all := 0.0
		for _, s := range h.job.Data {
			all += s.Weight
		}
		sp := h.split(data.Held)
		for _, s := range h.job.Data {
			n, err := s.Set.Count(sp)
			var reader *data.Reader
			if err == nil {
				reader, err = s.Set.Sequential(sp)
			}
			if err != nil {
				yield(mix.Sample{}, err)
				return
			}
			if limit := h.cfg.EvalSeqs; limit > 0 && len(h.job.Data) == 1 {
				n = min(n, limit)
			} else if limit > 0 {
				n = min(n, int(math.Ceil(float64(limit)*s.Weight/all)))
			}
			for range n {
				r, err := reader.Next()
				if !yield(mix.Sample{Record: r, Place: reader.Last()}, err) || err != nil {
					return
				}
			}
		}
	}
}

// evaluate evaluates the held-out sequences, always the same ones.
func (h *headTask) evaluate(ctx context.Context) (s evalShare, err error) {
	e := h.eval
	s.Trees, s.Levels = true, len(e.terms)
	if h.params.OwnLMHead() != nil || h.params.Beside() != nil {
		w, err := h.packLMHead()
		if err != nil {
			return s, err
		}
		e.score.use(w)
	}
	for x, err := range h.held() {
		if err != nil {
			return s, err
		}
		r, at := x.Record, s.Held
		s.Held++
		if at%h.peers.Size() != h.peers.Rank() || mix.Span(r, h.limit, 0) == 0 {
			continue
		}
		feat, err := h.features(ctx, r, false)
		if err != nil {
			return s, err
		}
		e.batch.Reset()
		if err := e.batch.Add(r, feat, feat, h.limit); err != nil {
			return s, err
		}
		for i := range e.terms {
			e.terms[i].Set(e.batch.Mask[i], 1)
		}
		if err := e.graph.Run(ctx); err != nil {
			return s, err
		}
		p := newEvalPart(at, len(e.terms))
		p.Positions = e.batch.Count
		for i := range e.terms {
			for j, m := range e.batch.Mask[i] {
				if m == 0 {
					continue
				}
				l := float64(e.terms[i].RowLoss()[j])
				if !finite(l) {
					op, err := e.graph.FirstNonFinite(ctx)
					if err != nil {
						return s, err
					}
					return s, fmt.Errorf("%s: the loss on level %d is %v, first in %s", x.Place, i, l, op)
				}
				p.Loss[i] += l
				p.Rows[i]++
			}
			if e.top[i], err = e.score.append(ctx, e.top[i][:0], e.batch.Head.Levels[i].Ranked().Data()); err != nil {
				return s, err
			}
			h.vocab.Target(e.top[i])
			p.Hits[i] = hits(e.top[i], e.score.k, e.batch.Top[i], e.batch.Mask[i])
		}
		if h.vocab != nil {
			p.Mass, p.Lost = slices.Clone(e.batch.Mass), slices.Clone(e.batch.Lost)
		}
		p.Expect, p.Greedy = e.tau()
		s.Parts = append(s.Parts, p)
	}
	return s, nil
}
