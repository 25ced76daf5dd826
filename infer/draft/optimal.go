package draft

func optimal() Method {
	m := salf()
	m.Name, m.Doc = "optimal", "salf without the stop: the N most likely nodes (SpecExec)"
	m.Params = append(m.Params[:2:2], m.Params[3])
	m.Open = func(p *Params, _ Env) (Maker, error) { return openSALF(p, 0) }
	return m
}
