package draft

import "talf/tree/search"

func salf() Method {
	return Method{
		Name: "salf", Doc: "TALF's Algorithm 2: best-first search that stops at low further gains", Source: true,
		Params: []Param{
			{"N", "60", "nodes of the tree, root counted"},
			{"B", "10", "nodes expanded per round"},
			{"th", "0.6", "stop when a round's probabilities sum to less"},
			{"finish", "topn", "nodes kept at the stop: topn, fill or literal"},
		},
		Open: func(p *Params, _ Env) (Maker, error) { return openSALF(p, p.Float("th")) },
	}
}

func openSALF(p *Params, th float64) (Maker, error) {
	f, err := search.ParseFinish(p.String("finish"))
	if err != nil {
		return Maker{}, err
	}
	c := search.SALFConfig{N: p.Int("N"), B: p.Int("B"), Th: th, Finish: f}
	return searching(func() (limited, error) { return search.NewSALF(c) })
}
