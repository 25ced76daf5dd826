package draft

import "talf/internal/spec"

func optimalMethod() Method {
	return Method{
		Line: spec.Line{
			Name: "optimal", Doc: "salf without the stop: the N most likely nodes (SpecExec)",
			Params: append(bestFirstParams(), finishParam()),
		},
		Source: true,
		Open:   func(v spec.Values, _ Env) (Maker, error) { return openSALF(v, 0) },
	}
}
