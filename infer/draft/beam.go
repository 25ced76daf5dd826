package draft

import "talf/tree/search"

func beam() Method {
	return Method{
		Name: "beam", Doc: "EAGLE-2: expand the best k of each level, keep the best N of all", Source: true,
		Params: []Param{
			{"N", "60", "nodes of the tree, root counted"},
			{"k", "10", "nodes expanded per level, and children of each"},
			{"depth", "7", "levels expanded below the root's; nodes reach depth+1 edges"},
		},
		Open: func(p *Params, _ Env) (Maker, error) {
			c := search.BeamConfig{N: p.Int("N"), K: p.Int("k"), Depth: p.Int("depth")}
			return searching(func() (limited, error) { return search.NewBeam(c) })
		},
	}
}
