package train

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
)

// An Eval is the result of an evaluation on the held-out sequences.
type Eval struct {
	Loss      float64     `json:"loss"` // sum of the levels' losses per position; of a language model: per token
	Positions int         `json:"positions"`
	Levels    []LevelEval `json:"levels"`
	// Tau and TauGreedy are set only for heads: the expected number of tokens per target pass,
	// including the target's own token, if the head drafts as many tokens below every node as
	// the stored trees have on a level. Tau is for sampling at temperature 1, TauGreedy for
	// temperature 0. Both are lower bounds (see headEval.tau).
	Tau       float64 `json:"tau,omitempty"`
	TauGreedy float64 `json:"tau_greedy,omitempty"`
}

// score is what the best checkpoint maximises.
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

// An evalPart is the contribution of one held-out sequence, or of one packed batch of them.
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

// hits counts the unmasked rows whose first of k tokens is the wanted one.
func hits(top []int32, k int, want []int32, mask []float32) (n int) {
	for r, id := range want {
		if mask[r] != 0 && top[r*k] == id {
			n++
		}
	}
	return n
}
