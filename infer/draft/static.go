package draft

import (
	"talf/infer/draft/method"
	"talf/infer/draft/shape"
	"talf/internal/spec"
)

func staticMethod() Method {
	return Method{
		Line: spec.Line{
			Name: "static", Doc: "a tree of fixed shape: chain-n, binary-n, kary-k-n, eagle-sparse, medusa, token-recycling or a file's", Main: "shape",
			Params: []spec.Param{
				spec.Text("shape", "eagle-sparse", "name of the shape, also among those of a file"),
				spec.File("file", "JSON file of shapes, whose paths are lists of ranks from 0: [[0],[1],[0,0]]"),
				method.Draw(),
			},
		},
		Source: true,
		Open: func(v spec.Values, e Env) (Maker, error) {
			name, path := v.Text("shape"), v.File("file")
			find := func() (shape.Shape, error) { return shape.Find(name) }
			if path != "" {
				find = func() (shape.Shape, error) { return shape.Read(path, name) }
			}
			s, err := find()
			if err != nil && path != "" {
				err = FileError{Err: err}
			}
			if err != nil {
				return Maker{}, err
			}
			return method.Shaped(s, v, e)
		},
	}
}
