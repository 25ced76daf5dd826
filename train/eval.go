package train

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"math"
	"slices"

	"talf/compute"
	"talf/data"
	"talf/train/internal/gg"
	"talf/train/loss"
)

// scorer finds the most likely tokens of hidden states.
type scorer struct {
	q            compute.Queue
	ops          compute.TrainOps
	w            compute.Linear
	logits, logp compute.Buffer
	ids          compute.Buffer
	hidden, k    int
	vocab        *vocabulary
}

// scoreRows is how many rows of logits are kept at a time.
const scoreRows = 64

// newScorer finds k tokens of a row; v is what w's rows are of.
func newScorer(dev compute.Device, q compute.Queue, w compute.Weight, k int, v *vocabulary) (*scorer, error) {
	s := &scorer{q: q, ops: q.Abilities().Train, w: compute.Linear{W: w}, hidden: w.In(), k: k, vocab: v}
	var err error
	for _, b := range []struct {
		to    *compute.Buffer
		t     compute.DType
		width int
	}{{&s.logits, compute.F32, w.Out()}, {&s.ids, compute.I32, k}, {&s.logp, compute.F32, k}} {
		if *b.to, err = dev.Alloc(b.t, scoreRows, b.width); err != nil {
			return nil, fmt.Errorf("make room for logits: %w", err)
		}
	}
	return s, nil
}

// top appends the most likely next tokens of rows h [rows][H] to dst: [rows][k],
// best first, by the target's ids.
func (s *scorer) top(dst []int32, h []float32) []int32 {
	rows := len(h) / s.hidden
	for at := 0; at < rows; at += scoreRows {
		n := min(scoreRows, rows-at)
		x := s.ops.Host(h[at*s.hidden:(at+n)*s.hidden], n, s.hidden)
		s.q.Linear(s.logits, x, &s.w, compute.Store, n)
		s.q.TopK(s.ids, s.logp, s.logits, s.k, n)
		from := len(dst)
		dst = slices.Grow(dst, n*s.k)[:from+n*s.k]
		s.q.Read(dst[from:], s.ids, 0)
		s.vocab.target(dst[from:])
	}
	return dst
}

// hits counts the rows that count and whose first of k tokens is the wanted one.
func hits(top []int32, k int, want []int32, mask []float32) (n int) {
	for r, id := range want {
		if mask[r] != 0 && top[r*k] == id {
			n++
		}
	}
	return n
}

// headEval runs the head over held-out sequences: the whole trees, whatever the
// loss, so that runs can be compared by level.
type headEval struct {
	task  *headTask
	graph *gg.Graph
	batch *headBatch
	terms []loss.Term
	score *scorer

	top            [][]int32   // [level]: [rows][k], the head's choices
	expect, greedy [][]float64 // [level]: [rows], tokens accepted below a node
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
	plan, err := all.Plan(labelling(h.meta, h.vocab))
	if err != nil {
		return nil, err
	}
	e := &headEval{task: h, graph: g, batch: newHeadBatch(g, h.params, table, rope, h.meta, plan, h.vocab, h.limit)}
	in := e.batch.inputs(g, lm)
	g.Keep(in.FHat...)
	e.terms = all.Build(in)
	if err := g.CompileForward(); err != nil {
		return nil, err
	}
	e.top, e.expect, e.greedy = make([][]int32, plan.Levels), make([][]float64, plan.Levels), make([][]float64, plan.Levels)
	e.score, err = newScorer(dev, q, w, h.meta.Branch, h.vocab)
	return e, err
}

// tau adds up, over the positions that count in the batch, how many drafted
// tokens the target would accept if the head drafted its Branch most likely
// tokens below every node: by the target's probabilities (expect: temperature 1),
// and on the target's most likely path (greedy: temperature 0).
//
//	E(n) = Σ_{x ∈ top(q_n)} p_n(x) · (1 + E(child x of n))
//
// Only what the data hold is counted: tokens that are among the labels of a node,
// and children that are nodes of the stored tree. So both are lower bounds, and
// at most the trees' levels.
func (e *headEval) tau() (expect, greedy float64) {
	b, k := e.batch, e.score.k
	for l := len(b.head.Levels) - 1; l >= 0; l-- {
		rows := b.head.Levels[l].Rows.N
		e.expect[l], e.greedy[l] = resize(e.expect[l], rows), resize(e.greedy[l], rows)
		for r := range rows {
			if b.mask[l][r] == 0 {
				continue
			}
			for _, x := range e.top[l][r*k : (r+1)*k] {
				e.expect[l][r] += b.prob(l, r, x)
				if x == b.top[l][r] {
					e.greedy[l][r]++
				}
			}
		}
		if l+1 == len(b.head.Levels) {
			continue
		}
		below := b.head.Levels[l+1]
		for r, x := range below.IDs {
			up := int(below.From[r])
			if !slices.Contains(e.top[l][up*k:(up+1)*k], x) {
				continue
			}
			e.expect[l][up] += float64(b.prob(l, up, x) * e.expect[l+1][r]) // not fused: it decides what is kept
			if x == b.top[l][up] {
				e.greedy[l][up] += e.greedy[l+1][r]
			}
		}
	}
	for r, m := range b.mask[0] {
		if m != 0 {
			expect, greedy = expect+e.expect[0][r], greedy+e.greedy[0][r]
		}
	}
	return expect, greedy
}

// resize returns n zeros in x's memory, if it suffices.
func resize(x []float64, n int) []float64 {
	x = slices.Grow(x[:0], n)[:n]
	clear(x)
	return x
}

// held yields the held-out sequences of every set, its share of EvalSeqs, rounded
// up, at most.
func (h *headTask) held() iter.Seq2[sample, error] {
	return func(yield func(sample, error) bool) {
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
				yield(sample{}, err)
				return
			}
			if limit := h.cfg.EvalSeqs; limit > 0 && len(h.job.Data) == 1 {
				n = min(n, limit)
			} else if limit > 0 {
				n = min(n, int(math.Ceil(float64(limit)*s.Weight/all)))
			}
			for range n {
				r, err := reader.Next()
				if !yield(sample{Record: r, place: reader.Last()}, err) || err != nil {
					return
				}
			}
		}
	}
}

// eval evaluates the held-out sequences, always the same ones.
func (h *headTask) eval(ctx context.Context) (s evalShare, err error) {
	e := h.eval0
	s.Trees, s.Levels = true, len(e.terms)
	for x, err := range h.held() {
		if err != nil {
			return s, err
		}
		r, at := x.Record, s.Held
		s.Held++
		if at%h.crew.Size() != h.crew.Rank() || span(r, h.limit) == 0 {
			continue
		}
		feat, err := h.features(ctx, r)
		if err != nil {
			return s, err
		}
		e.batch.reset()
		if err := e.batch.add(r, feat, feat, h.limit); err != nil {
			return s, err
		}
		for i := range e.terms {
			e.terms[i].Set(e.batch.mask[i], 1)
		}
		if err := e.graph.Run(ctx); err != nil {
			return s, err
		}
		p := newEvalPart(at, len(e.terms))
		p.Positions = e.batch.count
		for i := range e.terms {
			for j, m := range e.batch.mask[i] {
				if m == 0 {
					continue
				}
				l := float64(e.terms[i].RowLoss()[j])
				if !finite(l) {
					op, err := e.graph.FirstNonFinite(ctx)
					if err != nil {
						return s, err
					}
					return s, fmt.Errorf("%s: the loss on level %d is %v, first in %s", x.place, i, l, op)
				}
				p.Loss[i] += l
				p.Rows[i]++
			}
			e.top[i] = e.score.top(e.top[i][:0], e.batch.head.Levels[i].Out.Data())
			p.Hits[i] = hits(e.top[i], e.score.k, e.batch.top[i], e.batch.mask[i])
		}
		if h.vocab != nil {
			p.Mass, p.Lost = slices.Clone(e.batch.mass), slices.Clone(e.batch.lost)
		}
		p.Expect, p.Greedy = e.tau()
		s.Parts = append(s.Parts, p)
	}
	return s, nil
}

// An evalShare is what a rank found in its share of what is held out.
type evalShare struct {
	Held   int        `json:"held"` // parts of all ranks
	Levels int        `json:"levels"`
	Trees  bool       `json:"trees"` // Expect and Greedy are given
	Parts  []evalPart `json:"parts"`
}

// An evalPart is what one held-out sequence, or packed batch of them, adds.
type evalPart struct {
	At        int       `json:"at"` // its number
	Positions int       `json:"positions"`
	Loss      []float64 `json:"loss"` // [level], the rows' sum
	Rows      []int     `json:"rows"`
	Hits      []int     `json:"hits"`
	Mass      []float64 `json:"mass,omitempty"` // of the labels
	Lost      []float64 `json:"lost,omitempty"` // of it outside the draft vocabulary
	Expect    float64   `json:"expect"`         // see (*headEval).tau
	Greedy    float64   `json:"greedy"`
}

func newEvalPart(at, levels int) evalPart {
	return evalPart{At: at, Loss: make([]float64, levels), Rows: make([]int, levels), Hits: make([]int, levels)}
}

// mergeEval adds up the ranks' shares in the order of the sequences, so that the sums
// have the same bits however many ranks there are; nil if nothing is held out.
func mergeEval(shares []json.RawMessage) (*Eval, error) {
	var parts []evalPart
	held, levels, trees := 0, 0, false
	for r, b := range shares {
		var s evalShare
		if err := json.Unmarshal(b, &s); err != nil {
			return nil, fmt.Errorf("evaluation of rank %d: %w", r, err)
		}
		held, levels, trees, parts = s.Held, s.Levels, s.Trees, append(parts, s.Parts...)
	}
	if held == 0 {
		return nil, nil
	}
	slices.SortFunc(parts, func(a, b evalPart) int { return a.At - b.At })
	res := &Eval{Levels: make([]LevelEval, levels)}
	sum, mass, lost := make([]float64, levels), make([]float64, levels), make([]float64, levels)
	found := make([]int, levels)
	for _, p := range parts {
		res.Positions += p.Positions
		for i, l := range p.Loss {
			sum[i] += l
			found[i] += p.Hits[i]
			res.Levels[i].Rows += p.Rows[i]
		}
		for i := range p.Mass {
			mass[i], lost[i] = mass[i]+p.Mass[i], lost[i]+p.Lost[i]
		}
		res.Tau, res.TauGreedy = res.Tau+p.Expect, res.TauGreedy+p.Greedy
	}
	for i := range res.Levels {
		if l := &res.Levels[i]; l.Rows > 0 {
			l.Loss, l.Top1 = sum[i]/float64(l.Rows), float64(found[i])/float64(l.Rows)
			res.Loss += sum[i] / float64(res.Positions)
			if mass[i] > 0 {
				l.Covered = 1 - lost[i]/mass[i]
			}
		}
	}
	if n := float64(res.Positions); n > 0 && trees {
		res.Tau, res.TauGreedy = 1+res.Tau/n, 1+res.TauGreedy/n
	}
	return res, nil
}
