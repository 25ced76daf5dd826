// Package shape holds trees without tokens: their paths are lists of child ranks.
package shape

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"talf/internal/limits"
	"talf/tree"
)

// shapesJSON are the trees that EAGLE-1, Medusa-1 and Token Recycling drafted: EAGLE's of 26 nodes,
// which Traversal Verification calls the EAGLE sparse tree, Medusa's of 64 for 7B models, and Token
// Recycling's of 81, version 2.2.2 of its templates, root counted. A node is the path to it, of ranks
// from 0.
//
//go:embed shapes.json
var shapesJSON []byte

// A Shape is a tree without tokens. Nodes are sorted by depth, then by their parent's place,
// then by rank.
type Shape []Slot

// A Slot is a node of a Shape.
type Slot struct {
	Rank  int // among the parent's next tokens, from 0
	First int // its children are slots [First, First+Kids)
	Kids  int
}

// Chain reports whether no node has two children.
func (s Shape) Chain() bool {
	return !slices.ContainsFunc(s, func(x Slot) bool { return x.Kids > 1 })
}

// Width returns the number of next tokens that a node may need: one more than the
// largest rank.
func (s Shape) Width() int {
	w := 1
	for _, x := range s[1:] {
		w = max(w, x.Rank+1)
	}
	return w
}

// Bounds of a shape.
const (
	MaxRank  = 255 // of a node among its siblings, from 0
	MaxDepth = 64  // edges of a path
)

const maxFile = 1 << 20 // bytes

// New arranges paths of child ranks, in any order.
func New(paths [][]int) (Shape, error) {
	if len(paths)+1 > tree.MaxNodes {
		return nil, fmt.Errorf("%d nodes, root counted, want at most %d", len(paths)+1, tree.MaxNodes)
	}
	sorted := slices.Clone(paths)
	slices.SortFunc(sorted, func(a, b []int) int {
		if len(a) != len(b) {
			return len(a) - len(b)
		}
		return slices.Compare(a, b)
	})
	s := Shape{{Rank: -1}}
	at := map[string]int{"[]": 0}
	for i, p := range sorted {
		switch {
		case len(p) == 0:
			return nil, errors.New("a path is empty, want the ranks of the nodes from the root's child on")
		case len(p) > MaxDepth:
			return nil, fmt.Errorf("a path of %d nodes, want at most %d", len(p), MaxDepth)
		case i > 0 && slices.Equal(p, sorted[i-1]):
			return nil, fmt.Errorf("path %v is given twice", p)
		}
		rank := p[len(p)-1]
		if rank < 0 || rank > MaxRank {
			return nil, fmt.Errorf("path %v: rank %d, want 0..%d", p, rank, MaxRank)
		}
		parent, ok := at[fmt.Sprint(p[:len(p)-1])]
		if !ok {
			return nil, fmt.Errorf("path %v: the node above it, %v, is missing", p, p[:len(p)-1])
		}
		n := len(s)
		if s[parent].Kids == 0 {
			s[parent].First = n
		}
		s[parent].Kids++
		s = append(s, Slot{Rank: rank})
		at[fmt.Sprint(p)] = n
	}
	return s, nil
}

// First returns the first n nodes of s, root counted, or all.
func (s Shape) First(n int) Shape {
	if n >= len(s) {
		return s
	}
	out := slices.Clone(s[:n])
	for i := range out {
		if x := &out[i]; x.First+x.Kids > n {
			x.First = min(x.First, n)
			x.Kids = n - x.First
		}
	}
	return out
}

// Uniform returns the tree in which every node down to depth-1 has k children.
func Uniform(k, depth int) (Shape, error) {
	if k < 1 || k > MaxRank+1 {
		return nil, fmt.Errorf("%d children a node, want 1..%d", k, MaxRank+1)
	}
	if depth < 1 || depth > MaxDepth {
		return nil, fmt.Errorf("a depth of %d, want 1..%d", depth, MaxDepth)
	}
	s := Shape{{Rank: -1}}
	for first, d := 0, 0; d < depth; d++ {
		last := len(s)
		if n := last + (last-first)*k; n > tree.MaxNodes {
			return nil, fmt.Errorf("more than %d nodes, root counted", tree.MaxNodes)
		}
		for n := first; n < last; n++ {
			s[n].First, s[n].Kids = len(s), k
			for r := range k {
				s = append(s, Slot{Rank: r})
			}
		}
		first = last
	}
	return s, nil
}

// Find returns the shape called name: chain-n, binary-n, kary-k-n, or one of
// the lists in shapes.json.
func Find(name string) (Shape, error) {
	kind, rest, _ := strings.Cut(name, "-")
	k := map[string]int{"chain": 1, "binary": 2}[kind]
	if kind == "kary" {
		var width string
		width, rest, _ = strings.Cut(rest, "-")
		k, _ = strconv.Atoi(width) // 0 is refused below
	}
	if k > 0 {
		depth, err := strconv.Atoi(rest)
		if err == nil {
			s, err := Uniform(k, depth)
			if err != nil {
				return nil, fmt.Errorf("shape %s: %w", name, err)
			}
			return s, nil
		}
	}
	lists, err := parseShapes(shapesJSON)
	if err != nil {
		return nil, err
	}
	if p, ok := lists[name]; ok {
		return New(p)
	}
	return nil, fmt.Errorf("shape is %q, want chain-n, binary-n, kary-k-n, %s", name, strings.Join(names(lists), ", "))
}

// parseShapes reads one list of paths, which is then called "", or an object of
// several.
func parseShapes(b []byte) (map[string][][]int, error) {
	var list [][]int
	if err := json.Unmarshal(b, &list); err == nil {
		return map[string][][]int{"": list}, nil
	}
	lists := map[string][][]int{}
	if err := json.Unmarshal(b, &lists); err != nil {
		return nil, fmt.Errorf("want a list of paths of child ranks, such as [[0],[1],[0,0]], or an object of such lists: %w", err)
	}
	return lists, nil
}

func names(lists map[string][][]int) []string {
	var out []string
	for n := range lists {
		out = append(out, n)
	}
	slices.Sort(out)
	return out
}

// ReadFile reads a small file, such as the paths of a shape.
func ReadFile(path string) ([]byte, error) {
	b, err := limits.ReadFile(path, maxFile)
	if err != nil {
		return nil, fmt.Errorf("%w: want the paths or the chances of a tree", err)
	}
	return b, nil
}

// Read reads the shape called name, or the only one, of a file.
func Read(path, name string) (Shape, error) {
	b, err := ReadFile(path)
	if err != nil {
		return nil, err
	}
	lists, err := parseShapes(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	p, ok := lists[name]
	if all := names(lists); !ok && len(all) == 1 {
		p = lists[all[0]]
	} else if !ok {
		return nil, fmt.Errorf("%s has no shape %q, want one of %s", path, name, strings.Join(all, ", "))
	}
	if len(p) == 0 {
		return nil, fmt.Errorf("%s: the shape has no paths, want at least one", path)
	}
	s, err := New(p)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return s, nil
}
