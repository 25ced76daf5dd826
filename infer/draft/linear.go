package draft

import (
	"talf/infer/draft/shape"
	"talf/internal/spec"
)

func linearMethod() Method {
	return Method{
		Line: spec.Line{
			Name: "linear", Doc: "a chain of the draft model's likeliest tokens",
			Params: []spec.Param{spec.Int("K", 8, 1, shape.MaxDepth, "drafted tokens"), drawParam()},
		},
		Source: true,
		Open: func(v spec.Values, e Env) (Maker, error) {
			s, err := shape.Uniform(1, v.Int("K"))
			if err != nil {
				return Maker{}, err
			}
			return fixedShape(s, v, e)
		},
	}
}
