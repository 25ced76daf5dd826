package draft

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"talf/tree"
)

// shapesJSON are the trees that EAGLE-1 and Medusa-1 drafted: EAGLE's of 26 nodes,
// which Traversal Verification calls the EAGLE sparse tree, and Medusa's of 64 for
// 7B models, root counted. A node is the path to it, of ranks from 0.
//
//go:embed shapes.json
var shapesJSON []byte

// A shape is a tree without tokens. Nodes lie by depth, then by their parent's
// place, then by rank.
type shape []slot

// A slot is a node of a shape.
type slot struct {
	rank  int // among the parent's next tokens, from 0
	first int // its children are slots [first, first+kids)
	kids  int
}

// chain reports whether no node has two children.
func (s shape) chain() bool {
	return !slices.ContainsFunc(s, func(x slot) bool { return x.kids > 1 })
}

// width returns the number of next tokens that a node may need: one more than the
// largest rank.
func (s shape) width() int {
	w := 1
	for _, x := range s[1:] {
		w = max(w, x.rank+1)
	}
	return w
}

const (
	maxRank  = 255
	maxDepth = 64
	maxFile  = 1 << 20 // of a file of shapes
)

// newShape arranges paths of child ranks, in any order.
func newShape(paths [][]int) (shape, error) {
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
	s := shape{{rank: -1}}
	at := map[string]int{"[]": 0}
	for i, p := range sorted {
		switch {
		case len(p) == 0:
			return nil, errors.New("a path is empty, want the ranks of the nodes from the root's child on")
		case len(p) > maxDepth:
			return nil, fmt.Errorf("a path of %d nodes, want at most %d", len(p), maxDepth)
		case i > 0 && slices.Equal(p, sorted[i-1]):
			return nil, fmt.Errorf("path %v is there twice", p)
		}
		rank := p[len(p)-1]
		if rank < 0 || rank > maxRank {
			return nil, fmt.Errorf("path %v: rank %d, want 0..%d", p, rank, maxRank)
		}
		parent, ok := at[fmt.Sprint(p[:len(p)-1])]
		if !ok {
			return nil, fmt.Errorf("path %v: the node above it, %v, is missing", p, p[:len(p)-1])
		}
		n := len(s)
		if s[parent].kids == 0 {
			s[parent].first = n
		}
		s[parent].kids++
		s = append(s, slot{rank: rank})
		at[fmt.Sprint(p)] = n
	}
	return s, nil
}

// uniform returns the tree in which every node down to depth-1 has k children.
func uniform(k, depth int) (shape, error) {
	if k < 1 || k > maxRank+1 {
		return nil, fmt.Errorf("%d children a node, want 1..%d", k, maxRank+1)
	}
	if depth < 1 || depth > maxDepth {
		return nil, fmt.Errorf("a depth of %d, want 1..%d", depth, maxDepth)
	}
	s := shape{{rank: -1}}
	for first, d := 0, 0; d < depth; d++ {
		last := len(s)
		if n := last + (last-first)*k; n > tree.MaxNodes {
			return nil, fmt.Errorf("more than %d nodes, root counted", tree.MaxNodes)
		}
		for n := first; n < last; n++ {
			s[n].first, s[n].kids = len(s), k
			for r := range k {
				s = append(s, slot{rank: r})
			}
		}
		first = last
	}
	return s, nil
}

// findShape returns the shape called name: chain-n, binary-n, kary-k-n, or one of
// the lists in shapes.json.
func findShape(name string) (shape, error) {
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
			s, err := uniform(k, depth)
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
		return newShape(p)
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

// readShape reads the shape called name, or the only one, of a file.
func readShape(path, name string) (shape, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	if len(b) > maxFile {
		return nil, fmt.Errorf("%s has more than %d bytes, want the paths of a tree", path, maxFile)
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
	s, err := newShape(p)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return s, nil
}
