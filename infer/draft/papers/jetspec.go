package papers

import (
	"math"

	"talf/infer"
	"talf/infer/draft/method"
	"talf/infer/draft/search"
	"talf/infer/draft/shape"
	"talf/internal/spec"
)

func jetspecMethod() method.Method {
	return method.Method{
		Line: spec.Line{
			Name: "jetspec", Doc: "JetSpec's tree: the likeliest node without children gets k of them, until there are N nodes",
			Params: []spec.Param{
				method.Nodes(60),
				spec.Int("k", 4, 1, shape.MaxRank+1, "children of each node"),
				spec.Float("beta", 0, spec.Closed(0, 100), "children are fewer where the draft is surer: k·σ(−beta·(gap−g0)) for the gap between its two likeliest tokens; 0: always k"),
				spec.Float("g0", 0.7, spec.Closed(0, math.MaxFloat32), "gap at which there are half of k"),
			},
		},
		Source: true,
		Open: func(v spec.Values, _ method.Env) (method.Maker, error) {
			c := search.AccumConfig{N: v.Int("N"), K: v.Int("k"), Beta: v.Float("beta"), Gap: v.Float("g0")}
			return method.Searching(infer.WhenShared, func() (method.Limited, error) { return search.NewAccum(c) })
		},
	}
}
