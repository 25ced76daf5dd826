package search

import (
	"errors"
	"fmt"
	"math"

	"talf/tree"
)

// DynaTreeConfig are the parameters of DynaTree's DraftTree (Chen et al., §3.3
// and Algorithm 1). A fixed tree is the special case of equal branch bounds and
// D0 = DMax.
type DynaTreeConfig struct {
	N    int     // nodes of the tree, root counted
	D0   float64 // base depth: nodes from there on need more than Deep
	DMax int     // largest depth of a node

	// Children of a node whose most likely next token has at least High of probability, at least
	// Low, or less.
	BMin, BMid, BMax int
	High, Low        float64 // τh and τl

	// Path probabilities: a node below Prune is left out, one below Stop has no
	// children, and from depth D0 on only nodes above Deep have.
	Prune, Stop, Deep float64 // τ, ρstop and ρdeep
}

// DefaultDynaTree returns the values of the paper, appendix A. It prints none for
// Prune, Stop and Deep: these are the best of a sweep on held-out prompts, which
// docs/measurements/methods-sweeps.md shows.
func DefaultDynaTree() DynaTreeConfig {
	return DynaTreeConfig{
		N: 256, D0: 5, DMax: 8, BMin: 1, BMid: 2, BMax: 3, High: 0.9, Low: 0.4,
		Prune: 0.1, Stop: 0.1, Deep: 0.12,
	}
}

// FixedTree returns the paper's baseline: every node has b children down to depth d, except
// paths less likely than prune.
func FixedTree(n, d, b int, prune float64) DynaTreeConfig {
	return DynaTreeConfig{N: n, D0: float64(d), DMax: d, BMin: b, BMid: b, BMax: b, High: 1, Prune: prune}
}

// Validate checks the ranges.
func (c DynaTreeConfig) Validate() error {
	if err := inRange("dynatree: N", c.N, 1, tree.MaxNodes); err != nil {
		return err
	}
	if err := inRange("dynatree: deepest level", c.DMax, 1, 64); err != nil {
		return err
	}
	if !(c.D0 >= 1 && c.D0 <= float64(c.DMax)) {
		return fmt.Errorf("dynatree: base depth is %v, want 1 to %d", c.D0, c.DMax)
	}
	if err := inRange("dynatree: largest breadth", c.BMax, 1, 256); err != nil {
		return err
	}
	if c.BMin < 1 || c.BMid < c.BMin || c.BMax < c.BMid {
		return fmt.Errorf("dynatree: breadths are %d, %d and %d, want at least 1 and none below the one before", c.BMin, c.BMid, c.BMax)
	}
	if !(c.Low >= 0 && c.Low < c.High && c.High <= 1) {
		return fmt.Errorf("dynatree: confidence thresholds are %v and %v, want 0 <= low < high <= 1", c.Low, c.High)
	}
	for i, name := range []string{"tau", "stop", "deep"} {
		if p := []float64{c.Prune, c.Stop, c.Deep}[i]; !(p >= 0 && p < 1) {
			return fmt.Errorf("dynatree: %s is %v, want 0 <= %s < 1", name, p, name)
		}
	}
	if c.Deep > 0 && c.Stop >= c.Deep {
		return errors.New("dynatree: paths stop at a probability that lets them go deeper, want stop < deep")
	}
	return nil
}

// A DynaTree builds DynaTree's trees, breadth first, one level per pass: the paper runs one node
// per pass, in the same order, which gives the same tree. Nodes are in the order of the listing.
//
// Nodes that would be pruned are not added, so that they take no room from others.
type DynaTree struct {
	state
	cfg   DynaTreeConfig
	prune float64 // as log V, like those below
	stop  float64
	deep  float64
	open  bool
}

// NewDynaTree returns a search for c.
func NewDynaTree(c DynaTreeConfig) (*DynaTree, error) {
	d := &DynaTree{}
	if err := d.Set(c); err != nil {
		return nil, err
	}
	return d, nil
}

// Set changes the parameters, from the next Start on.
func (d *DynaTree) Set(c DynaTreeConfig) error {
	if err := c.Validate(); err != nil {
		return err
	}
	d.cfg, d.n = c, c.N
	d.prune, d.stop, d.deep = math.Log(c.Prune), math.Log(c.Stop), math.Log(c.Deep)
	return nil
}

// Width returns the largest breadth.
func (d *DynaTree) Width() int { return d.cfg.BMax }

// Limit lowers N to at most n, from the next Start on.
func (d *DynaTree) Limit(n int) { d.limit(n, d.cfg.N) }

// Start begins a tree below root.
func (d *DynaTree) Start(root int32, maxDepth int) {
	d.start(root, min(maxDepth, d.cfg.DMax), min(d.n, maxWork))
	d.pick, d.open = append(d.pick[:0], 0), true
}

// Grow adds the children of the asked nodes and asks for the new level's.
func (d *DynaTree) Grow(rows []tree.Row) []int {
	if !d.open {
		return nil
	}
	checkRows("DynaTree", rows, len(d.asked))
	first := len(d.pick)
	if len(d.asked) == 0 {
		first = 0
	}
	for i, p := range d.asked {
		d.add(p, &rows[i])
	}
	d.ask, d.asked = d.ask[:0], d.asked[:0]
	for _, c := range d.pick[first:] {
		if len(d.pick) < d.n && d.expands(c) && !d.request(c) {
			break
		}
	}
	if len(d.ask) == 0 {
		d.finish(d.pick)
		d.open = false
	}
	return d.ask
}

// Finish ends the tree with the levels that were added.
func (d *DynaTree) Finish() {
	if d.open {
		d.ask, d.asked = d.ask[:0], d.asked[:0]
		d.finish(d.pick)
		d.open = false
	}
}

// add puts the likeliest children of p into the tree.
func (d *DynaTree) add(p int32, r *tree.Row) {
	if len(r.Tokens) == 0 {
		return
	}
	b := d.cfg.BMid
	switch c := math.Exp(float64(r.LogProb[0])); {
	case c >= d.cfg.High:
		b = d.cfg.BMin
	case c < d.cfg.Low:
		b = d.cfg.BMax
	}
	for i := range min(b, len(r.Tokens)) {
		if len(d.pick) == d.n || d.cands[p].score+min(float64(r.LogProb[i]), 0) < d.prune {
			return // and so are all that follow
		}
		if c, ok := d.child(p, i+1, r.Tokens[i], r.LogProb[i]); ok {
			d.pick = append(d.pick, c)
		}
	}
}

// expands is the depth gate.
func (d *DynaTree) expands(c int32) bool {
	x := &d.cands[c]
	return int(x.depth) < d.maxDepth && x.score >= d.stop &&
		(float64(x.depth) < d.cfg.D0 || x.score > d.deep)
}

var _ Search = (*DynaTree)(nil)
