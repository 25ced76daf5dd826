package papers

import (
	"encoding/json"
	"errors"
	"fmt"

	"talf/infer"
	"talf/infer/draft/method"
	"talf/infer/draft/shape"
	"talf/internal/spec"
)

func sequoiaMethod() method.Method {
	return method.Method{
		Line: spec.Line{
			Name: "sequoia", Doc: "the best tree of fixed shape for the probability that each rank of the draft is right",
			Params: []spec.Param{
				method.Nodes(60),
				spec.Int("depth", 10, 1, shape.MaxDepth, "most edges of the tree"),
				spec.Floats("accept", sequoiaAccept, spec.Closed(0, 1), "probability that each rank is right"),
				spec.File("file", "JSON with these probabilities, or with by_rank of a row that talf bench wrote"),
				method.Draw(),
			},
		},
		Source: true,
		Open: func(v spec.Values, e method.Env) (method.Maker, error) {
			accept := v.Floats("accept")
			if path := v.File("file"); path != "" {
				if v.Given("accept") {
					return method.Maker{}, errors.New("accept and file exclude each other")
				}
				var err error
				if accept, err = readAccept(path); err != nil {
					return method.Maker{}, method.FileError{Err: err}
				}
				if _, _, err := sequoiaTree(accept, 1, 1); err != nil { // checks only the probabilities
					return method.Maker{}, method.FileError{Err: fmt.Errorf("%s: %w", path, err)}
				}
			}
			paths, _, err := sequoiaTree(accept, v.Int("N"), v.Int("depth"))
			if err != nil {
				return method.Maker{}, err
			}
			s, err := shape.New(paths)
			if err != nil {
				return method.Maker{}, err
			}
			return method.Shaped(s, v, e)
		},
	}
}

// readAccept reads a JSON list of probabilities, or of counts by rank from 0.
func readAccept(path string) ([]float64, error) {
	b, err := shape.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var list []float64
	if err := json.Unmarshal(b, &list); err == nil {
		return list, nil
	}
	var counts []infer.Rate
	if err := json.Unmarshal(b, &counts); err != nil {
		return nil, fmt.Errorf("%s: want a list of chances, such as [0.6, 0.1], or of counts, such as [{\"Tried\": 0, \"Kept\": 0}, {\"Tried\": 9, \"Kept\": 5}]: %w", path, err)
	}
	if len(counts) < 2 {
		return nil, fmt.Errorf("%s: counts of %d ranks, want rank 0, which is the root's, and at least one more", path, len(counts))
	}
	var accept []float64
	for _, c := range counts[1:] {
		if c.Tried < 0 || c.Kept < 0 || c.Kept > c.Tried {
			return nil, fmt.Errorf("%s: a rank was kept %d of %d times", path, c.Kept, c.Tried)
		}
		accept = append(accept, c.Value())
	}
	return accept, nil
}
