package draft

import (
	"cmp"

	"talf/infer"
	"talf/infer/lookup"
	"talf/tree"
)

func isotropic() Method {
	return Method{
		Name: "isotropic", Doc: "GOOSE's context matches and transitions on a uniform k-ary tree: its baseline",
		Params: append([]Param{
			{"k", "3", "children of every node"},
			{"N", "60", "nodes of the tree, root counted"},
			{"K", "10", "successors that the table holds of a token"},
			{"bigram", "on", "condition transitions on two tokens: on or off"},
			{"spine", "20", "most tokens of a context match"},
			{"lo", "3", "shortest n-gram that counts as a match"},
			{"hi", "5", "longest n-gram looked for"},
		}, learning()...),
		Open: func(p *Params, _ Env) (Maker, error) {
			d := karyTree{k: p.Int("k"), n: p.Int("N"), spine: p.Int("spine")}
			width, lo, hi := p.Int("K"), p.Int("lo"), p.Int("hi")
			if err := cmp.Or(
				within("k", d.k, 1, lookup.MaxWidth), within("N", d.n, 1, tree.MaxNodes), within("spine", d.spine, 0, tree.MaxNodes-1),
				within("K", width, 1, lookup.MaxWidth), checkNgrams(lo, hi),
			); err != nil {
				return Maker{}, err
			}
			remember := remembering(p, lo, hi, width, p.On("bigram"), true)
			return Maker{New: func() infer.Drafter {
				d := d
				d.memory = remember()
				return &d
			}}, nil
		},
	}
}

// karyTree is GOOSE's Isotropic(k), §5.1: breadth first, every node gets k
// children. A node on the path of the context match has its next token as first
// child, and all have the table's successors after that.
type karyTree struct {
	memory
	k, n, spine int
	chain       []int32
	on          []bool // by node: on the path of the match
}

func (d *karyTree) Grow(p *infer.Proposal, _ []infer.Row, _ infer.Chance) ([]int, error) {
	t, chain := p.Tree, d.chain[:0]
	if m, ok := d.context.Match(); ok {
		chain = d.context.Continue(chain, m.Next, d.spine)
	}
	d.chain = chain
	d.on = append(d.on[:0], true)
	d.table.Lock()
	defer d.table.Unlock()
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
		if d.on[n] && depth < len(chain) {
			add(chain[depth], true)
		}
		for _, x := range d.after(p, n) {
			add(x.Token, false)
		}
	}
	return nil, nil
}

func (d *karyTree) Origins() []string { return []string{"spine", "branch"} }

func (d *karyTree) Origin(n int) int {
	if d.on[n] {
		return 0
	}
	return 1
}
