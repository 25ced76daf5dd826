package search

import (
	"errors"
	"fmt"
	"math"

	"talf/tree"
)

// DynaTreeConfig are the parameters of DynaTree's DraftTree (Chen et al., §3.3 and Algorithm 1), as
// the authors' code reads them. Their depths count the draft's likeliest token as 0; here it is the
// only child of the root, which is the last emitted token, at depth 1. A fixed tree is the special
// case of equal branch bounds and D0 = DMax.
type DynaTreeConfig struct {
	N    int     // nodes of the tree, root counted; theirs and one more
	D0   float64 // base depth: nodes from there on need more than Deep
	DMax int     // largest depth of a node

	// Root is the number of children of the root, 1 in the authors' code; 0 leaves it to the
	// breadths below.
	Root int
	// Children of a node whose most likely next token has more than High of probability, at least
	// Low, or less.
	BMin, BMid, BMax int
	High, Low        float64 // τh and τl

	// Path probabilities: a node below Tau or below Stop has no children, and from depth D0 on only
	// nodes above Deep have. A node below Tau stays and is verified, unless Prune leaves it out.
	Tau, Stop, Deep float64 // τ, ρstop and ρdeep
	Prune           bool
}

// DefaultDynaTree returns the values of the authors' runs on WikiText-2.
func DefaultDynaTree() DynaTreeConfig {
	return DynaTreeConfig{
		N: 257, D0: 5, DMax: 8, Root: 1, BMin: 1, BMid: 2, BMax: 3, High: 0.9, Low: 0.4,
		Tau: 0.05, Stop: 0.1, Deep: 0.5,
	}
}

// FixedTree returns the paper's baseline: below the draft's likeliest token every node has b
// children, d levels deep, except nodes whose path is less likely than tau.
func FixedTree(n, d, b int, tau float64) DynaTreeConfig {
	return DynaTreeConfig{N: n, D0: float64(d + 1), DMax: d + 1, Root: 1, BMin: b, BMid: b, BMax: b, High: 1, Tau: tau}
}

// Validate checks the ranges.
func (c DynaTreeConfig) Validate() error {
	if err := inRange("dynatree: N", c.N, 1, tree.MaxNodes); err != nil {
		return err
	}
	if err := inRange("dynatree: deepest level", c.DMax, 1, maxDynaTree); err != nil {
		return err
	}
	if !(c.D0 >= 1 && c.D0 <= float64(c.DMax)) {
		return fmt.Errorf("dynatree: base depth is %v, want 1 to %d", c.D0, c.DMax)
	}
	if err := inRange("dynatree: children of the root", c.Root, 0, 256); err != nil {
		return err
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
		if p := []float64{c.Tau, c.Stop, c.Deep}[i]; !(p >= 0 && p < 1) {
			return fmt.Errorf("dynatree: %s is %v, want 0 <= %s < 1", name, p, name)
		}
	}
	if c.Deep > 0 && c.Stop > c.Deep {
		return errors.New("dynatree: paths stop at a probability that lets them go deeper, want stop <= deep")
	}
	return nil
}

// maxDynaTree is the largest DMax: that of a fixed tree of 64 levels below its first token.
const maxDynaTree = 65

// A DynaTree builds DynaTree's trees, breadth first, one level per pass: the authors' code runs one
// node per pass, in the same order, which gives the same tree. Nodes are in the order of the
// listing. With Prune, nodes below Tau take no room from others.
type DynaTree struct {
	state
	cfg  DynaTreeConfig
	tau  float64 // as log V, like those below
	stop float64
	deep float64
	open bool
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
	d.tau, d.stop, d.deep = math.Log(c.Tau), math.Log(max(c.Tau, c.Stop)), math.Log(c.Deep)
	return nil
}

// Width returns the largest breadth.
func (d *DynaTree) Width() int { return max(d.cfg.BMax, d.cfg.Root) }

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
	case p == 0 && d.cfg.Root > 0:
		b = d.cfg.Root
	case c > d.cfg.High:
		b = d.cfg.BMin
	case c < d.cfg.Low:
		b = d.cfg.BMax
	}
	for i := range min(b, len(r.Tokens)) {
		if len(d.pick) == d.n || d.cfg.Prune && d.cands[p].score+min(float64(r.LogProb[i]), 0) < d.tau {
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
