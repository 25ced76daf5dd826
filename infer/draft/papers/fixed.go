package papers

import (
	"talf/infer"
	"talf/infer/draft/method"
	"talf/infer/draft/search"
	"talf/infer/draft/shape"
	"talf/internal/spec"
)

func fixedMethod() method.Method {
	return method.Method{
		Line: spec.Line{
			Name: "fixed", Doc: "DynaTree's baseline: the likeliest token, and below it B children per node, D levels deep",
			Params: []spec.Param{
				spec.Int("D", 8, 1, shape.MaxDepth, "levels below the likeliest token"),
				spec.Int("B", 3, 1, shape.MaxRank+1, "children of each node"),
				spec.Float("tau", 0.1, spec.Below(0, 1), "least probability of a path whose end has children"),
				method.Nodes(257),
			},
		},
		Source: true,
		Open: func(v spec.Values, _ method.Env) (method.Maker, error) {
			c := search.FixedTree(v.Int("N"), v.Int("D"), v.Int("B"), v.Float("tau"))
			return method.Searching(infer.WhenShared, func() (method.Limited, error) { return search.NewDynaTree(c) })
		},
	}
}
