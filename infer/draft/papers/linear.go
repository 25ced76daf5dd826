package papers

import (
	"talf/infer/draft/method"
	"talf/infer/draft/shape"
	"talf/internal/spec"
)

func linearMethod() method.Method {
	return method.Method{
		Line: spec.Line{
			Name: "linear", Doc: "a chain of the draft model's likeliest tokens",
			Params: []spec.Param{
				spec.Int("K", 8, 1, shape.MaxDepth, "drafted tokens"),
				spec.Float("sure", 0, spec.Below(0, 1), "end the chain where the draft model itself gives its next token a lower probability of being accepted, if it says (DSpark)"),
				method.Draw(),
			},
		},
		Source: true,
		Open: func(v spec.Values, e method.Env) (method.Maker, error) {
			s, err := shape.Uniform(1, v.Int("K"))
			if err != nil {
				return method.Maker{}, err
			}
			return method.Sure(s, v, e)
		},
	}
}
