package search

import (
	"fmt"
	"math"
	"slices"

	"talf/tree"
)

// BeamConfig are the parameters of EAGLE-2's tree.
type BeamConfig struct {
	N     int // nodes of the tree, root counted, as EAGLE's total_tokens does
	K     int // width: nodes expanded per level, and children of each
	Depth int // levels expanded below the root's own; nodes reach Depth+1 edges
}

// DefaultBeam returns the values of the TALF paper, §4.1.
func DefaultBeam() BeamConfig { return BeamConfig{N: 60, K: 10, Depth: 7} }

// Validate checks that a work tree and a final tree of this size can exist.
func (c BeamConfig) Validate() error {
	if err := inRange("beam: N", c.N, 1, tree.MaxNodes); err != nil {
		return err
	}
	if err := inRange("beam: k", c.K, 1, 256); err != nil {
		return err
	}
	if err := inRange("beam: depth", c.Depth, 0, 64); err != nil {
		return err
	}
	if n := 1 + c.K*c.Depth; n > maxWork {
		return fmt.Errorf("beam: k·depth asks for %d nodes, want at most %d", n, maxWork)
	}
	return nil
}

// maxWork bounds the nodes that one search asks for. It leaves a head room for
// the true inputs that precede its drafted nodes.
const maxWork = tree.MaxNodes * 3 / 4

// MostLevels returns the largest Depth of a beam of width k.
func MostLevels(k int) int { return (maxWork - 1) / k }

// A Beam builds EAGLE-2's tree: expand the best K nodes of the newest level
// only, then keep the best N of all candidates. Its nodes come in generation
// order: by depth, then by the parent's place in its level's selection, then by
// rank (Li et al. 2024, EAGLE-2, §4; TALF, appendix B).
type Beam struct {
	state
	stop
	cfg   BeamConfig
	level int
	first int     // candidates of the newest level start here
	top   []int32 // the best n of all, best first
	open  bool
}

// NewBeam returns a search for c.
func NewBeam(c BeamConfig) (*Beam, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	b := &Beam{cfg: c}
	b.n = c.N
	return b, nil
}

// Width returns K.
func (b *Beam) Width() int { return b.cfg.K }

// Limit lowers N to at most n, from the next Start on.
func (b *Beam) Limit(n int) { b.limit(n, b.cfg.N) }

// Start begins a tree below root.
func (b *Beam) Start(root int32, maxDepth int) {
	b.start(root, maxDepth, 1+b.cfg.K*b.cfg.Depth)
	b.level, b.open, b.top = 0, true, append(b.top[:0], 0)
	b.begin()
}

// Grow selects the next level, or finishes the tree.
func (b *Beam) Grow(rows []tree.Row) []int {
	if !b.open {
		return nil
	}
	if b.level == 0 && len(b.asked) == 0 {
		if b.maxDepth > 0 && b.n > 1 {
			b.low(1)
			b.request(0)
			return b.ask
		}
		b.done()
		return nil
	}
	checkRows("Beam", rows, len(b.asked))
	b.first = len(b.cands)
	for i, c := range b.asked {
		for r := range min(len(rows[i].Tokens), b.cfg.K) {
			if n, ok := b.child(c, r+1, rows[i].Tokens[r], rows[i].LogProb[r]); ok {
				b.top = b.insert(b.top, n)
			}
		}
	}
	b.level++
	b.ask, b.asked = b.ask[:0], b.asked[:0]
	if b.level > b.cfg.Depth || b.level >= b.maxDepth {
		b.done()
		return nil
	}
	b.pick = b.pick[:0]
	for c := b.first; c < len(b.cands); c++ {
		b.pick = append(b.pick, int32(c))
	}
	slices.SortFunc(b.pick, b.order)
	next, sum := b.pick[:min(len(b.pick), b.cfg.K)], 0.0
	next = next[:max(b.likely(next, b.least), min(len(next), 1))]
	for _, c := range next {
		sum += math.Exp(b.cands[c].score)
	}
	if b.low(sum) || len(next) == 0 {
		b.done()
		return nil
	}
	for _, c := range next {
		b.request(c)
	}
	return b.ask
}

// Finish ends the tree with the levels that were expanded.
func (b *Beam) Finish() {
	if b.open {
		b.done()
	}
}

func (b *Beam) done() {
	b.pick = append(b.pick[:0], b.top...)
	slices.Sort(b.pick) // candidates are created in generation order
	b.finish(b.pick)
	b.ask, b.asked, b.open = b.ask[:0], b.asked[:0], false
}
