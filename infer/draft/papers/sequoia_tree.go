package papers

import (
	"fmt"
	"math"
	"slices"

	"talf/tree"
)

// sequoiaTree returns the tree of at most n nodes, root counted, and at most depth
// edges that is best where a node's r-th child is accepted with probability
// accept[r-1], whatever the node (Chen et al. 2024, §3.1): the paths of child
// ranks from 0 of all nodes but the root, parents and elder siblings first, and
// the mean number of tokens that a pass then emits, the target's own included.
//
// The value of a node is the product of accept along its path. Ranks need not be
// in order of accept: a node has an r-th child only if it has all before it.
//
// With T_d(n) the best value of n nodes within d edges of their root, and R_d(r,m)
// that of m nodes below a root's children from rank r on:
//
//	T_d(n)   = 1 + R_d(0, n−1)
//	R_d(r,m) = max(0, max over s in 1..m of accept[r]·T_{d−1}(s) + R_d(r+1, m−s))
func sequoiaTree(accept []float64, n, depth int) (paths [][]int, tau float64, err error) {
	for _, x := range []struct {
		what       string
		is, lo, hi int
	}{{"nodes", n, 1, tree.MaxNodes}, {"depth", depth, 1, 64}, {"ranks", len(accept), 1, 256}} {
		if x.is < x.lo || x.is > x.hi {
			return nil, 0, fmt.Errorf("sequoia: %s is %d, want %d..%d", x.what, x.is, x.lo, x.hi)
		}
	}
	sum := 0.0
	for r, a := range accept {
		if sum += a; !(a >= 0) || sum > 1+1e-6 {
			return nil, 0, fmt.Errorf("sequoia: acceptance of rank %d is %v, want 0 or more, and at most 1 for all ranks together", r+1, a)
		}
	}
	p := sequoia{accept: accept}
	// Values for m nodes are kept for each depth until another level changes nothing.
	flat := make([]float64, n)
	for m := range flat {
		flat[m] = 1
	}
	p.best = [][]float64{flat}
	for d := 1; d <= min(depth, n-1) && p.level(n); d++ {
	}
	p.grow(&paths, nil, len(p.best)-1, n-1)
	return paths, p.best[len(p.best)-1][n-1], nil
}

type sequoia struct {
	accept []float64
	best   [][]float64 // [depth][nodes below]: T
	first  [][][]int   // [depth-1][rank][nodes]: s that R takes, 0 for none
}

// level adds one depth, if that changes anything.
func (p *sequoia) level(n int) bool {
	below := p.best[len(p.best)-1]
	rest := make([]float64, n) // R_d(r+1, ·)
	first := make([][]int, len(p.accept))
	for r := len(p.accept) - 1; r >= 0; r-- {
		row := make([]float64, n)
		first[r] = make([]int, n)
		for m := 1; m < n; m++ {
			for s := 1; s <= m; s++ {
				// Here equal values prefer fewer nodes, so flatter trees.
				if v := p.accept[r]*below[s-1] + rest[m-s]; v > row[m]+1e-12*math.Abs(v) {
					row[m], first[r][m] = v, s
				}
			}
		}
		rest = row
	}
	top := make([]float64, n)
	for m := range top {
		top[m] = 1 + rest[m]
	}
	if slices.Equal(top, below) {
		return false
	}
	p.best, p.first = append(p.best, top), append(p.first, first)
	return true
}

// grow appends the paths of the best tree of below nodes within d edges below
// path.
func (p *sequoia) grow(paths *[][]int, path []int, d, below int) {
	if d == 0 {
		return
	}
	for r, first := range p.first[d-1] {
		s := first[below]
		if s == 0 {
			return
		}
		child := append(path[:len(path):len(path)], r)
		*paths = append(*paths, child)
		p.grow(paths, child, d-1, s-1)
		below -= s
	}
}
