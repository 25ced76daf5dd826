package papers_test

import (
	"math"
	"testing"

	"talf/infer/bench"
	"talf/lab/papers"
)

// The bound of Proposition 1, worked out by hand: ps = 1/2, pt = 1/4 and depth 2 give
// ℓ = 1/4. A spine of one node with one branch adds 1/2 + (1/2)(1/4)(5/4), a tree of two
// branches alone (1 − (3/4)²)(5/4).
func TestTheBoundOfProposition1(t *testing.T) {
	p := bench.Paths{
		Origins: []string{bench.Spine, bench.Branch}, Drafted: []int{4, 8}, Kept: []int{2, 2}, Reached: []int{4, 6},
		Length: []int{1, 1}, Fan: [][]int{{0, 1}}, Bare: []int{0, 0, 1},
	}
	want := 1 + (0.5+0.5*0.25*1.25+(1-0.75*0.75)*1.25)/2
	if got := papers.Bound(&p, 2); math.Abs(got-want) > 1e-15 {
		t.Errorf("the bound is %v, want %v", got, want)
	}
	// Three children to a node and 13 nodes: two full levels.
	phi := 1 - math.Pow(0.75, 3)
	if got, want := papers.IsotropicBound(&p, 3, 13), 1+phi+phi*phi; math.Abs(got-want) > 1e-15 {
		t.Errorf("the isotropic bound is %v, want %v", got, want)
	}
	if got := papers.Bound(&bench.Paths{Origins: []string{"x"}}, 6); got != 1 {
		t.Errorf("without rounds it is %v, want 1", got)
	}
}
