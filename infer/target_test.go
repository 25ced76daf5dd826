package infer_test

import (
	"math/rand/v2"
	"testing"

	"talf/infer"
)

// What kept prefixes hold can be bounded in bytes and given back at any time, and their
// KV blocks go with them.
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
	all, _ := n.target.KVBlocks()
	limit.Bytes = 130 * limit.PerToken
	p.Bound(limit)
	some, _ := n.target.KVBlocks()
	if p.Len() < 1 || p.Len() > 2 || some >= all || target.Match(prompts[5]) != 50 || target.Match(prompts[0]) == 50 {
		t.Errorf("%d sequences and %d of %d blocks are left in 130 tokens' room; the last prompt matches %d tokens, the first %d",
			p.Len(), some, all, target.Match(prompts[5]), target.Match(prompts[0]))
	}
	for p.Evict() {
	}
	if none, _ := n.target.KVBlocks(); none != 0 || target.Match(prompts[5]) != 0 {
		t.Errorf("%d blocks are in use after the last eviction, and %d tokens match", none, target.Match(prompts[5]))
	}
}
