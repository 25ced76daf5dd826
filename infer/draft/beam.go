package draft

import (
	"talf/infer/draft/grow"
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
	c := search.BeamConfig{N: grow.MostNodes, K: v.Int("k")}
	p := grow.Pace{Stop: v.Is("depth", "auto"), Always: e.Unpaused}
	if p.Stop {
		c.Depth, p.Th = min(mostLevels, search.MostLevels(c.K)), search.DefaultSALF().Th
	} else {
		c.Depth = v.Int("depth")
	}
	if !v.Is("N", "auto") {
		c.N, p.N = v.Int("N"), v.Int("N")
	}
	return paced(p, func() (grow.Paceable, error) { return search.NewBeam(c) })
}
