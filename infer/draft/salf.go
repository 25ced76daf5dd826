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
			Name: "salf", Doc: "TALF's Algorithm 2: best-first search that stops at low further gains",
			Params: append(bestFirstParams(), spec.Float("th", th, spec.Below(0, 1), "stop when a round's probabilities sum to less; auto follows what passes cost").Or("auto"), finishParam()),
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
	return spec.Choice("finish", "nodes kept at the stop: topn, fill or literal", "topn", "fill", "literal")
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

// tuned is SALF with a threshold that follows costs.
//
// A round of decoding is a renewal: the rate of tokens is greatest where whatever
// is done earns its time at that rate, a token being worth λ, the present time
// per token. Let κ be accepted tokens per unit of path probability, as measured:
// drafts are over-confident. Then
//
//   - a node of path probability V is worth κλV, and costs a row of the target's
//     pass: it is drafted if V ≥ b/κλ, where a pass of n rows takes a + bn;
//   - a round whose nodes sum to S is worth κλcS, c being the share of such sums
//     that past rounds after the first have turned into nodes of the tree, above
//     what their places were worth: it is run if that is at least the a' + b'n of a
//     draft pass over its n nodes, those that are not worth b' left out.
//
// S never rises (Theorem 1), so the first round that does not pay is the last
// that could: to look one round ahead is enough. The first round is always run.
type tuned struct {
	s      *search.SALF
	cfg    search.SALFConfig
	known  *known
	tokens int // of the last round
}

// known is what the drafters of one maker have measured.
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

// size lets trees differ, so that a row's cost shows.
func (d *known) size(n int) int {
	switch {
	case d.rounds < cost.Warm:
		n >>= d.rounds % 4
	case d.rounds%16 == 0:
		n /= 2
	}
	return max(n, 2)
}

// tuning returns what the costs say, or th as long as they say nothing.
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
		// A clock that stands still, or nothing that is worth its row.
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

func (d *tuned) Traits() infer.Traits { return infer.Traits{Took: d.took} }

// took learns what the round cost.
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
