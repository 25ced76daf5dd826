package papers_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"talf/infer/draft/papers"
)

// shapes calls f with the number of nodes and the value of every tree of at most n nodes,
// including the root, within depth edges, by trying all ways to give the root's children
// subtrees.
func shapes(accept []float64, n, depth int, f func(nodes int, value float64)) {
	var children func(r, left int, nodes int, value float64)
	children = func(r, left, nodes int, value float64) {
		f(nodes, value)
		if r == len(accept) || left == 0 || depth == 0 {
			return
		}
		shapes(accept, left, depth-1, func(k int, v float64) {
			children(r+1, left-k, nodes+k, value+accept[r]*v)
		})
	}
	children(0, n-1, 1, 1)
}

func TestSequoiaEqualsBruteForce(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 5))
		accept := make([]float64, 1+r.IntN(4))
		sum := 0.0
		for i := range accept {
			accept[i] = r.Float64()
			sum += accept[i]
		}
		for i := range accept {
			accept[i] /= sum / r.Float64()
		}
		if seed%4 == 0 {
			accept[0] = 0 // worth a node only for the rank after it
		}
		for n := 1; n <= 7; n++ {
			for depth := 1; depth <= 4; depth++ {
				best := 0.0
				shapes(accept, n, depth, func(_ int, v float64) { best = max(best, v) })
				paths, tau, err := papers.SequoiaTree(accept, n, depth)
				if err != nil {
					t.Fatal(err)
				}
				if math.Abs(tau-best) > 1e-9 {
					t.Errorf("%v, %d nodes, depth %d: τ = %v, the best tree has %v", accept, n, depth, tau, best)
				}
				if got := valueOf(t, accept, paths, n, depth); math.Abs(got-tau) > 1e-9 {
					t.Errorf("%v, %d nodes, depth %d: %v has τ = %v, said was %v", accept, n, depth, paths, got, tau)
				}
			}
		}
	}
}

// valueOf checks a list of paths and returns the tree's value by its definition.
func valueOf(t *testing.T, accept []float64, paths [][]int, n, depth int) float64 {
	t.Helper()
	seen := map[string]bool{"": true}
	sum := 1.0
	key := func(p []int) string {
		b := make([]byte, len(p))
		for i, r := range p {
			b[i] = byte(r)
		}
		return string(b)
	}
	for _, p := range paths {
		last := len(p) - 1
		if len(p) == 0 || len(p) > depth || seen[key(p)] || !seen[key(p[:last])] {
			t.Fatalf("%v: path %v", paths, p)
		}
		if elder := append([]int(nil), p...); p[last] > 0 {
			if elder[last]--; !seen[key(elder)] {
				t.Fatalf("%v: path %v lacks an elder sibling", paths, p)
			}
		}
		seen[key(p)] = true
		v := 1.0
		for _, r := range p {
			v *= accept[r]
		}
		sum += v
	}
	if len(seen) > n {
		t.Fatalf("%d nodes, want at most %d", len(seen), n)
	}
	return sum
}

// With equal probabilities the best tree is as wide as allowed; with one rank that is always
// right it is a chain.
func TestSequoiaKnowsTheLimits(t *testing.T) {
	for _, c := range []struct {
		accept []float64
		n      int
		depth  int
		tau    float64
		nodes  int
	}{
		{[]float64{1}, 6, 64, 6, 5},
		{[]float64{0.5, 0.5}, 7, 64, 3, 6},           // the binary tree of depth 2: 1 + 2/2 + 4/4
		{[]float64{0.5, 0.25}, 4, 64, 2, 3},          // 0, 1 and 00: 1 + 1/2 + 1/4 + 1/4
		{[]float64{0.9, 0.1, 0}, 5, 1, 2, 2},         // a rank that is never accepted gains nothing
		{[]float64{0, 0}, 5, 3, 1, 0},                // nor by any
		{[]float64{0.6, 0.4}, 1024, 2, 1 + 1 + 1, 6}, // depth binds, not the nodes
	} {
		paths, tau, err := papers.SequoiaTree(c.accept, c.n, c.depth)
		if err != nil || math.Abs(tau-c.tau) > 1e-9 || len(paths) != c.nodes {
			t.Errorf("%v, %d nodes, depth %d: τ = %v with %v, %v; want %v with %d drafted nodes", c.accept, c.n, c.depth, tau, paths, err, c.tau, c.nodes)
		}
	}
	for _, c := range []struct {
		accept   []float64
		n, depth int
	}{{nil, 5, 5}, {[]float64{0.5}, 0, 5}, {[]float64{0.5}, 5, 0}, {[]float64{0.5, 0.6}, 5, 5}, {[]float64{-0.5}, 5, 5}, {[]float64{math.NaN()}, 5, 5}, {[]float64{0.5}, 5000, 5}} {
		if _, _, err := papers.SequoiaTree(c.accept, c.n, c.depth); err == nil {
			t.Errorf("%v, %d nodes, depth %d is accepted", c.accept, c.n, c.depth)
		}
	}
}

// Depths that no better tree needs cost nothing.
func TestSequoiaStopsAtTheDepthOfTheBestTree(t *testing.T) {
	accept := []float64{0.3, 0.3, 0.3}
	cost := func(depth int) float64 {
		return testing.AllocsPerRun(5, func() {
			if _, _, err := papers.SequoiaTree(accept, 30, depth); err != nil {
				t.Fatal(err)
			}
		})
	}
	if few, many := cost(30), cost(64); few != many || many >= 2*cost(4) {
		t.Errorf("%v allocations at depth 4, %v at 30, %v at 64", cost(4), few, many)
	}
}

func BenchmarkSequoia(b *testing.B) {
	accept := []float64{0.4, 0.15, 0.08, 0.05, 0.04, 0.03, 0.02, 0.02}
	for b.Loop() {
		if _, _, err := papers.SequoiaTree(accept, 80, 12); err != nil {
			b.Fatal(err)
		}
	}
}
