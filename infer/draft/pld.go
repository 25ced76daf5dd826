package draft

import (
	"cmp"

	"talf/infer"
	"talf/infer/lookup"
	"talf/tree"
)

func pld() Method {
	return Method{
		Name: "pld", Doc: "prompt lookup: what followed the newest tokens where they stood before",
		Params: []Param{
			{"K", "20", "most tokens to draft"},
			{"lo", "3", "shortest n-gram that counts as a match"},
			{"hi", "5", "longest n-gram looked for; the longest that matches wins"},
		},
		Open: func(p *Params, _ Env) (Maker, error) {
			k, lo, hi := p.Int("K"), p.Int("lo"), p.Int("hi")
			if err := cmp.Or(within("K", k, 1, tree.MaxNodes-1), checkNgrams(lo, hi)); err != nil {
				return Maker{}, err
			}
			return Maker{Chain: true, New: func() infer.Drafter {
				return &promptLookup{memory: memory{context: lookup.NewContext(lo, hi)}, most: k}
			}}, nil
		},
	}
}

// promptLookup is prompt lookup decoding (Saxena 2023): a chain copied from
// behind the latest earlier occurrence of the longest n-gram at the end of the
// sequence.
type promptLookup struct {
	memory
	most  int
	chain []int32
}

func (d *promptLookup) Grow(p *infer.Proposal, _ []infer.Row, _ infer.Chance) ([]int, error) {
	m, ok := d.context.Match()
	if !ok {
		return nil, nil
	}
	d.chain = d.context.Continue(d.chain[:0], m.Next, min(d.most, p.MaxDepth, p.Tree.Room()))
	n := 0
	for _, token := range d.chain {
		n = p.Tree.Add(n, token)
	}
	return nil, nil
}

func (d *promptLookup) Origins() []string { return []string{"spine"} }

func (d *promptLookup) Origin(int) int { return 0 }
