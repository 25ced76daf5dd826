package draft

import (
	"talf/infer"
	"talf/infer/draft/memory"
	"talf/infer/lookup"
	"talf/internal/spec"
	"talf/tree"
)

func pldMethod() Method {
	return Method{
		Line: spec.Line{
			Name: "pld", Doc: "prompt lookup: what followed the newest tokens when they last occurred",
			Params: append([]spec.Param{spec.Int("K", 20, 1, tree.MaxNodes-1, "most tokens to draft")}, ngramParams()...),
		},
		Open: func(v spec.Values, _ Env) (Maker, error) {
			lo, hi, err := readNgrams(v)
			if err != nil {
				return Maker{}, err
			}
			k := v.Int("K")
			return Maker{Chain: true, New: func() infer.Drafter {
				return &pld{Memory: memory.Memory{Context: lookup.NewContext(lo, hi)}, most: k}
			}}, nil
		},
	}
}

// pld is prompt lookup decoding (Saxena 2023): a chain copied from the text after the latest
// earlier occurrence of the longest n-gram at the end of the sequence.
type pld struct {
	memory.Memory
	most  int
	chain []int32
}

func (d *pld) Grow(p *infer.Proposal, _ []infer.Row, _ infer.Chance) ([]int, error) {
	m, ok := d.Context.Match()
	if !ok {
		return nil, nil
	}
	d.chain = d.Context.Continue(d.chain[:0], m.Next, min(d.most, p.MaxDepth, p.Tree.Room()))
	n := 0
	for _, token := range d.chain {
		n = p.Tree.Add(n, token)
	}
	return nil, nil
}

func (d *pld) Traits() infer.Traits { return d.Memory.Traits(d.origin, "spine") }

func (d *pld) origin(int) int { return 0 }
