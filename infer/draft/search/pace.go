package search

import (
	"math"
	"slices"
	"sort"
)

// A Tuning is a threshold that depends on what the draft and the target cost.
type Tuning struct {
	Th      float64 // stop when the round's nodes, each less PerNode, sum to less
	PerNode float64 // less likely nodes are not expanded
	Least   float64 // nor kept
	// Price is what rows cost: that of a tree with n nodes below the root is Price[n]. The likeliest
	// nodes are kept for which the sum of their probabilities is most above it. nil: they cost nothing.
	Price []float64
}

// pace stops a search by a tuning, and says what its rounds were worth. A round is a pass of the
// draft model.
type pace struct {
	tune  Tuning
	least float64 // logs of the tuning's, from begin
	worth float64
	sums  []float64
	ends  []int // nodes of the work tree after each round
	gains []float64
}

// Tune sets another threshold, from the next Start on. It may be 1 or more: the root is expanded
// anyway.
func (p *pace) Tune(t Tuning) { p.tune = t }

// Sums returns the summed path probabilities of the nodes that each round was to expand, including
// the round that stopped: S of line 13 of TALF's Algorithm 2. From the second round on SALF's never
// rises (Theorem 1).
func (p *pace) Sums() []float64 { return p.sums }

func (p *pace) begin() {
	p.sums, p.ends = p.sums[:0], p.ends[:0]
	p.least, p.worth = math.Log(p.tune.Least), math.Log(max(p.tune.Least, p.tune.PerNode))
}

// low counts a round over n nodes that sum to sum, and reports whether the search stops before it.
func (p *pace) low(sum float64, n int) bool {
	p.sums = append(p.sums, sum)
	return len(p.sums) > 1 && sum < p.tune.Th+float64(n)*p.tune.PerNode
}

// unanswered forgets the last round if no rows came for what it asked.
func (p *pace) unanswered(ask []int) {
	if len(ask) > 0 {
		p.ends = p.ends[:len(p.ends)-1]
	}
}

// likely counts the candidates of pick, best first, that score at least least. A child is never
// above its parent, so they are a tree if pick is.
func (s *state) likely(pick []int32, least float64) int {
	return sort.Search(len(pick), func(i int) bool { return s.cands[pick[i]].score < least })
}

// afford returns how many of pick, best first, are kept.
func (p *pace) afford(s *state, pick []int32) int {
	n := max(s.likely(pick, p.least), 1)
	if p.tune.Price == nil {
		return n
	}
	kept, best, sum := 1, 0.0, 0.0
	for i := 1; i < min(n, len(p.tune.Price)); i++ {
		sum += math.Exp(s.cands[pick[i]].score)
		if gain := sum - p.tune.Price[i]; gain > best {
			kept, best = i+1, gain
		}
	}
	return kept
}

// gained returns the gains of s's rounds, of which pick, best first, was kept.
func (p *pace) gained(s *state, pick []int32) []float64 {
	p.gains = slices.Grow(p.gains[:0], len(p.ends))[:len(p.ends)]
	clear(p.gains)
	floor := math.Exp(p.least)
	if n := len(pick); n == s.n || p.tune.Price != nil && n > 1 {
		floor = max(floor, math.Exp(s.cands[pick[n-1]].score))
	}
	for _, c := range pick[1:] {
		x := &s.cands[c]
		round, _ := slices.BinarySearch(p.ends, int(s.cands[x.parent].work)+1)
		p.gains[round] += math.Exp(x.score) - floor
	}
	return p.gains
}
