package draft

import "talf/infer"

func optimal() Method {
	m := salf()
	m.Name, m.Doc = "optimal", "salf without the stop: the N most likely nodes (SpecExec)"
	m.Params = append(m.Params[:2:2], m.Params[3])
	m.New = func(p *Params) (infer.Drafter, error) { return newSALF(p, 0) }
	return m
}
