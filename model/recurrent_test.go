package model_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"talf/compute/cpu/kern"
	"talf/model"
	"talf/model/modeltest"
	"talf/tree"
)

// Sequences of a model with recurrent layers are appended to, forked, cut where they can be and given trees of which
// paths are kept, in passes of several. What follows always has the bits of a new sequence that reads the same tokens,
// which other tests hold to those of plain decoding, and nothing stays in the pool. Texts are long enough for the states that are kept to be thinned out.
func TestRecurrentStatesAreThoseOfNewSequences(t *testing.T) {
	inside, longest := live(t, modeltest.Of("qwen3_next"), 8, nil)
	if inside == 0 || longest <= 5*64 {
		t.Errorf("%d sequences were cut in their middle, the longest text had %d tokens: want states that are thinned out", inside, longest)
	}
}

// live does what sequences go through with those of random models of a shape, and returns how many were cut in their
// middle and the length of the longest. check, unless it is nil, looks at a sequence after a commit.
func live(t *testing.T, conf modeltest.Config, seeds uint64, check func(m *model.Model, s *model.Seq)) (inside, longest int) {
	if testing.Short() {
		seeds = max(1, seeds/3)
	}
	dir := modeltest.Random(t, conf, 1)
	dev := device(t, kern.Best(), 2)
	plain := load(t, dir, dev, model.Default())
	type live struct {
		s   *model.Seq
		ids []int32
	}
	for seed := range seeds {
		m := load(t, dir, dev, model.Default())
		v := m.Spec().Vocab
		rng := rand.New(rand.NewPCG(seed, 5))
		some := func(n int) []int32 {
			ids := make([]int32, n)
			for i := range ids {
				ids[i] = rng.Int32N(int32(v))
			}
			return ids
		}
		seqs := []*live{{s: m.NewSeq()}}
		for step := range 24 {
			l := seqs[rng.IntN(len(seqs))]
			if rng.IntN(4) == 0 && len(seqs) < 5 {
				f := &live{l.s.Fork(), slices.Clone(l.ids)}
				seqs = append(seqs, f)
			}
			if rng.IntN(3) == 0 && len(l.ids) > 0 {
				ask := rng.IntN(len(l.ids))
				n := l.s.Resume(ask)
				if n > ask || conf.Window == 0 && n > 0 && ask-n > 256 {
					t.Fatalf("seed %d, step %d: Resume(%d) of %d tokens is %d", seed, step, ask, len(l.ids), n)
				}
				if n > 0 {
					inside++
				}
				l.s.Truncate(n)
				l.ids = l.ids[:n]
			}
			if len(l.ids) < 330 && rng.IntN(2) == 0 {
				more := some(1 + rng.IntN(130))
				must[*model.Output](t)(l.s.Append(t.Context(), more, nil, model.WantNone))
				l.ids = append(l.ids, more...)
				longest = max(longest, len(l.ids))
			}
			if rng.IntN(8) == 0 {
				l.s.KeepAt(len(l.ids) + rng.IntN(50))
			}
			// A tree in two passes, the second beside another sequence's.
			full := randomTree(rng, v, 2+rng.IntN(20))
			cut := 1 + rng.IntN(full.Len()-1)
			part := tree.New(full.Token(0), full.Len())
			b := l.s.Branch(l.s.Len())
			grow := func(to int) {
				for i := part.Len(); i < to; i++ {
					part.Add(full.Parent(i), full.Token(i))
				}
			}
			grow(cut)
			must[*model.Output](t)(m.Forward(t.Context(), []model.Segment{{Rows: b, Tree: part, Want: model.WantNone}}))
			grow(full.Len())
			batch := []model.Segment{{Rows: b, Tree: part, From: cut, Want: model.WantAll}}
			if o := seqs[rng.IntN(len(seqs))]; o != l {
				other := o.s.Branch(o.s.Len())
				batch = append([]model.Segment{{Rows: other, Tree: randomTree(rng, v, 1+rng.IntN(6)), Want: model.WantNone}}, batch...)
			}
			o := must[*model.Output](t)(m.Forward(t.Context(), batch))
			n := cut + rng.IntN(full.Len()-cut)
			got, want := make([]float32, v), make([]float32, v)
			o.ReadLogits(got, o.LogitsRow(len(batch)-1, n))
			p := plain.NewSeq()
			p.KeepPast() // so that it gives nothing back
			ids := slices.Clone(l.ids)
			path := full.AppendPath(nil, n)
			for _, x := range path {
				ids = append(ids, full.Token(x))
			}
			last := must[*model.Output](t)(p.Append(t.Context(), ids, nil, model.WantLast))
			last.ReadLogits(want, 0)
			p.Close()
			if err := sameBits(got, want); err != nil {
				t.Fatalf("seed %d, step %d, node %d after %d tokens: %v", seed, step, n, len(l.ids), err)
			}
			if len(batch) == 2 {
				batch[0].Rows.Drop()
			}
			if rng.IntN(4) == 0 {
				b.Drop()
				continue
			}
			if err := b.Commit(path); err != nil {
				t.Fatal(err)
			}
			l.ids = ids
			if check != nil {
				check(m, l.s)
			}
		}
		for _, l := range seqs {
			l.s.Close()
		}
		if used := m.KV().Used; used != 0 {
			t.Fatalf("seed %d: %d blocks in use after everything is closed", seed, used)
		}
	}
	return inside, longest
}

// States of tokens that were cut away are gone, also where a full pool keeps no new ones in their place.
func TestStatesAreCutWithTheirTokens(t *testing.T) {
	opt := model.Default()
	opt.KVBlocks = 24
	m := load(t, modeltest.Random(t, modeltest.Of("qwen3_next"), 1), device(t, kern.Best(), 1), opt)
	run := func(s *model.Seq, token int32, n int) {
		ids := make([]int32, n)
		for i := range ids {
			ids[i] = token
		}
		must[*model.Output](t)(s.Append(t.Context(), ids, nil, model.WantNone))
	}
	s, other := m.NewSeq(), m.NewSeq()
	defer s.Close()
	defer other.Close()
	run(s, 1, 200)
	if n := s.Resume(150); n != 128 {
		t.Fatalf("200 tokens can be cut to %d, want 128", n)
	}
	s.Truncate(64)
	for m.KV().Free > 6 { // 5 for 136 tokens, and one for their state
		run(other, 2, 1)
	}
	run(s, 3, 136)
	if n := s.Resume(150); n != 64 {
		t.Errorf("other tokens can be cut to %d, want 64: the pool has no room for another state", n)
	}
}
