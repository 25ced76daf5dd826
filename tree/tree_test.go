package tree_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"talf/tree"
)

func Example() {
	t := tree.New(7, 4)
	a := t.Add(0, 11)
	t.Add(0, 12)
	b := t.Add(a, 13)
	fmt.Println(t.AppendPath(nil, b), t.Depth(b), t.Child(0, 12))
	// Output: [0 1 3] 2 2
}

// The bit table and the child links must agree with the definition: walking
// parent links. The same Tree is reset for every seed, so stale rows show.
func TestAncestryAndChildrenMatchParentWalk(t *testing.T) {
	var tr tree.Tree
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 1))
		size := 1 + rng.IntN(200)
		tr.Reset(0, size)
		for tr.Room() > 0 {
			tr.Add(rng.IntN(tr.Len()), rng.Int32N(50))
		}
		for n := range size {
			var walk []int
			for m := n; m >= 0; m = tr.Parent(m) {
				walk = append(walk, m)
			}
			slices.Reverse(walk)
			if got := tr.AppendPath(nil, n); !slices.Equal(got, walk) {
				t.Fatalf("seed %d: path of %d = %v, want %v", seed, n, got, walk)
			}
			if tr.Depth(n) != len(walk)-1 {
				t.Fatalf("seed %d: depth of %d = %d, want %d", seed, n, tr.Depth(n), len(walk)-1)
			}
			for a := range size {
				if got, want := tr.Ancestors(n)[a/64]>>(a%64)&1 == 1, slices.Contains(walk, a); got != want {
					t.Fatalf("seed %d: %d sees %d is %v, want %v", seed, n, a, got, want)
				}
			}
			var kids, want []int
			for c := tr.FirstChild(n); c >= 0; c = tr.NextSibling(c) {
				kids = append(kids, c)
			}
			for c := n + 1; c < size; c++ {
				if tr.Parent(c) == n {
					want = append(want, c)
				}
			}
			if !slices.Equal(kids, want) {
				t.Fatalf("seed %d: children of %d = %v, want %v", seed, n, kids, want)
			}
			for token := range int32(50) {
				first := -1
				if i := slices.IndexFunc(want, func(c int) bool { return tr.Token(c) == token }); i >= 0 {
					first = want[i]
				}
				if got := tr.Child(n, token); got != first {
					t.Fatalf("seed %d: child %d of %d = %d, want %d", seed, token, n, got, first)
				}
			}
		}
	}
}

// Missing links are −1, and a mask's row has no more words than its columns need.
func TestARootHasNoParentAndNoChild(t *testing.T) {
	for max, words := range map[int]int{1: 1, 64: 1, 65: 2, 128: 2, tree.MaxNodes: tree.MaxNodes / 64} {
		tr := tree.New(7, max)
		if tr.Parent(0) != -1 || tr.FirstChild(0) != -1 || tr.NextSibling(0) != -1 || tr.Child(0, 7) != -1 {
			t.Errorf("parent %d, child %d, sibling %d, child of token 7 %d", tr.Parent(0), tr.FirstChild(0), tr.NextSibling(0), tr.Child(0, 7))
		}
		if tr.Stride() != words || len(tr.Mask()) != words || tr.Room() != max-1 {
			t.Errorf("room for %d nodes: rows of %d words, a mask of %d, room for %d", max, tr.Stride(), len(tr.Mask()), tr.Room())
		}
	}
}

func TestReusedTreeDoesNotAllocate(t *testing.T) {
	var tr tree.Tree
	grow := func() {
		tr.Reset(1, 64)
		for i := 1; i < 64; i++ {
			tr.Add(i/2, int32(i))
		}
	}
	grow()
	if n := testing.AllocsPerRun(10, grow); n != 0 {
		t.Errorf("%v allocations per rebuilt tree, want 0", n)
	}
}

func TestMisuseNamesThePackage(t *testing.T) {
	for name, f := range map[string]func(){
		"full":      func() { tree.New(1, 1).Add(0, 2) },
		"no parent": func() { tree.New(1, 4).Add(1, 2) },
		"too large": func() { tree.New(1, tree.MaxNodes+1) },
		"too small": func() { tree.New(1, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if r := fmt.Sprint(recover()); len(r) < 5 || r[:5] != "tree:" {
					t.Errorf("panic %q, want one that names the package", r)
				}
			}()
			f()
		})
	}
}
