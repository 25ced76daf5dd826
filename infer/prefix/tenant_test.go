package prefix_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"talf/compute/cpu"
	"talf/infer/prefix"
	"talf/model"
	"talf/model/modeltest"
)

// A cache of several tenants answers each as a cache of its own would that evicts the same
// sequences: no tenant sees another's tokens, and none takes more than its share.
func TestTenantsShareNothingButTheLimit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := prefix.Limit{
			Entries: rapid.IntRange(0, 8).Draw(t, "entries"), PerToken: 1,
			Bytes: int64(rapid.IntRange(0, 30).Draw(t, "bytes")), TenantBytes: int64(rapid.IntRange(0, 15).Draw(t, "tenant bytes")),
		}
		type entry struct {
			who    prefix.Owner
			tokens []int32
		}
		kept := map[int]entry{}
		c := prefix.New(limit, func(id int) { delete(kept, id) })
		for id := range rapid.IntRange(1, 60).Draw(t, "operations") {
			who := prefix.Owner{Tenant: rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "tenant"), Long: rapid.Bool().Draw(t, "long")}
			tokens := rapid.SliceOfN(rapid.Int32Range(1, 2), 0, 8).Draw(t, "tokens")
			if rapid.Bool().Draw(t, "put") {
				kept[id] = entry{who, tokens}
				c.PutOf(who, tokens, id)
			} else if v, n := c.FindOf(who, tokens); n > 0 && (kept[v].who != who || common(kept[v].tokens, tokens) != n) {
				t.Fatalf("%+v finds %d tokens of %+v", who, n, kept[v])
			}
			all, most := 0, map[prefix.Owner]int{}
			distinct := map[string]bool{}
			for _, e := range kept {
				most[e.who] = max(most[e.who], common(e.tokens, tokens))
				for n := range e.tokens {
					distinct[fmt.Sprintf("%1s%v%v", e.who.Tenant, e.who.Long, e.tokens[:n+1])] = true
				}
			}
			share := map[byte]int{}
			for k := range distinct {
				all++
				share[k[0]]++
			}
			for _, n := range share {
				if limit.TenantBytes > 0 && int64(n) > limit.TenantBytes {
					t.Fatalf("a tenant has %d tokens, want at most %d", n, limit.TenantBytes)
				}
			}
			if got := c.MatchOf(who, tokens); got != most[who] {
				t.Fatalf("%+v matches %d tokens, want %d", who, got, most[who])
			}
			if c.Len() != len(kept) || c.Tokens() != all {
				t.Fatalf("%d sequences of %d tokens, want %d of %d", c.Len(), c.Tokens(), len(kept), all)
			}
		}
		for c.Evict() {
		}
		if len(kept) != 0 || c.Tokens() != 0 {
			t.Fatalf("%d sequences and %d tokens are left", len(kept), c.Tokens())
		}
	})
}

// Two caches that forget together hold no sequence beyond what the other one has of it, whichever
// of them evicts.
func TestPairsForgetTogether(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seqs := map[int][]int32{}
		a := prefix.New(prefix.Limit{Entries: rapid.IntRange(1, 6).Draw(t, "entries")}, func(int) {})
		b := prefix.New(prefix.Limit{Entries: rapid.IntRange(1, 6).Draw(t, "entries")}, func(int) {})
		prefix.Pair(a, b)
		for id := range rapid.IntRange(1, 40).Draw(t, "operations") {
			tokens := rapid.SliceOfN(rapid.Int32Range(1, 2), 1, 8).Draw(t, "tokens")
			switch rapid.IntRange(0, 5).Draw(t, "operation") {
			case 0:
				a.Evict()
			case 1:
				b.Evict()
			default:
				seqs[id] = tokens
				a.Put(tokens, id)
				b.Put(tokens, id)
			}
			for _, s := range seqs {
				if x, y := a.Match(s), b.Match(s); x != y {
					t.Fatalf("%v: %d tokens in one cache, %d in the other", s, x, y)
				}
			}
		}
	})
}

// evictBlocks drops the least recently used sequences of m until n blocks of its KV pool have been
// freed, and returns how many were. Blocks that open sequences share stay in use.
func evictBlocks(m *model.Model, c *prefix.Cache[*model.Seq], n int) int {
	used := m.KV().Used
	freed := 0
	for freed < n && c.Evict() {
		freed = used - m.KV().Used
	}
	return freed
}

// Eviction frees blocks, oldest sequences first, and no more than it must.
func TestEvictBlocks(t *testing.T) {
	dev, err := cpu.New(cpu.Default())
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	opt := model.Default()
	opt.KVBlocks = 40
	m, err := model.Load(modeltest.Random(t, modeltest.Default(), 1), dev, opt)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	c := prefix.Of(m, 100)
	var open *model.Seq
	for i := range 8 {
		tokens := slices.Repeat([]int32{int32(i)}, 70) // 3 blocks
		s := m.NewSeq()
		if _, err := s.Append(context.Background(), tokens, nil, model.WantNone); err != nil {
			t.Fatal(err)
		}
		if i == 2 {
			open = s.Fork()
		}
		c.Put(tokens, s)
	}
	// Half of the pool is for prefixes: 20 blocks of 32 positions are 9 sequences of 70.
	if used := m.KV().Used; c.Len() != 8 || used != 24 {
		t.Fatalf("%d sequences, %d blocks", c.Len(), used)
	}
	// The first two give 3 blocks each. The third shares its whole blocks with an open sequence,
	// and the tail too, so the fourth has to go as well.
	if freed := evictBlocks(m, c, 7); freed != 9 || c.Len() != 4 || m.KV().Used != 15 {
		t.Errorf("freed %d blocks, %d sequences and %d blocks are left, want 9, 4 and 15", freed, c.Len(), m.KV().Used)
	}
	if freed := evictBlocks(m, c, 100); freed != 12 || c.Len() != 0 || m.KV().Used != 3 {
		t.Errorf("freed %d blocks, %d sequences and %d blocks are left, want 12, 0 and 3", freed, c.Len(), m.KV().Used)
	}
	open.Close()

	// A sequence that is larger than the limit is not kept.
	s := m.NewSeq()
	tokens := slices.Repeat([]int32{1}, 500)
	if _, err := s.Append(context.Background(), tokens, nil, model.WantNone); err != nil {
		t.Fatal(err)
	}
	c.Bound(prefix.Limit{Entries: 9, Bytes: 499 * m.PositionBytes(), PerToken: m.PositionBytes()})
	if c.Put(tokens, s); c.Len() != 0 || m.KV().Used != 0 {
		t.Errorf("%d sequences of %d blocks are kept, want none", c.Len(), m.KV().Used)
	}
}
