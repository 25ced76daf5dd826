// Package search grows draft trees from a draft model's next-token rows: beam search
// (EAGLE-2), best-first search with an early stop (SALF), DynaTree's, and Sequoia's
// best tree of one shape.
//
// A search never runs a model. It is a state machine that a caller drives, so
// that one pass of a model can serve any number of searches in lock-step:
//
//	s.Start(root, maxDepth)
//	for ask := s.Grow(nil); len(ask) > 0; ask = s.Grow(rows) {
//		rows = run nodes ask of s.Work()
//	}
//	t := s.Tree()
//
// Work is the tree of the nodes that were asked, in the order of asking: always
// its tail, which is what a model.Segment runs. Tree is what the search chose;
// its nodes need not have been run.
//
// Scores are log V: the sum of the log-softmax values along a node's path, at
// temperature 1 whatever the request samples at, because they shape the tree
// and nothing else. Equal scores go to the shallower node, then to the one that
// was created first. A child never scores above its parent, so the best n nodes
// under that order are a tree; plain top-k loses parents when a draft is certain.
//
// A search owns what it returns, valid until its next Start, and stops
// allocating once it has seen its largest tree.
package search

import (
	"fmt"
	"math"
	"slices"
	"sort"

	"talf/tree"
)

// A Search is what Beam, SALF and DynaTree have in common.
type Search interface {
	// Start begins a tree below root whose nodes are at most maxDepth edges away.
	Start(root int32, maxDepth int)
	// Grow takes the rows of the nodes that the last call asked for, in that
	// order, and returns the nodes of Work to run next; none when the tree is
	// done. The first call after Start takes no rows.
	Grow(rows []tree.Row) (ask []int)
	// Finish ends the tree with the rows that came so far, in place of a Grow.
	Finish()
	// Reach is the sum of the path probabilities of the nodes asked for last.
	Reach() float64
	// Width is the number of next tokens that a row should hold.
	Width() int
	Work() *tree.Tree
	Tree() *tree.Tree
}

// A cand is a node that the search has scored.
type cand struct {
	score  float64 // log V
	parent int32   // index of the candidate above, -1 for the root
	token  int32
	depth  int32
	rank   int32 // 1 is its parent's most likely token; 0 for the root
	work   int32 // node of the work tree, -1 if it was not asked
}

// state is what the searches share: all candidates in order of creation, and
// the two trees.
type state struct {
	cands    []cand
	work     tree.Tree
	out      tree.Tree
	maxDepth int
	n        int // most nodes of out, root counted
	ask      []int
	asked    []int32 // candidates of ask
	pick     []int32 // scratch: chosen candidates
	node     []int32 // scratch: candidate to node of out
	score    []float64
	rank     []int
}

func (s *state) limit(n, cfg int) { s.n = max(1, min(n, cfg)) }

func (s *state) start(root int32, maxDepth, work int) {
	s.cands = append(s.cands[:0], cand{parent: -1, token: root, work: -1})
	s.work.Reset(root, work)
	s.out.Reset(root, 1)
	s.maxDepth = maxDepth
	s.ask, s.asked = s.ask[:0], s.asked[:0]
	s.score, s.rank = append(s.score[:0], 0), append(s.rank[:0], 0)
}

// Reach returns the sum of exp(log V) over the nodes asked for last.
func (s *state) Reach() (sum float64) {
	for _, c := range s.asked {
		sum += math.Exp(s.cands[c].score)
	}
	return sum
}

// before orders candidates: higher score, then shallower, then earlier.
func (s *state) before(a, b int32) bool {
	x, y := &s.cands[a], &s.cands[b]
	if x.score != y.score {
		return x.score > y.score
	}
	if x.depth != y.depth {
		return x.depth < y.depth
	}
	return a < b
}

func (s *state) order(a, b int32) int {
	switch {
	case a == b:
		return 0
	case s.before(a, b):
		return -1
	}
	return 1
}

// request appends candidate c to the work tree and asks for it. It reports false if the work
// tree is full.
func (s *state) request(c int32) bool {
	x := &s.cands[c]
	if x.parent < 0 {
		x.work = 0
	} else {
		if s.work.Room() == 0 {
			return false
		}
		x.work = int32(s.work.Add(int(s.cands[x.parent].work), x.token))
	}
	s.ask, s.asked = append(s.ask, int(x.work)), append(s.asked, c)
	return true
}

// child creates token as a candidate below p. It reports false if the row gives it no mass, as
// in the tail of a certain draft, or if logp is NaN.
func (s *state) child(p int32, rank int, token int32, logp float32) (int32, bool) {
	if !(logp > float32(math.Inf(-1))) {
		return 0, false
	}
	x := s.cands[p]
	// Rounding can put a log-softmax value above 0, which would score a child
	// above its parent.
	s.cands = append(s.cands, cand{
		score: x.score + min(float64(logp), 0), parent: p, token: token,
		depth: x.depth + 1, rank: int32(rank), work: -1,
	})
	return int32(len(s.cands) - 1), true
}

// insert puts c into the sorted list, and drops everything after the n best.
func (s *state) insert(list []int32, c int32) []int32 {
	i := sort.Search(len(list), func(i int) bool { return s.before(c, list[i]) })
	if i == s.n {
		return list
	}
	if len(list) == s.n {
		list = list[:s.n-1]
	}
	return slices.Insert(list, i, c)
}

// finish builds the tree of pick, which starts with the root and has every chosen candidate's
// parent before it.
func (s *state) finish(pick []int32) {
	s.out.Reset(s.cands[0].token, max(len(pick), 1))
	s.node = slices.Grow(s.node[:0], len(s.cands))[:len(s.cands)]
	s.node[0] = 0
	s.score, s.rank = append(s.score[:0], 0), append(s.rank[:0], 0)
	for _, c := range pick {
		if c == 0 {
			continue
		}
		x := &s.cands[c]
		s.node[c] = int32(s.out.Add(int(s.node[x.parent]), x.token))
		s.score, s.rank = append(s.score, x.score), append(s.rank, int(x.rank))
	}
}

// Work returns the nodes that were asked, in the order of asking.
func (s *state) Work() *tree.Tree { return &s.work }

// Tree returns the chosen tree: the root alone until the search is done.
func (s *state) Tree() *tree.Tree { return &s.out }

// LogV returns log V of each node of Tree; 0 for the root.
func (s *state) LogV() []float64 { return s.score }

// Ranks returns each node's rank among its parent's next tokens, from 1; 0 for
// the root.
func (s *state) Ranks() []int { return s.rank }

func checkRows(name string, rows []tree.Row, asked int) {
	if len(rows) != asked {
		panic(fmt.Sprintf("search: %s got %d rows, asked for %d", name, len(rows), asked))
	}
}

func inRange(what string, v, lo, hi int) error {
	if v < lo || v > hi {
		return fmt.Errorf("%s is %d, want %d..%d", what, v, lo, hi)
	}
	return nil
}
