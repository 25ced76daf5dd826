package infer

import (
	"talf/model"
	"talf/tree"
)

// scores implements Scores for one sequence. Distributions are computed once per node and kept
// until the round ends: a verifier may hold several rows.
type scores struct {
	rows      Rows
	tree      *tree.Tree
	proc      Processor
	quantiler Quantiler // nil: it has none
	tokens    []int32   // committed tokens, the root last
	vocab     int

	logits []float32
	path   []int
	cands  []Candidate
	nodes  []int  // nodes whose distribution is in dists
	dists  []Dist // [len(nodes)]; more beyond for reuse
	peak   int    // most rows of a round since they were last given back
	rounds int    // since then
}

// recentRounds is the number of rounds after which rows that none of them needed are given back.
const recentRounds = 32

func (s *scores) begin(rows Rows, t *tree.Tree, tokens []int32) {
	s.rows, s.tree, s.tokens = rows, t, tokens
	// A row of a large vocabulary is a megabyte: those that no recent round needed are given back.
	s.peak = max(s.peak, len(s.nodes))
	if s.rounds++; s.rounds == recentRounds {
		clear(s.dists[s.peak:])
		s.dists, s.peak, s.rounds = s.dists[:s.peak], 0, 0
	}
	s.nodes = s.nodes[:0]
}

// context returns the committed tokens and those on the path to n.
func (s *scores) context(n int) []int32 {
	s.path = s.tree.AppendPath(s.path[:0], n)
	for _, m := range s.path[1:] {
		// Writes past the end of the sequence's tokens, where the next ones
		// will come: nothing is copied.
		s.tokens = append(s.tokens, s.tree.Token(m))
	}
	ctx := s.tokens
	s.tokens = s.tokens[:len(s.tokens)-(len(s.path)-1)]
	return ctx
}

func (s *scores) read(n int) []float32 {
	if len(s.logits) != s.vocab {
		s.logits = make([]float32, s.vocab)
	}
	s.rows.Logits(s.logits, n)
	return s.logits
}

func (s *scores) Argmax(n int) int32 {
	if s.proc.Plain() {
		return s.rows.Argmax(n)
	}
	return s.proc.Argmax(s.read(n), s.context(n))
}

func (s *scores) Dist(n int) Dist {
	for i, m := range s.nodes {
		if m == n {
			return s.dists[i]
		}
	}
	i := len(s.nodes)
	s.nodes = append(s.nodes, n)
	if i == len(s.dists) {
		s.dists = append(s.dists, make(Dist, s.vocab))
	}
	s.proc.Dist(s.dists[i], s.read(n), s.context(n))
	return s.dists[i]
}

// quantile returns the token at quantile u of the distribution after n, if the processor finds it without the
// distribution. The pass may have drawn it, which has the same bits as what is read and drawn here.
func (s *scores) quantile(n int, u float64) (token int32, ok bool) {
	q := s.quantiler
	if q == nil {
		return 0, false
	}
	d, _ := q.Wish(u) // one that asks for nothing if there is none
	if token, ok := s.rows.Drawn(n, d); ok {
		return token, true
	}
	return q.Quantile(s.read(n), s.context(n), u), true
}

func (s *scores) TopK(n, k int) []Candidate {
	s.cands = s.rows.TopK(s.cands[:0], n, k)
	return s.cands
}

func (s *scores) Rank(dst []int32, n, k int) []int32 { return s.rows.Rank(dst, n, k) }

func (s *scores) Hidden(n int) model.Feature { return s.rows.Hidden(n) }
