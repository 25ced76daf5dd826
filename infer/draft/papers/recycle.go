package papers

import (
	"errors"

	"talf/infer"
	"talf/infer/draft/memory"
	"talf/infer/draft/method"
	"talf/infer/draft/shape"
	"talf/infer/lookup"
	"talf/internal/spec"
)

func recycleMethod() method.Method {
	learn := method.Learning()
	return method.Method{
		Line: spec.Line{
			Name: "recycle", Doc: "Token Recycling: what the target last found likely after each token, on a fixed tree", Main: "set",
			Params: []spec.Param{
				spec.Choice("set", "defaults of the others: paper, those of the authors' runs; rows, for machines on which the rows of a pass cost", "paper", "rows"),
				spec.Int("K", 8, 1, lookup.MaxWidth, "successors that the table keeps per token"),
				method.Nodes(81),
				spec.Choice("tree", "published: the first N nodes of the authors'; sequoia: the best for the probabilities accept", "published", "sequoia"),
				spec.Int("depth", 10, 1, shape.MaxDepth, "most edges of sequoia's tree"),
				spec.Floats("accept", recycleAccept, spec.Closed(0, 1), "probability that each rank of successors is right, for sequoia's tree"),
				spec.Switch("zeros", true, "tokens without a row have token 0 as all their successors: on or off"),
				learn[0].With("rounds"), learn[1],
			},
		},
		Open: openRecycle,
	}
}

// rowsOfRecycle are the defaults of set=rows.
const rowsOfRecycle = "N=80,tree=sequoia,zeros=off,harvest=all"

func openRecycle(v spec.Values, _ method.Env) (method.Maker, error) {
	if v.Choice("set") == 1 {
		var err error
		if v, err = recycleMethod().Under(v, rowsOfRecycle); err != nil {
			return method.Maker{}, err
		}
	}
	s, err := recycleShape(v)
	if err != nil {
		return method.Maker{}, err
	}
	remember := method.Remembering(v, 1, 1, v.Int("K"), false, true)
	late := method.Keeps(v) && memory.Harvest(v.Choice("harvest")) == memory.Rounds
	return method.Maker{Learns: method.Keeps(v), New: func() infer.Drafter {
		return &recycler{Memory: remember(), Shape: s, Zeros: v.On("zeros"), Late: late}
	}}, nil
}

func recycleShape(v spec.Values) (shape.Shape, error) {
	if v.Choice("tree") == 1 {
		accept := v.Floats("accept")
		paths, _, err := sequoiaTree(accept[:min(v.Int("K"), len(accept))], v.Int("N"), v.Int("depth"))
		if err != nil {
			return nil, err
		}
		return shape.New(paths)
	}
	if v.Given("accept") || v.Given("depth") {
		return nil, errors.New("accept and depth are for tree=sequoia, which rows has")
	}
	s, err := shape.Find("token-recycling")
	if err != nil {
		return nil, err
	}
	return s.First(v.Int("N")), nil
}
