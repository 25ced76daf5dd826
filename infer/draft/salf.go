package draft

import (
	"fmt"
	"math"
	"sync"

	"talf/infer"
	"talf/infer/draft/cost"
	"talf/infer/draft/search"
	"talf/infer/draft/shape"
	"talf/internal/spec"
)

func salfMethod() Method {
	th := search.DefaultSALF().Th
	return Method{
		Line: spec.Line{
			Name: "salf", Doc: "TALF's Algorithm 2: best-first search that stops when further gains are low",
			Params: append(bestFirstParams(), spec.Float("th", th, spec.Below(0, 1), "stop when the probabilities of the nodes to expand next sum to less; auto follows the cost of passes").Or("auto"), finishParam()),
		},
		Source: true,
		Open: func(v spec.Values, _ Env) (Maker, error) {
			if v.Is("th", "auto") {
				return openTuned(v)
			}
			return openSALF(v, v.Float("th"))
		},
	}
}

func bestFirstParams() []spec.Param {
	c := search.DefaultSALF()
	return []spec.Param{nodesParam(c.N), spec.Int("B", c.B, 1, shape.MaxRank+1, "nodes expanded per round")}
}

// finishParam lists the words in the order of search.Finish.
func finishParam() spec.Param {
	return spec.Choice("finish", "which drafted nodes are kept at the stop: topn, fill or literal", "topn", "fill", "literal")
}

func openSALF(v spec.Values, th float64) (Maker, error) {
	c := search.SALFConfig{N: v.Int("N"), B: v.Int("B"), Th: th, Finish: search.Finish(v.Choice("finish"))}
	return searching(func() (limited, error) { return search.NewSALF(c) })
}

func openTuned(v spec.Values) (Maker, error) {
	c := search.DefaultSALF()
	c.N, c.B, c.Finish = v.Int("N"), v.Int("B"), search.Finish(v.Choice("finish"))
	if _, err := search.NewSALF(c); err != nil {
		return Maker{}, err
	}
	known := new(known)
	return Maker{New: func() infer.Drafter {
		s, err := search.NewSALF(c)
		if err != nil {
			panic(fmt.Sprintf("draft: a configuration that was accepted is refused: %v", err))
		}
		return &tuned{s: s, cfg: c, known: known}
	}}, nil
}

// A tuned drafter is SALF with a threshold that follows costs.
//
// A round of decoding is a renewal: tokens come fastest if everything that is done earns its
// time at the current rate, that is, if a token is worth λ, the current time per token. Let κ be
// the measured number of accepted tokens per unit of path probability (drafts are
// overconfident). Then
//
//   - a node of path probability V is worth κλV, and costs a row of the target's
//     pass: it is drafted if V ≥ b/κλ, where a pass of n rows takes a + bn;
//   - a round whose nodes sum to S is worth κλcS, where c is the share of such sums
//     that past rounds after the first turned into nodes of the tree, beyond what
//     their places were worth: it is run if that is at least a' + b'n, the cost of a
//     draft pass over its n nodes without those that are not worth b'.
//
// S never rises (Theorem 1), so once a round does not pay, no later round can: looking one round
// ahead is enough. The first round is always run.
type tuned struct {
	s      *search.SALF
	cfg    search.SALFConfig
	known  *known
	tokens int // of the last round
}

// known holds what the drafters of one maker have measured.
type known struct {
	sync.Mutex
	pass, step cost.Affine // seconds by rows
	spent      cost.Ratio  // seconds per token
	calibrated cost.Ratio  // accepted nodes per path probability
	harvested  cost.Ratio  // gains per sum
	rounds     int
}

func (d *tuned) Start([]int32) error { return nil }

func (d *tuned) Grow(p *infer.Proposal, rows []infer.Row, _ infer.Chance) ([]int, error) {
	if rows == nil {
		d.known.Lock()
		d.s.Tune(d.known.tuning(d.cfg.Th))
		n := d.known.size(min(p.MaxNodes, d.cfg.N))
		d.known.Unlock()
		searched{d.s}.begin(p, n)
	}
	return searched{d.s}.grow(p, rows)
}

// size varies the size of trees, to measure the cost of a row.
func (d *known) size(n int) int {
	switch {
	case d.rounds < cost.Warm:
		n >>= d.rounds % 4
	case d.rounds%16 == 0:
		n /= 2
	}
	return max(n, 2)
}

// tuning follows the costs; it is th while they are unknown.
func (d *known) tuning(th float64) search.Tuning {
	if d.rounds < cost.Warm {
		return search.Tuning{Th: th}
	}
	_, row, _ := d.pass.Fit()
	draft, node, _ := d.step.Fit()
	worth := d.calibrated.Value(1, 2) * d.spent.Value(0, 0)
	c := d.harvested.Value(0.5, 1)
	t := search.Tuning{Th: draft / (worth * c), PerNode: node / (worth * c), Least: row / worth}
	if !(t.Th < 1e9 && t.PerNode < 1e9 && t.Least < 1) {
		// The clock stands still, or nothing is worth its row.
		t = search.Tuning{Th: min(t.Th, 1e9), PerNode: min(t.PerNode, 1e9), Least: 0.9}
	}
	if math.IsNaN(t.Th + t.PerNode) {
		t.Th, t.PerNode = th, 0
	}
	return t
}

func (d *tuned) Observe(p infer.Proposal, v infer.Verdict, _ infer.Scores) error {
	d.tokens = len(v.Path)
	if p.Tree != d.s.Tree() || p.Tree.Len() < 2 {
		return nil
	}
	var predicted float64
	for _, x := range d.s.LogV()[1:] {
		predicted += math.Exp(x)
	}
	k := d.known
	k.Lock()
	defer k.Unlock()
	k.calibrated.Add(float64(len(v.Path)-1), predicted)
	sums := d.s.Sums()
	for i, g := range d.s.Gains() {
		if i > 0 {
			k.harvested.Add(g, sums[i])
		}
	}
	return nil
}

func (d *tuned) Traits() infer.Traits {
	return infer.Traits{Took: d.took, Finish: searched{d.s}.finish}
}

// took learns from the cost of the round.
func (d *tuned) took(t infer.Timing) {
	k := d.known
	k.Lock()
	defer k.Unlock()
	k.rounds++
	k.pass.Add(float64(t.Rows), t.Verify.Seconds())
	if t.Steps > 0 {
		n := float64(t.Steps)
		k.step.Add(float64(t.Asked)/n, t.Draft.Seconds()/n)
	}
	k.spent.Add((t.Verify + t.Draft + t.Overhead).Seconds(), float64(d.tokens))
}
