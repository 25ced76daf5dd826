package draft

import (
	"talf/infer"
	"talf/infer/draft/method"
	"talf/infer/draft/search"
	"talf/infer/draft/shape"
	"talf/internal/spec"
)

// mostLevels bounds trees whose depth follows costs. Wide beams ask for fewer levels: search.MostLevels.
const mostLevels = 24

func beamMethod() Method {
	return Method{
		Line: spec.Line{
			Name: "beam", Doc: "EAGLE-2: expand the best k of each level, keep the best N of all", Main: "set",
			Params: []spec.Param{
				setParam(),
				sizeParam(),
				spec.Int("k", search.DefaultBeam().K, 1, shape.MaxRank+1, "nodes expanded per level, and children of each"),
				spec.Int("depth", 0, 0, shape.MaxDepth, "levels expanded below the root's; nodes reach depth+1 edges; auto: as many as pay").Or("auto").With("auto"),
			},
		},
		Source: true,
		Open:   openBeam,
	}
}

func openBeam(v spec.Values, e Env) (Maker, error) {
	v, err := published(beamMethod(), "N=60,depth=7", v)
	if err != nil {
		return Maker{}, err
	}
	c := search.BeamConfig{N: mostNodes, K: v.Int("k")}
	control := infer.WhenShared
	if v.Is("depth", "auto") {
		c.Depth, control = min(mostLevels, search.MostLevels(c.K)), infer.Always
	} else {
		c.Depth = v.Int("depth")
	}
	if v.Is("N", "auto") {
		control = infer.Always
	} else {
		c.N = v.Int("N")
	}
	return method.Searching(control, func() (method.Limited, error) { return search.NewBeam(c) })
}
