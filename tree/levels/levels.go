// Package levels grows the trees whose nodes are labelled for training: a beam search that
// keeps only the selected nodes, K per level, best first (TALF, §3.2).
//
// The search never runs a model. A caller drives it, so that one pass of a model
// serves any number of searches:
//
//	s.Start(root, maxDepth)
//	for ask := s.Grow(nil); len(ask) > 0; ask = s.Grow(rows) {
//		rows = run nodes ask of s.Tree()
//	}
//
// A Search owns what it returns, valid until its next Start, and stops allocating once it has
// seen its largest tree.
package levels

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"talf/tree"
)

// A Config holds the parameters of TALF's label trees.
type Config struct {
	K     int // nodes of every level below the root
	Depth int // labelled levels, the root's included
}

// Default returns the values of the TALF paper, §4.1: three levels of 1, 4 and 4 nodes.
func Default() Config { return Config{K: 4, Depth: 3} }

// Nodes returns the size of a full tree.
func (c Config) Nodes() int { return 1 + c.K*(c.Depth-1) }

// maxNodes leaves room in a pass for the true inputs before a tree.
const maxNodes = tree.MaxNodes * 3 / 4

// Validate checks that the tree fits.
func (c Config) Validate() error {
	switch {
	case c.K < 1 || c.K > 256:
		return fmt.Errorf("levels: k is %d, want 1..256", c.K)
	case c.Depth < 1 || c.Depth > 64:
		return fmt.Errorf("levels: depth is %d, want 1..64", c.Depth)
	case c.Nodes() > maxNodes:
		return fmt.Errorf("levels: nodes is %d, want 1..%d", c.Nodes(), maxNodes)
	}
	return nil
}

// A Search grows one tree after another.
type Search struct {
	cfg      Config
	maxDepth int
	level    int // levels asked
	tree     tree.Tree
	score    []float64 // by node: log V, the sum of log probabilities along its path
	ask      []int     // nodes of the newest level
	cands    []candidate
}

// A candidate may become a node of the next level.
type candidate struct {
	score  float64
	parent int
	token  int32
	at     int // in order of creation
}

// New returns a search for c.
func New(c Config) (*Search, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	return &Search{cfg: c}, nil
}

// Tree returns the nodes that were asked for, level by level: all of the tree, since
// those of the last level carry a label too.
func (s *Search) Tree() *tree.Tree { return &s.tree }

// Start begins a tree below root whose nodes are at most maxDepth edges away.
func (s *Search) Start(root int32, maxDepth int) {
	s.tree.Reset(root, s.cfg.Nodes())
	s.score, s.ask = append(s.score[:0], 0), s.ask[:0]
	s.maxDepth, s.level = maxDepth, 0
}

// Grow takes the rows of the nodes that the last call asked for, in that order, and
// returns the next level's nodes; none when the tree is done. The first call after
// Start takes no rows, and those of the last level are not read.
func (s *Search) Grow(rows []tree.Row) []int {
	if s.level == 0 {
		s.level, s.ask = 1, append(s.ask, 0)
		return s.ask
	}
	if len(s.ask) == 0 {
		return nil
	}
	if len(rows) != len(s.ask) {
		panic(fmt.Sprintf("levels: %d rows came, %d were asked for", len(rows), len(s.ask)))
	}
	s.cands = s.cands[:0]
	if s.level < s.cfg.Depth && s.level <= s.maxDepth {
		for i, n := range s.ask {
			s.consider(n, &rows[i])
		}
	}
	s.level++
	slices.SortFunc(s.cands, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(b.score, a.score), cmp.Compare(a.at, b.at))
	})
	s.ask = s.ask[:0]
	for _, c := range s.cands[:min(len(s.cands), s.cfg.K)] {
		s.ask = append(s.ask, s.tree.Add(c.parent, c.token))
		s.score = append(s.score, c.score)
	}
	return s.ask
}

// consider adds the tokens that may follow node n, except those without mass, as in the tail of
// a certain row, or whose log probability is NaN.
func (s *Search) consider(n int, row *tree.Row) {
	for r := range min(len(row.Tokens), s.cfg.K) {
		if logp := row.LogProb[r]; logp > float32(math.Inf(-1)) {
			// Rounding can put a log-softmax value above 0, which would score a child
			// above its parent.
			s.cands = append(s.cands, candidate{s.score[n] + min(float64(logp), 0), n, row.Tokens[r], len(s.cands)})
		}
	}
}
