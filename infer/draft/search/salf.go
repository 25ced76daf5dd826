package search

import (
	"fmt"
	"math"
	"slices"

	"talf/tree"
)

// A Finish says which nodes form the tree when SALF's loop stops.
type Finish uint8

// The readings of Algorithm 2's last step. G holds the best N popped nodes, Q
// the nodes that were drafted but not popped.
const (
	TopN    Finish = iota // the best N of G ∪ Q
	Fill                  // G, then the best of Q up to N
	Literal               // G, as the listing leaves it
)

// SALFConfig holds the parameters of TALF's Algorithm 2.
type SALFConfig struct {
	N      int     // nodes of the tree, root counted
	B      int     // nodes expanded per round
	Th     float64 // stop when the probabilities of a round's nodes sum to less; 0 is the optimal search
	Finish Finish
}

// DefaultSALF returns the values of the TALF paper, §4.1.
func DefaultSALF() SALFConfig { return SALFConfig{N: 60, B: 10, Th: 0.6} }

// Validate checks the ranges. B may reach N; the paper wants it below.
func (c SALFConfig) Validate() error {
	if err := inRange("salf: N", c.N, 1, tree.MaxNodes); err != nil {
		return err
	}
	if err := inRange("salf: B", c.B, 1, 256); err != nil {
		return err
	}
	if !(c.Th >= 0 && c.Th < 1) {
		return fmt.Errorf("salf: th is %v, want 0 <= th < 1", c.Th)
	}
	if c.Finish > Literal {
		return fmt.Errorf("salf: finish is %d, want topn, fill or literal", c.Finish)
	}
	return nil
}

// A SALF runs TALF's Algorithm 2: a priority queue over all depths, B nodes expanded per round,
// until the probabilities of a round's nodes sum to less than Th. With Th = 0 it stops only when
// nothing outside the best N is left to expand, which makes the tree optimal (SpecExec; appendix
// B, Theorem 3).
//
// The root counts as one of the N nodes. Nodes are in order, best first.
type SALF struct {
	state
	stop
	cfg  SALFConfig
	g, q []int32 // candidates, best first, at most N each
	d    []int32 // popped in this round
	open bool
}

// NewSALF returns a search for c.
func NewSALF(c SALFConfig) (*SALF, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	s := &SALF{cfg: c, stop: stop{th: c.Th}}
	s.n = c.N
	return s, nil
}

// Width returns N-1, with N as Limit left it: a node's N-th child ranks below N-1 siblings and the
// root, so it can be neither chosen nor expanded.
func (s *SALF) Width() int { return max(s.n-1, 1) }

// Limit lowers N to at most n, from the next Start on.
func (s *SALF) Limit(n int) { s.limit(n, s.cfg.N) }

// Start begins a tree below root.
func (s *SALF) Start(root int32, maxDepth int) {
	// Slightly more than N nodes are expanded in total: some enter G and are pushed out of it
	// again. A search that reaches the bound stops there.
	s.start(root, maxDepth, min(8*s.n+s.cfg.B, maxWork))
	s.g, s.q = s.g[:0], append(s.q[:0], 0)
	s.begin()
	s.open = true
}

// Grow queues the children of the asked nodes and runs one round of the loop.
func (s *SALF) Grow(rows []tree.Row) []int {
	if !s.open {
		return nil
	}
	checkRows("SALF", rows, len(s.asked))
	for i, p := range s.asked {
		for r := range min(len(rows[i].Tokens), s.Width()) {
			lp := rows[i].LogProb[r]
			if len(s.q) == s.n && s.cands[p].score+float64(lp) < s.cands[s.q[s.n-1]].score {
				break // and so are all that follow
			}
			if c, ok := s.child(p, r+1, rows[i].Tokens[r], lp); ok {
				s.q = s.insert(s.q, c)
			}
		}
	}
	s.ask, s.asked = s.ask[:0], s.asked[:0]

	n := min(s.cfg.B, len(s.q))
	s.d = append(s.d[:0], s.q[:n]...)
	s.q = slices.Delete(s.q, 0, n)
	for _, c := range s.d {
		s.g = s.insert(s.g, c)
	}
	eps := math.Inf(-1)
	if len(s.g) == s.n {
		eps = s.cands[s.g[s.n-1]].score
	}
	keep, sum := s.d[:0], 0.0
	for _, c := range s.d {
		if x := &s.cands[c]; x.score > eps && (x.score >= s.least || len(keep) == 0) && int(x.depth) < s.maxDepth {
			keep = append(keep, c)
			sum += math.Exp(x.score)
		}
	}
	if s.low(sum) || len(keep) == 0 || s.work.Room() < len(keep) {
		s.done()
		return nil
	}
	for _, c := range keep {
		s.request(c)
	}
	return s.ask
}

// Finish ends the search as its own stop does.
func (s *SALF) Finish() {
	if s.open {
		s.ask, s.asked = s.ask[:0], s.asked[:0]
		s.done()
	}
}

func (s *SALF) done() {
	s.pick = append(s.pick[:0], s.g...)
	switch s.cfg.Finish {
	case TopN:
		for _, c := range s.q {
			s.pick = s.insert(s.pick, c)
		}
	case Fill:
		s.pick = append(s.pick, s.q[:min(len(s.q), s.n-len(s.g))]...)
		slices.SortFunc(s.pick, s.order)
	case Literal:
	}
	s.finish(s.pick)
	s.open = false
}
