package train

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"talf/compute"
)

// An Eval is the result of an evaluation on the held-out sequences.
type Eval struct {
	Loss      float64     `json:"loss"` // sum of the levels' losses per position; of a language model: per token
	Positions int         `json:"positions"`
	Levels    []LevelEval `json:"levels"`
	// Tau and TauGreedy are of a head only: the expected number of tokens per target
	// pass, the target's own token included, if the head drafts as many tokens below
	// every node as the stored trees have on a level. Tau is for sampling at temperature
	// 1, TauGreedy for temperature 0. Both are lower bounds (see headEval.tau).
	Tau       float64 `json:"tau,omitempty"`
	TauGreedy float64 `json:"tau_greedy,omitempty"`
}

// score is what the best checkpoint has most of.
func (e *Eval) score() float64 {
	if e.Tau > 0 {
		return e.Tau
	}
	return -e.Loss
}

// A LevelEval is one level of the label trees; level 0 is the text itself.
type LevelEval struct {
	Loss float64 `json:"loss"` // mean cross-entropy of a node
	Top1 float64 `json:"top1"` // share of nodes whose most likely token is the target's
	Rows int     `json:"rows"`
	// Covered is the share of the labels' mass that lies inside the draft vocabulary; 0
	// if there is none.
	Covered float64 `json:"covered,omitempty"`
}

// evaluate evaluates the held-out sequences. Every rank runs a share of them, and the
// result has the bits that one process would get; it is nil if nothing is held out.
func (t *trainer) evaluate(ctx context.Context) (*Eval, error) {
	s, err := t.task.evaluate(ctx)
	if err != nil && ctx.Err() != nil {
		_, _ = t.saveInEmergency() // the error is remembered and returned by the next call
	}
	bodies, err := t.peers.Exchange(ctx, s, err)
	if err != nil {
		return nil, err
	}
	return mergeEval(bodies)
}

// An evalShare is what a rank found in its share of the held-out sequences.
type evalShare struct {
	Held   int        `json:"held"` // number of parts, over all ranks
	Levels int        `json:"levels"`
	Trees  bool       `json:"trees"` // whether Expect and Greedy are set
	Parts  []evalPart `json:"parts"`
}

// An evalPart is the contribution of one held-out sequence, or of one packed batch of
// them.
type evalPart struct {
	At        int       `json:"at"` // number of the sequence or batch
	Positions int       `json:"positions"`
	Loss      []float64 `json:"loss"` // [level], sum over the rows
	Rows      []int     `json:"rows"`
	Hits      []int     `json:"hits"`
	Mass      []float64 `json:"mass,omitempty"` // of the labels
	Lost      []float64 `json:"lost,omitempty"` // of that, outside the draft vocabulary
	Expect    float64   `json:"expect"`         // see (*headEval).tau
	Greedy    float64   `json:"greedy"`
}

func newEvalPart(at, levels int) evalPart {
	return evalPart{At: at, Loss: make([]float64, levels), Rows: make([]int, levels), Hits: make([]int, levels)}
}

// mergeEval adds up the ranks' shares in the order of the sequences, so that the bits
// of the sums do not depend on the number of ranks. The result is nil if nothing is
// held out.
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

// A scorer finds the most likely next tokens of hidden states.
type scorer struct {
	q            compute.Queue
	ops          compute.TrainOps
	w            compute.Linear
	logits, logp compute.Buffer
	ids          compute.Buffer
	hidden, k    int // width of a row; tokens to find
	vocab        *vocabulary
}

// scoreRows is how many rows of logits are kept at a time.
const scoreRows = 64

// newScorer returns a scorer for k tokens per row. v is the vocabulary of w's rows.
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
// best first, as the target's ids.
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

// hits counts the unmasked rows whose first of k tokens is the wanted one.
func hits(top []int32, k int, want []int32, mask []float32) (n int) {
	for r, id := range want {
		if mask[r] != 0 && top[r*k] == id {
			n++
		}
	}
	return n
}
