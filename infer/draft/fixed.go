package draft

import "talf/tree/search"

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
			c := search.FixedTree(p.Int("N"), p.Int("D"), p.Int("B"), p.Float("tau"))
			return searching(func() (limited, error) { return search.NewDynaTree(c) })
		},
	}
}
