package draft

import (
	"math"

	"talf/infer"
	"talf/infer/draft/memory"
	"talf/infer/draft/method"
	"talf/infer/lookup"
	"talf/internal/spec"
	"talf/tree"
)

func pldMethod() Method {
	return Method{
		Line: spec.Line{
			Name: "pld", Doc: "prompt lookup: what followed the newest tokens when they last occurred",
			Params: append([]spec.Param{
				spec.Int("K", 20, 1, tree.MaxNodes-1, "most tokens to draft"),
				spec.Choice("rule", "which occurrence: latest, whose copy goes on with itself; or the first, as the published code (paper: only if K tokens follow it) or transformers has it", "latest", "paper", "transformers"),
			}, method.Ngrams()...),
		},
		Open: func(v spec.Values, _ Env) (Maker, error) {
			rule := v.Choice("rule")
			if rule != latest {
				var err error
				if v, err = pldMethod().Under(v, [...]string{paperRule: "K=10,lo=1,hi=3", transformersRule: "K=10,lo=1,hi=2"}[rule]); err != nil {
					return Maker{}, err
				}
			}
			lo, hi, err := method.ReadNgrams(v)
			if err != nil {
				return Maker{}, err
			}
			k := v.Int("K")
			return Maker{Chain: true, New: func() infer.Drafter {
				return &pld{Memory: memory.Memory{Context: lookup.NewContext(lo, hi)}, lo: lo, hi: hi, most: k, rule: rule}
			}}, nil
		},
	}
}

// The rules of pld, as rule= lists them.
const (
	latest = iota
	paperRule
	transformersRule
)

// pld is prompt lookup decoding (Saxena 2023): a chain copied from the text after an earlier
// occurrence of the longest n-gram at the end of the sequence.
type pld struct {
	memory.Memory
	lo, hi, most, rule int
	chain              []int32
	logV               []float64
}

func (d *pld) Grow(p *infer.Proposal, _ []infer.Row, _ infer.Chance) ([]int, error) {
	next := d.find()
	if next < 0 {
		return nil, nil
	}
	most := min(d.most, p.MaxDepth, p.Tree.Room())
	if d.rule != latest {
		most = min(most, d.Context.Len()-next)
	}
	d.chain = d.Context.Continue(d.chain[:0], next, most)
	// What has been right n times in a row is right once more with probability (n+1)/(n+2), by Laplace's rule of succession.
	agreed := float64(d.Context.Length(next, longAgreed))
	n, v := 0, 0.0
	d.logV = append(d.logV[:0], 0)
	for _, token := range d.chain {
		if !memory.May(p, n, token) {
			break
		}
		v += math.Log((agreed + 1) / (agreed + 2))
		n, agreed, d.logV = p.Tree.Add(n, token), agreed+1, append(d.logV, v)
	}
	p.LogV = d.logV
	return nil, nil
}

// longAgreed is how many tokens are looked at that two places of a text have in common.
const longAgreed = 64

// find returns the position to copy from, -1 if there is none.
func (d *pld) find() int {
	if d.rule == latest {
		if m, ok := d.Context.Match(); ok {
			return m.Next
		}
		return -1
	}
	end := d.Context.Len()
	for n := min(d.hi, end); n >= d.lo; n-- {
		// If too few tokens follow the first occurrence, too few follow the others.
		at := d.Context.First(n, end)
		if at >= 0 && (d.rule == transformersRule || end-at >= d.most) {
			return at
		}
	}
	return -1
}

func (d *pld) Traits() infer.Traits { return d.Memory.Traits(d.origin, "spine") }

func (d *pld) origin(int) int { return 0 }
