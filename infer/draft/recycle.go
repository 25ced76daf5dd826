package draft

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"talf/infer"
	"talf/infer/lookup"
	"talf/tree/search"
)

func recycle() Method {
	return Method{
		Name: "recycle", Doc: "Token Recycling: what the target found likely after each token before, on a fixed tree",
		Params: append([]Param{
			{"K", "8", "successors that the table holds of a token"},
			{"N", "80", "nodes of the tree, root counted"},
			{"depth", "10", "most edges of the tree"},
			{"accept", recycleAccept, "chance of each rank of successors to be right: the tree is Sequoia's best for these"},
		}, learning()...),
		Open: func(p *Params, _ Env) (Maker, error) {
			k, n, depth := p.Int("K"), p.Int("N"), p.Int("depth")
			accept, err := parseAccept(p.String("accept"))
			if err := cmp.Or(within("K", k, 1, lookup.MaxWidth), err); err != nil {
				return Maker{}, err
			}
			paths, _, err := search.Sequoia(accept[:min(k, len(accept))], n, depth)
			if err != nil {
				return Maker{}, err
			}
			s, err := newShape(paths)
			if err != nil {
				return Maker{}, err
			}
			remember := remembering(p, 1, 1, k, false, true)
			return Maker{New: func() infer.Drafter { return &recycler{memory: remember(), shape: s} }}, nil
		},
	}
}

// recycleAccept is how often the next token was the r-th of the table's row: 24
// prompts of six sets with a 10M Llama, on a tree of eight children a node.
const recycleAccept = "0.48/0.13/0.06/0.033/0.017/0.016/0.013/0.01"

// parseAccept reads probabilities such as "0.5/0.2".
func parseAccept(s string) ([]float64, error) {
	var out []float64
	for _, f := range strings.Split(s, "/") {
		x, err := strconv.ParseFloat(f, 64)
		if err != nil {
			return nil, fmt.Errorf("accept is %q, want probabilities such as 0.5/0.2", s)
		}
		out = append(out, x)
	}
	return out, nil
}

// recycler is Token Recycling (Luo et al. 2025): the tree's shape is fixed, and a
// node's r-th child carries the r-th of the successors that its token had when the
// target last saw it, wherever that was.
type recycler struct {
	memory
	shape shape
	at    []int // by slot: the node there, -1 for none
}

func (d *recycler) Grow(p *infer.Proposal, _ []infer.Row, _ infer.Chance) ([]int, error) {
	d.table.Lock()
	defer d.table.Unlock()
	t := p.Tree
	d.at = append(d.at[:0], 0)
	for i, x := range d.shape {
		var next []lookup.Successor
		if d.at[i] >= 0 && t.Depth(d.at[i]) < p.MaxDepth {
			next = d.after(p, d.at[i])
		}
		// The children of slots lie in the order of slots.
		for _, child := range d.shape[x.first : x.first+x.kids] {
			n := -1
			if child.rank < len(next) && t.Room() > 0 {
				n = t.Add(d.at[i], next[child.rank].Token)
			}
			d.at = append(d.at, n)
		}
	}
	return nil, nil
}

func (d *recycler) Origins() []string { return []string{"branch"} }

func (d *recycler) Origin(int) int { return 0 }
