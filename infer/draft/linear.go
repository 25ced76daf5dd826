package draft

func linear() Method {
	return Method{
		Name: "linear", Doc: "a chain of the draft model's own tokens", Source: true,
		Params: []Param{{"K", "8", "drafted tokens"}, drawParam()},
		Open: func(p *Params, e Env) (Maker, error) {
			s, err := uniform(1, p.Int("K"))
			if err != nil {
				return Maker{}, err
			}
			return fixedShape(s, p, e)
		},
	}
}
