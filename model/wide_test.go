package model_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"talf/model"
	"talf/tree"
)

// The tree's paths span several words of the ancestor bitmap. Nodes have the bits of
// plain decoding, and a whole path from the far end is committed.
func TestTreesOfManyWordsOfAncestors(t *testing.T) {
	ctx := context.Background()
	m := small(t)
	v := m.Spec().Vocab
	r := rand.New(rand.NewPCG(4, 4))
	for _, c := range []struct{ prefix, nodes, split int }{{37, 300, 0}, {5, 420, 150}, {64, 200, 65}} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			ids := make([]int32, c.prefix)
			for i := range ids {
				ids[i] = r.Int32N(int32(v))
			}
			s := m.NewSeq()
			defer s.Close()
			must[*model.Output](t)(s.Append(ctx, ids, nil, model.WantNone))
			tr := tree.New(7, c.nodes)
			add := func(to int) {
				for n := tr.Len(); n < to; n++ {
					tr.Add(max(0, n-1-r.IntN(4)), r.Int32N(int32(v)))
				}
			}
			b := s.Branch(c.prefix)
			if c.split > 0 { // in two passes
				add(c.split)
				must[*model.Output](t)(m.Forward(ctx, []model.Segment{{Rows: b, Tree: tr}}))
			}
			add(c.nodes)
			o := must[*model.Output](t)(m.Forward(ctx, []model.Segment{{Rows: b, Tree: tr, From: c.split, Want: model.WantAll}}))
			got := make([]float32, (c.nodes-c.split)*v)
			o.ReadLogits(got, 0)
			tokens := func(n int) []int32 {
				all := append([]int32(nil), ids...)
				for _, k := range tr.AppendPath(nil, n) {
					all = append(all, tr.Token(k))
				}
				return all
			}
			for n := c.split; n < c.nodes; n += 23 {
				want, _ := run(t, m, tokens(n), 64)
				if err := sameBits(got[(n-c.split)*v:][:v], want[len(want)-v:]); err != nil {
					t.Fatalf("node %d, depth %d: %v", n, tr.Depth(n), err)
				}
			}
			last := c.nodes - 1
			if tr.Depth(last) < 64 {
				t.Fatalf("the last node has depth %d, too little for this test", tr.Depth(last))
			}
			if err := b.Commit(tr.AppendPath(nil, last)); err != nil {
				t.Fatal(err)
			}
			o = must[*model.Output](t)(s.Append(ctx, []int32{3}, nil, model.WantLast))
			row := make([]float32, v)
			o.ReadLogits(row, 0)
			want, _ := run(t, m, append(tokens(last), 3), 64)
			if err := sameBits(row, want[len(want)-v:]); err != nil {
				t.Errorf("after the commit of %d nodes: %v", tr.Depth(last)+1, err)
			}
		})
	}
}
