package draft

import (
	"talf/infer"
	"talf/infer/draft/method"
	"talf/infer/draft/search"
	"talf/infer/draft/shape"
	"talf/internal/spec"
)

func salfMethod() Method {
	return Method{
		Line: spec.Line{
			Name: "salf", Doc: "TALF's Algorithm 2: best-first search that stops when further gains are low", Main: "set",
			Params: append(bestFirstParams(),
				spec.Float("th", 0, spec.Below(0, 1), "stop when the probabilities of the nodes to expand next sum to less; auto follows the cost of passes").Or("auto").With("auto"),
				finishParam()),
		},
		Source: true,
		Open:   func(v spec.Values, e Env) (Maker, error) { return openBestFirst(salfMethod(), "N=60,th=0.6", v, e) },
	}
}

func optimalMethod() Method {
	return Method{
		Line: spec.Line{
			Name: "optimal", Doc: "salf without the stop: the N most likely nodes (SpecExec)", Main: "set",
			Params: append(bestFirstParams(), finishParam()),
		},
		Source: true,
		Open:   func(v spec.Values, e Env) (Maker, error) { return openBestFirst(optimalMethod(), "N=60", v, e) },
	}
}

// setParam chooses between defaults that follow costs and the paper's.
func setParam() spec.Param {
	return spec.Choice("set", "defaults of the others: auto, what pays where it runs; paper, the published constants", "auto", "paper")
}

// sizeParam is method.Nodes for methods whose trees may follow costs.
func sizeParam() spec.Param {
	p := method.Nodes(0).Or("auto").With("auto")
	p.Doc += "; auto: as many as pay, and none while drafts do not pay"
	return p
}

func bestFirstParams() []spec.Param {
	return []spec.Param{setParam(), sizeParam(), spec.Int("B", search.DefaultSALF().B, 1, shape.MaxRank+1, "nodes expanded per round")}
}

// finishParam lists the words in the order of search.Finish.
func finishParam() spec.Param {
	return spec.Choice("finish", "which drafted nodes are kept at the stop: topn, fill or literal", "topn", "fill", "literal")
}

// openBestFirst opens salf or optimal, m, whose paper has the constants paper.
func openBestFirst(m Method, paper string, v spec.Values, e Env) (Maker, error) {
	v, err := published(m, paper, v)
	if err != nil {
		return Maker{}, err
	}
	c := search.SALFConfig{N: mostNodes, B: v.Int("B"), Finish: search.Finish(v.Choice("finish"))}
	control := infer.WhenShared
	if v.Is("N", "auto") {
		control = infer.Always
	} else {
		c.N = v.Int("N")
	}
	if m.Name == "salf" {
		if v.Is("th", "auto") {
			control = infer.Always
		} else {
			c.Th = v.Float("th")
		}
	}
	return method.Searching(control, func() (method.Limited, error) { return search.NewSALF(c) })
}

// mostNodes bounds trees whose size a controller decides.
const mostNodes = 256

// published returns v, with m's defaults replaced by the published constants if set=paper.
func published(m Method, paper string, v spec.Values) (spec.Values, error) {
	if v.Choice("set") == 0 {
		return v, nil
	}
	return m.Under(v, paper)
}
