package draft

import (
	"talf/infer"
	"talf/infer/draft/search"
	"talf/infer/lookup"
	"talf/internal/spec"
)

func recycle() Method {
	return Method{
		Line: spec.Line{
			Name: "recycle", Doc: "Token Recycling: what the target found likely after each token before, on a fixed tree",
			Params: append([]spec.Param{
				spec.Int("K", 8, 1, lookup.MaxWidth, "successors that the table holds of a token"),
				nodesParam(80),
				spec.Int("depth", 10, 1, maxDepth, "most edges of the tree"),
				spec.Floats("accept", recycleAccept, spec.Closed(0, 1), "chance of each rank of successors to be right: the tree is Sequoia's best for these"),
			}, learning()...),
		},
		Open: func(v spec.Values, _ Env) (Maker, error) {
			k, accept := v.Int("K"), v.Floats("accept")
			paths, _, err := search.Sequoia(accept[:min(k, len(accept))], v.Int("N"), v.Int("depth"))
			if err != nil {
				return Maker{}, err
			}
			s, err := newShape(paths)
			if err != nil {
				return Maker{}, err
			}
			remember := remembering(v, 1, 1, k, false, true)
			return Maker{New: func() infer.Drafter { return &recycler{memory: remember(), shape: s} }}, nil
		},
	}
}

// recycleAccept is how often the next token was the r-th of the table's row: 24
// prompts of six sets with a 10M Llama, on a tree of eight children a node.
const recycleAccept = "0.48/0.13/0.06/0.033/0.017/0.016/0.013/0.01"

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

func (d *recycler) Traits() infer.Traits { return d.traits(d.origin, "branch") }

func (d *recycler) origin(int) int { return 0 }
