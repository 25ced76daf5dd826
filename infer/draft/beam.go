package draft

import (
	"talf/infer/draft/search"
	"talf/infer/draft/shape"
	"talf/internal/spec"
)

func beamMethod() Method {
	c := search.DefaultBeam()
	return Method{
		Line: spec.Line{
			Name: "beam", Doc: "EAGLE-2: expand the best k of each level, keep the best N of all",
			Params: []spec.Param{
				nodesParam(c.N),
				spec.Int("k", c.K, 1, shape.MaxRank+1, "nodes expanded per level, and children of each"),
				spec.Int("depth", c.Depth, 0, shape.MaxDepth, "levels expanded below the root's; nodes reach depth+1 edges"),
			},
		},
		Source: true,
		Open: func(v spec.Values, _ Env) (Maker, error) {
			c := search.BeamConfig{N: v.Int("N"), K: v.Int("k"), Depth: v.Int("depth")}
			return searching(func() (limited, error) { return search.NewBeam(c) })
		},
	}
}
