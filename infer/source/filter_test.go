package source_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"talf/compute/cpu"
	"talf/infer"
	"talf/infer/source"
	"talf/model"
	"talf/model/arch"
	"talf/model/head"
	"talf/model/modeltest"
	"talf/tree"
)

// Rows of asks that say what may follow are those of asks that do not, without the tokens that may not:
// of heads and block drafters, with a draft vocabulary too, of Medusa heads, and of language models of the target's and of
// another vocabulary.
func TestRowsHoldOnlyWhatMayFollow(t *testing.T) {
	conf := modeltest.Default()
	conf.Vocab, conf.EOS = 84, -1
	const root = 5
	begunWith := func(target *model.Model, src infer.Source, newStore func(rows int) (*model.Store, error)) infer.Source {
		t.Helper()
		if err := src.Open(1, []int32{1, root}, 0); err != nil {
			t.Fatal(err)
		}
		seq := target.NewSeq()
		defer seq.Close()
		o, err := seq.Append(t.Context(), []int32{1}, nil, model.WantNone)
		if err != nil {
			t.Fatal(err)
		}
		store, err := newStore(1)
		if err != nil {
			t.Fatal(err)
		}
		if err := store.Put(0, o.Feature(0, 0)); err != nil {
			t.Fatal(err)
		}
		if err := src.Commit(1, infer.Proposal{Tree: tree.New(1, 1)}, infer.Verdict{Path: []int{0}, Next: root}, given{store: store}); err != nil {
			t.Fatal(err)
		}
		return src
	}
	begun := func(target *model.Model, src infer.Source) infer.Source {
		return begunWith(target, src, target.NewStore)
	}
	target, h := random(t, conf)
	few, narrowed := narrow(t, "EAGLE", conf.Vocab, []int32{0, 3, 5, 8, 13, 21, 34, 55, 83}, 4)
	blockTarget, blocks := narrow(t, "block", conf.Vocab, []int32{0, 3, 5, 8, 13, 21, 34, 55, 83}, 4)
	selects := blockTarget.Spec().BlockFor(arch.Block{Size: 4, Taps: []int{1}, Mask: 2, SelectorRank: 3, SelectorTop: 11}, 1, 0)
	selector, err := head.FromTensors(selects, blockTarget, head.Default(), modeltest.Tensors(selects, false, 5)...)
	if err != nil {
		t.Fatal(err)
	}
	medusaTarget, heads := randomHeads(t, conf, 3, 2)
	dev, err := cpu.New(cpu.Config{Class: cpu.Default().Class, Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	lm := func(ours []string) func() infer.Source {
		small := conf
		small.Vocab = len(ours)
		m, err := model.Load(modeltest.Random(t, small, 9), dev, model.Default())
		if err != nil {
			t.Fatal(err)
		}
		v, err := source.NewVocab(spelling(t, texts()), spelling(t, ours), conf.Vocab, small.Vocab)
		if err != nil {
			t.Fatal(err)
		}
		return func() infer.Source { return begun(target, source.NewLM(m, v, 0)) }
	}
	others := texts()[:70:70]
	slices.Reverse(others)
	for name, open := range map[string]func() infer.Source{
		"head":                       func() infer.Source { return begun(target, source.NewHead(h, 0)) },
		"head of a draft vocabulary": func() infer.Source { return begun(few, source.NewHead(narrowed, 0)) },
		"block head of a draft vocabulary": func() infer.Source {
			return begunWith(blockTarget, source.NewBlock(blocks, 0), blocks.NewInputStore)
		},
		"block head with a selector": func() infer.Source {
			return begunWith(blockTarget, source.NewBlock(selector, 0), selector.NewInputStore)
		},
		"Medusa heads":             func() infer.Source { return begun(medusaTarget, source.NewMedusa(heads)) },
		"LM":                       lm(texts()),
		"LM of another vocabulary": lm(others),
	} {
		rng := rand.New(rand.NewPCG(3, 14))
		empty := 0
		for range 12 {
			work := tree.New(root, 4)
			all, held := open(), open()
			for from := range 2 { // the root, then its children
				if from == 1 {
					for id := range int32(3) {
						work.Add(0, 20*id+rng.Int32N(20))
					}
				}
				full, k := rng.IntN(2) == 0, 1+rng.IntN(40)
				masks := make([][]uint64, work.Len())
				for n := range masks {
					if rng.IntN(5) > 0 {
						masks[n] = []uint64{rng.Uint64() & rng.Uint64(), rng.Uint64()}[:rng.IntN(3)]
					}
				}
				want, err := all.Rows(t.Context(), []infer.Ask{{ID: 1, Tree: work, From: from, Width: 1, Full: true}})
				if err != nil {
					t.Fatal(err)
				}
				got, err := held.Rows(t.Context(), []infer.Ask{{ID: 1, Tree: work, From: from, Width: k, Full: full, Allow: func(n int) []uint64 { return masks[n] }}})
				if err != nil {
					t.Fatal(err)
				}
				for i := range got {
					if !checkHeld(t, name, got[i], want[i].Logits, masks[from+i], k, full) {
						empty++
					}
				}
			}
		}
		if empty == 0 || empty > 30 {
			t.Errorf("%s: %d rows are empty", name, empty)
		}
	}
}

// checkHeld compares a row with the logits of all tokens, and reports whether some of them may follow.
func checkHeld(t *testing.T, name string, got infer.Row, logits []float32, mask []uint64, k int, full bool) bool {
	t.Helper()
	may := func(id int) bool { return mask == nil || id/64 < len(mask) && mask[id/64]>>(id%64)&1 != 0 }
	var ids []int32
	sum := 0.0
	for id, x := range logits {
		if may(id) && !math.IsInf(float64(x), -1) {
			ids = append(ids, int32(id))
			sum += math.Exp(float64(x))
		}
	}
	slices.SortStableFunc(ids, func(a, b int32) int { return cmpFloat(logits[b], logits[a]) })
	if len(ids) == 0 {
		if len(got.Tokens)+len(got.Logits) > 0 {
			t.Fatalf("%s: %v, and nothing may follow", name, got)
		}
		return false
	}
	if !slices.Equal(got.Tokens, ids[:min(k, len(ids))]) {
		t.Fatalf("%s: tokens %v, want the first %d of %v", name, got.Tokens, k, ids)
	}
	for i, id := range got.Tokens {
		if want := float64(logits[id]) - math.Log(sum); math.Abs(float64(got.LogProb[i])-want) > 1e-5 {
			t.Fatalf("%s: token %d has log probability %v, want %v", name, id, got.LogProb[i], want)
		}
	}
	if full != (got.Logits != nil) {
		t.Fatalf("%s: %d logits, asked for all: %v", name, len(got.Logits), full)
	}
	for id, x := range got.Logits {
		want := logits[id]
		if !may(id) {
			want = float32(math.Inf(-1))
		}
		if math.Float32bits(x) != math.Float32bits(want) {
			t.Fatalf("%s: token %d has logit %v, want %v", name, id, x, want)
		}
	}
	return true
}
