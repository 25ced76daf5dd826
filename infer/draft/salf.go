package draft

import (
	"talf/infer"
	"talf/tree/search"
)

func salf() Method {
	return Method{
		Name: "salf", Doc: "TALF's Algorithm 2: best-first search that stops at low further gains", Source: true,
		Params: []Param{
			{"N", "60", "nodes of the tree, root counted"},
			{"B", "10", "nodes expanded per round"},
			{"th", "0.6", "stop when a round's probabilities sum to less"},
			{"finish", "topn", "nodes kept at the stop: topn, fill or literal"},
		},
		New: func(p *Params) (infer.Drafter, error) {
			return newSALF(p, p.Float("th"))
		},
	}
}

func newSALF(p *Params, th float64) (infer.Drafter, error) {
	f, err := search.ParseFinish(p.String("finish"))
	if err != nil {
		return nil, err
	}
	s, err := search.NewSALF(search.SALFConfig{N: p.Int("N"), B: p.Int("B"), Th: th, Finish: f})
	if err != nil {
		return nil, err
	}
	return searched{s}, nil
}
