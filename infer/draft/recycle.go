package draft

import (
	"talf/infer"
	"talf/infer/draft/memory"
	"talf/infer/draft/search"
	"talf/infer/draft/shape"
	"talf/infer/lookup"
	"talf/internal/spec"
)

func recycleMethod() Method {
	return Method{
		Line: spec.Line{
			Name: "recycle", Doc: "Token Recycling: what the target last found likely after each token, on a fixed tree",
			Params: append([]spec.Param{
				spec.Int("K", 8, 1, lookup.MaxWidth, "successors that the table keeps per token"),
				nodesParam(80),
				spec.Int("depth", 10, 1, shape.MaxDepth, "most edges of the tree"),
				spec.Floats("accept", recycleAccept, spec.Closed(0, 1), "probability that each rank of successors is right; the tree is Sequoia's best for these"),
			}, learning()...),
		},
		Open: func(v spec.Values, _ Env) (Maker, error) {
			k, accept := v.Int("K"), v.Floats("accept")
			paths, _, err := search.Sequoia(accept[:min(k, len(accept))], v.Int("N"), v.Int("depth"))
			if err != nil {
				return Maker{}, err
			}
			s, err := shape.New(paths)
			if err != nil {
				return Maker{}, err
			}
			remember := remembering(v, 1, 1, k, false, true)
			return Maker{Learns: keeps(v), New: func() infer.Drafter { return &recycle{Memory: remember(), shape: s} }}, nil
		},
	}
}

// recycleAccept is how often the next token was the r-th of the table's row, measured on 24
// prompts of six sets with a 10M Llama and a tree of eight children per node.
const recycleAccept = "0.48/0.13/0.06/0.033/0.017/0.016/0.013/0.01"

// A recycle drafts as Token Recycling does (Luo et al. 2025): the tree's shape is fixed,
// and a node's r-th child carries the r-th likeliest successor of the node's token when
// the target last saw that token.
type recycle struct {
	memory.Memory
	shape shape.Shape
	at    []int // by slot: the node there, -1 for none
}

func (d *recycle) Grow(p *infer.Proposal, _ []infer.Row, _ infer.Chance) ([]int, error) {
	d.Table.Lock()
	defer d.Table.Unlock()
	t := p.Tree
	d.at = append(d.at[:0], 0)
	for i, x := range d.shape {
		var next []lookup.Successor
		if d.at[i] >= 0 && t.Depth(d.at[i]) < p.MaxDepth {
			next = d.After(p, d.at[i])
		}
		// The children of slots are in the order of slots.
		for _, child := range d.shape[x.First : x.First+x.Kids] {
			n := -1
			if child.Rank < len(next) && t.Room() > 0 {
				n = t.Add(d.at[i], next[child.Rank].Token)
			}
			d.at = append(d.at, n)
		}
	}
	return nil, nil
}

func (d *recycle) Traits() infer.Traits { return d.Memory.Traits(d.origin, "branch") }

func (d *recycle) origin(int) int { return 0 }
