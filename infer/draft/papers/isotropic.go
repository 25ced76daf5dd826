package papers

import (
	"slices"

	"talf/infer"
	"talf/infer/draft/memory"
	"talf/infer/draft/method"
	"talf/infer/lookup"
	"talf/internal/spec"
	"talf/tree"
)

func isotropicMethod() method.Method {
	return method.Method{
		Line: spec.Line{
			Name: "isotropic", Doc: "GOOSE's context matches and transitions on a uniform k-ary tree: its baseline",
			Params: slices.Concat([]spec.Param{
				spec.Int("k", 3, 1, lookup.MaxWidth, "children of every node"),
				method.Nodes(60),
				spec.Int("K", 10, 1, lookup.MaxWidth, "successors that the table keeps per token"),
				spec.Switch("bigram", true, "condition transitions on two tokens: on or off"),
				spec.Int("spine", 20, 0, tree.MaxNodes-1, "most tokens of a context match"),
			}, method.Ngrams(), method.Learning()),
		},
		Open: func(v spec.Values, _ method.Env) (method.Maker, error) {
			lo, hi, err := method.ReadNgrams(v)
			if err != nil {
				return method.Maker{}, err
			}
			d := isotropic{k: v.Int("k"), n: v.Int("N"), spine: v.Int("spine")}
			remember := method.Remembering(v, lo, hi, v.Int("K"), v.On("bigram"), true)
			return method.Maker{Learns: method.Keeps(v), New: func() infer.Drafter {
				d := d
				d.Memory = remember()
				return &d
			}}, nil
		},
	}
}

// An isotropic drafts GOOSE's Isotropic(k), §5.1: breadth first, every node gets k children. The
// first child of a node on the path of the context match is the match's next token; all other
// children are the table's successors.
type isotropic struct {
	memory.Memory
	k, n, spine int
	chain       []int32
	on          []bool // by node: on the path of the match
}

func (d *isotropic) Grow(p *infer.Proposal, _ []infer.Row, _ infer.Chance) ([]int, error) {
	t, chain := p.Tree, d.chain[:0]
	if m, ok := d.Context.Match(); ok {
		chain = d.Context.Continue(chain, m.Next, d.spine)
	}
	d.chain = chain
	d.on = append(d.on[:0], true)
	d.Table.Lock()
	defer d.Table.Unlock()
	most := min(d.n, p.MaxNodes)
	for n := 0; n < t.Len(); n++ {
		depth, left := t.Depth(n), d.k
		if depth == p.MaxDepth {
			break // and so are all that follow
		}
		add := func(token int32, on bool) {
			if left > 0 && t.Len() < most && t.Child(n, token) < 0 {
				t.Add(n, token)
				d.on = append(d.on, on)
				left--
			}
		}
		if d.on[n] && depth < len(chain) && memory.May(p, n, chain[depth]) {
			add(chain[depth], true)
		}
		for _, x := range d.After(p, n) {
			add(x.Token, false)
		}
	}
	return nil, nil
}

func (d *isotropic) Traits() infer.Traits { return d.Memory.Traits(d.origin, "spine", "branch") }

func (d *isotropic) origin(n int) int {
	if d.on[n] {
		return 0
	}
	return 1
}
