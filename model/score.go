package model

import (
	"context"
	"fmt"

	"talf/tree"
)

// Scores are a text's results on the host, for comparison with other systems.
type Scores struct {
	Logits []float32 // [T][Vocab], after each id
	Hidden []float32 // [T][Hidden], after the final norm
	Tree   []float32 // [nodes][Vocab]
}

// Score runs ids from the start of a sequence, then a tree below the last of
// them: node i carries tokens[i] and follows node parents[i] < i, or the last id
// where parents[i] is −1. All logits are kept: T·Vocab values.
func (m *Model) Score(ctx context.Context, ids, parents, tokens []int32) (*Scores, error) {
	if len(ids) == 0 {
		return nil, fmt.Errorf("score: ids is empty, want at least one token")
	}
	if len(parents) != len(tokens) {
		return nil, fmt.Errorf("score: tree.parents has %d entries and tree.tokens %d, want as many", len(parents), len(tokens))
	}
	if len(tokens) >= tree.MaxNodes {
		return nil, fmt.Errorf("score: tree.tokens has %d entries, want at most %d", len(tokens), tree.MaxNodes-1)
	}
	for i, p := range parents {
		if p < -1 || int(p) >= i {
			return nil, fmt.Errorf("score: tree.parents[%d] is %d, want −1 to %d", i, p, i-1)
		}
	}
	v, h := m.spec.Vocab, m.spec.Hidden
	out := &Scores{Logits: make([]float32, len(ids)*v), Hidden: make([]float32, len(ids)*h)}
	s := m.NewSeq()
	defer s.Close()
	for at := 0; at < len(ids); {
		n := min(tree.MaxNodes, len(ids)-at)
		o, err := s.Append(ctx, ids[at:at+n], nil, WantAll)
		if err != nil {
			return nil, fmt.Errorf("score: %w", err)
		}
		o.ReadLogits(out.Logits[at*v:(at+n)*v], 0)
		o.ReadHidden(out.Hidden[at*h:(at+n)*h], 0)
		at += n
	}
	if len(tokens) == 0 {
		return out, nil
	}
	t := tree.New(ids[len(ids)-1], len(tokens)+1)
	for i, p := range parents {
		t.Add(int(p)+1, tokens[i])
	}
	o, err := m.Forward(ctx, []Segment{{Rows: s.BranchLast(), Tree: t, From: 1, Want: WantAll}})
	if err != nil {
		return nil, fmt.Errorf("score tree: %w", err)
	}
	out.Tree = make([]float32, len(tokens)*v)
	o.ReadLogits(out.Tree, 0)
	return out, nil
}
