package infer_test

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"

	"talf/compute/cpu"
	"talf/infer"
	"talf/infer/experts"
	"talf/model"
	"talf/model/modeltest"
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

// Every pass says how many experts it has read, not counting those of the passes before it.
func TestPassesSayHowManyExpertsTheyRead(t *testing.T) {
	dev, err := cpu.New(cpu.Default())
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	m, err := model.Load(modeltest.Random(t, modeltest.Of("qwen3_moe"), 1), dev, model.Default())
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	target := infer.NewTarget(m, 0)
	if err := target.Open(1, []int32{1}, 0); err != nil {
		t.Fatal(err)
	}
	defer target.Close(1)
	score := func(rows int) experts.Read {
		tr := tree.New(1, rows)
		for token := range int32(rows - 1) {
			tr.Add(0, 2+token)
		}
		if _, err := target.Score(t.Context(), []infer.Job{{ID: 1, Tree: tr, Want: model.WantAll}}); err != nil {
			t.Fatal(err)
		}
		return experts.Last(target)
	}
	spec := m.Spec()
	mix, sparse := spec.Mixture, 0
	for i := range spec.Layers {
		if mix.Sparse(i) {
			sparse++
		}
	}
	one, many := score(1), score(12)
	if again := score(1); again != one {
		t.Errorf("a pass of one row read %+v, and later %+v", one, again)
	}
	if one.Of != mix.Experts || one.Top != mix.Top || one.Layers != sparse || one.Distinct != mix.Top*sparse {
		t.Errorf("a pass of one row read %+v, want %d of %d experts in each of %d layers", one, mix.Top, mix.Experts, sparse)
	}
	if all := one.Share * float64(one.Distinct); !(all > 0 && all < 1) {
		t.Errorf("its experts are %v of the weights that it read", all)
	}
	if many.Distinct <= one.Distinct || many.Distinct > mix.Experts*sparse {
		t.Errorf("a pass of 12 rows read %d experts, want more than %d and at most %d", many.Distinct, one.Distinct, mix.Experts*sparse)
	}
	n := newNets(t, 1, 1)
	dense := infer.NewTarget(n.target, 0)
	if err := dense.Open(1, []int32{1}, 0); err != nil {
		t.Fatal(err)
	}
	defer dense.Close(1)
	if _, err := dense.Score(t.Context(), []infer.Job{{ID: 1, Tree: tree.New(1, 1), Want: model.WantAll}}); err != nil {
		t.Fatal(err)
	}
	if got := experts.Last(dense); got != (experts.Read{}) {
		t.Errorf("a model without experts read %+v", got)
	}
}
