package draft

import (
	"cmp"
	"fmt"

	"talf/tree"
	"talf/tree/search"
)

func fixed() Method {
	return Method{
		Name: "fixed", Doc: "DynaTree's baseline: B children a node to depth D, unlikely paths left out", Source: true,
		Params: []Param{
			{"D", "8", "depth"},
			{"B", "3", "children of each node"},
			{"tau", "0.1", "least probability of a path"},
			{"N", "256", "nodes of the tree, root counted"},
		},
		Open: func(p *Params, _ Env) (Maker, error) {
			n, d, b, tau := p.Int("N"), p.Int("D"), p.Int("B"), p.Float("tau")
			if err := cmp.Or(within("N", n, 1, tree.MaxNodes), within("D", d, 1, maxDepth), within("B", b, 1, maxRank+1)); err != nil {
				return Maker{}, err
			}
			if !(tau >= 0 && tau < 1) {
				return Maker{}, fmt.Errorf("tau is %v, want 0 <= tau < 1", tau)
			}
			c := search.FixedTree(n, d, b, tau)
			return searching(func() (limited, error) { return search.NewDynaTree(c) })
		},
	}
}
