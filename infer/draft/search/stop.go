package search

import (
	"math"
	"sort"
)

// A stop ends a search when too little is left to gain. A round is a pass of the draft model.
type stop struct {
	th    float64 // stop when the probabilities of a round's nodes sum to less
	floor float64 // as Least was told,
	least float64 // and its log, from begin
	sums  []float64
}

// Least makes a search expand no nodes that are less likely but the likeliest of each round, from the next Start on.
func (p *stop) Least(probability float64) { p.floor = probability }

// Sums returns the summed path probabilities of the nodes that each round was to expand, including
// the round that stopped: S of line 13 of TALF's Algorithm 2. From the second round on SALF's never
// rises (Theorem 1).
func (p *stop) Sums() []float64 { return p.sums }

func (p *stop) begin() { p.sums, p.least = p.sums[:0], math.Log(p.floor) }

// low counts a round over nodes that sum to sum, and reports whether the search stops before it. The first is always run.
func (p *stop) low(sum float64) bool {
	p.sums = append(p.sums, sum)
	return len(p.sums) > 1 && sum < p.th
}

// likely counts the candidates of pick, best first, that score at least least. A child is never
// above its parent, so they are a tree if pick is.
func (s *state) likely(pick []int32, least float64) int {
	return sort.Search(len(pick), func(i int) bool { return s.cands[pick[i]].score < least })
}
