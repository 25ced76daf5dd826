package search

import (
	"fmt"
	"math"

	"talf/tree"
)

// AccumConfig are the parameters of JetSpec's trees (hao-ai-lab/JetSpec, accum_logp and top2gap_fanout).
type AccumConfig struct {
	N int // nodes of the tree, root counted
	K int // children of a node
	// Beta, unless 0, gives a node fewer children the surer the draft is there: with the gap between its two likeliest tokens'
	// log-probabilities max(1, K·σ(−Beta·(gap−Gap))), rounded.
	Beta, Gap float64
}

// Validate checks the ranges.
func (c AccumConfig) Validate() error {
	if err := inRange("accum: N", c.N, 1, maxWork); err != nil {
		return err
	}
	if err := inRange("accum: k", c.K, 1, 256); err != nil {
		return err
	}
	if !(c.Beta >= 0 && c.Beta < math.Inf(1)) || math.IsNaN(c.Gap) || math.IsInf(c.Gap, 0) {
		return fmt.Errorf("accum: beta is %v and gap %v, want finite numbers and beta at least 0", c.Beta, c.Gap)
	}
	return nil
}

// An Accum builds JetSpec's trees: the likeliest node without children gets all of its own, until there are N. They stay, however
// unlikely. Nodes are in the order in which they are made.
type Accum struct {
	state
	cfg  AccumConfig
	open bool
	next []int32 // candidates of the tree that have not been expanded, best first
}

// NewAccum returns a search for c.
func NewAccum(c AccumConfig) (*Accum, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	a := &Accum{cfg: c}
	a.n = c.N
	return a, nil
}

// Width returns K, and at least the two tokens whose gap counts.
func (a *Accum) Width() int { return max(a.cfg.K, 2) }

// Limit lowers N to at most n, from the next Start on.
func (a *Accum) Limit(n int) { a.limit(n, a.cfg.N) }

// Start begins a tree below root.
func (a *Accum) Start(root int32, maxDepth int) {
	a.start(root, maxDepth, a.n)
	a.pick, a.next, a.open = append(a.pick[:0], 0), append(a.next[:0], 0), true
}

// Grow adds the children of the asked node and asks for the row of the next.
func (a *Accum) Grow(rows []tree.Row) []int {
	if !a.open {
		return nil
	}
	checkRows("Accum", rows, len(a.asked))
	for i, p := range a.asked {
		for r := range min(a.children(&rows[i]), len(rows[i].Tokens)) {
			if len(a.pick) == a.n {
				break
			}
			if c, ok := a.child(p, r+1, rows[i].Tokens[r], rows[i].LogProb[r]); ok {
				a.pick = append(a.pick, c)
				if int(a.cands[c].depth) < a.maxDepth {
					a.next = a.insert(a.next, c)
				}
			}
		}
	}
	a.ask, a.asked = a.ask[:0], a.asked[:0]
	if len(a.pick) == a.n || len(a.next) == 0 || a.maxDepth == 0 {
		a.Finish()
		return nil
	}
	c := a.next[0]
	a.next = append(a.next[:0], a.next[1:]...)
	a.request(c)
	return a.ask
}

// children returns how many children a node with a row gets.
func (a *Accum) children(r *tree.Row) int {
	if a.cfg.Beta == 0 || len(r.Tokens) < 2 {
		return a.cfg.K
	}
	gap := float64(r.LogProb[0]) - float64(r.LogProb[1])
	return max(1, int(math.RoundToEven(float64(a.cfg.K)/(1+math.Exp(a.cfg.Beta*(gap-a.cfg.Gap))))))
}

// Finish ends the tree with the nodes that are there.
func (a *Accum) Finish() {
	if a.open {
		a.ask, a.asked, a.open = a.ask[:0], a.asked[:0], false
		a.finish(a.pick)
	}
}

var _ Search = (*Accum)(nil)
