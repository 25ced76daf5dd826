package infer_test

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"

	"talf/infer"
	"talf/model"
	"talf/tree"
)

// Kept prefixes can be bounded in bytes and given back at any time, and their KV blocks are
// freed with them.
func TestKeptPrefixesAreBoundedInBytes(t *testing.T) {
	n := newNets(t, 1, 1)
	target := infer.NewTarget(n.target, 10)
	e := &infer.Engine{Target: target, Config: infer.Default()}
	rng := rand.New(rand.NewPCG(4, 4))
	var prompts [][]int32
	for range 6 {
		prompt := make([]int32, 50)
		for i := range prompt {
			prompt[i] = rng.Int32N(20)
		}
		prompts = append(prompts, prompt)
		if _, err := e.Generate(t.Context(), plainRequest(t, prompt...)); err != nil {
			t.Fatal(err)
		}
	}
	p, s := target.Prefixes(), n.target.Spec()
	limit := p.Limit()
	if want := int64(s.Layers * s.KVHeads * s.HeadDim * 2 * 4); limit.PerToken != want {
		t.Errorf("a token takes %d bytes, want %d", limit.PerToken, want)
	}
	all := n.target.KV().Used
	limit.Bytes = 130 * limit.PerToken
	p.Bound(limit)
	some := n.target.KV().Used
	if p.Len() < 1 || p.Len() > 2 || some >= all || target.Match(prompts[5]) != 50 || target.Match(prompts[0]) == 50 {
		t.Errorf("%d sequences and %d of %d blocks are left in 130 tokens' room; the last prompt matches %d tokens, the first %d",
			p.Len(), some, all, target.Match(prompts[5]), target.Match(prompts[0]))
	}
	for p.Evict() {
	}
	if none := n.target.KV().Used; none != 0 || target.Match(prompts[5]) != 0 {
		t.Errorf("%d blocks are in use after the last eviction, and %d tokens match", none, target.Match(prompts[5]))
	}
}

// Likely tokens are those of the last pass, even if an earlier one was read before, and whatever numbers of them were asked for.
func TestLikelyTokensAreOfTheLastPass(t *testing.T) {
	n := newNets(t, 1, 3)
	target := infer.NewTarget(n.target, 0)
	row := make([]float32, n.target.Spec().Vocab)
	if err := target.Open(1, []int32{1}, 0); err != nil {
		t.Fatal(err)
	}
	defer target.Close(1)
	for _, id := range []int32{1, 2, 3, 4, 5} {
		rows, err := target.Score(t.Context(), []infer.Job{{ID: 1, Tree: tree.New(id, 1), Want: model.WantAll}})
		if err != nil {
			t.Fatal(err)
		}
		rows[0].Logits(row, 0)
		want := make([]int32, len(row))
		for i := range want {
			want[i] = int32(i)
		}
		slices.SortStableFunc(want, func(a, b int32) int { return cmp.Compare(row[b], row[a]) })
		for _, k := range [][]int{{3}, {2, 5}, {5, 2}, {4, 3}, {2, 3}}[id-1] {
			if got := rows[0].Rank(nil, 0, k); !slices.Equal(got, want[:k]) {
				t.Errorf("after token %d: %v, want %v", id, got, want[:k])
			}
			if got := infer.Tokens(nil, rows[0].TopK(nil, 0, k)); !slices.Equal(got, want[:k]) {
				t.Errorf("after token %d: candidates %v, want %v", id, got, want[:k])
			}
			if got := rows[0].Rank(nil, 0, k); !slices.Equal(got, want[:k]) {
				t.Errorf("after token %d: %v again, want %v", id, got, want[:k])
			}
		}
		if err := target.Commit(1, []int{0}); err != nil {
			t.Fatal(err)
		}
	}
}
