package draft

import (
	"talf/infer"
	"talf/infer/draft/memory"
	"talf/infer/draft/search"
	"talf/infer/lookup"
	"talf/tree"
)

// StateOf returns the parameters of the next tree of a drafter of dynatree, as far as history moves
// them.
func StateOf(d infer.Drafter) search.DynaTreeState { return d.(*dynatree).state() }

// GooseTree builds a goose's tree of n nodes around a chain below the last of tokens, with running
// acceptances as given and a table that learn fills. spine says which of its nodes are the chain's.
func GooseTree(spec string, n int, tokens, chain []int32, acceptance float64, k int, learn func(*lookup.Transitions)) (t *tree.Tree, spine []bool, err error) {
	d, _, err := New(spec)
	if err != nil {
		return nil, nil, err
	}
	g := d.(*goose)
	if err := g.Start(tokens); err != nil {
		return nil, nil, err
	}
	g.Memory.Table = &memory.Table{Transitions: lookup.NewTransitions(k, true)}
	learn(g.Memory.Table.Transitions)
	g.onSpine, g.chain = acceptance, chain
	g.nodes = []spineNode{{spine: true, score: 1}}
	last := len(tokens) - 1
	p := infer.Proposal{Tree: tree.New(tokens[last], n), Pos: last, MaxNodes: n, MaxDepth: 100}
	g.build(&p, n)
	for _, x := range g.nodes {
		spine = append(spine, x.spine)
	}
	return p.Tree, spine, nil
}

// RunningOf returns a goose's running acceptance of spines.
func RunningOf(d infer.Drafter) float64 { return d.(*goose).onSpine }
