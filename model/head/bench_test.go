package head_test

import (
	"context"
	"testing"

	"talf/model"
	"talf/model/arch"
	"talf/model/draftvocab"
	"talf/model/head"
	"talf/model/modeltest"
	"talf/tree"
)

// BenchmarkDraftLevel measures what a level of ten nodes costs a head, and the bytes of weights that
// it reads: a level of an EAGLE-3 head should cost no more than one of an EAGLE-1 head, of the
// same sizes, and what the difference of their LM heads takes to read.
func BenchmarkDraftLevel(b *testing.B) {
	c := modeltest.Default()
	c.Vocab, c.Hidden, c.Heads, c.KVHeads, c.HeadDim, c.FFN, c.Layers = 16384, 768, 12, 4, 64, 2048, 1
	m, err := model.Load(modeltest.Random(b, c, 1), device(b), model.Default())
	if err != nil {
		b.Fatal(err)
	}
	defer m.Close()
	for _, v := range []struct {
		name string
		spec *arch.Spec
		ids  int // of the draft vocabulary; 0: all
	}{
		{"EAGLE", m.Spec().DraftFor(false), 0},
		{"EAGLE-draft4096", m.Spec().DraftFor(false), 4096},
		{"EAGLE3", m.Spec().Eagle3For([]int{0, 1}, 0), 0},
		{"EAGLE3-draft4096", m.Spec().Eagle3For([]int{0, 1}, 4096), 4096},
	} {
		b.Run(v.name, func(b *testing.B) {
			v.spec.DraftVocab = v.ids
			ts := modeltest.Tensors(v.spec, false, 1)[1:]
			if v.ids > 0 {
				var ids []int32
				for i := range v.ids {
					ids = append(ids, int32(4*i))
				}
				ts = append(ts, draftvocab.Tensors(ids, c.Vocab)...)
			}
			h, err := head.FromTensors(v.spec, m, head.Default(), ts...)
			if err != nil {
				b.Fatal(err)
			}
			ctx, tokens := context.Background(), []int32{1, 2, 3, 4}
			seq, hs := m.NewSeq(), h.NewSeq()
			o, err := seq.Append(ctx, tokens, nil, model.WantNone)
			if err != nil {
				b.Fatal(err)
			}
			var in []model.Feature
			for i := range len(tokens) - 1 {
				in = append(in, o.Feature(0, i))
			}
			if o, err = hs.Append(ctx, tokens[1:], in, model.WantLast); err != nil {
				b.Fatal(err)
			}
			store, err := h.NewStore(1)
			if err != nil {
				b.Fatal(err)
			}
			if err := store.Put(0, o.Feature(0, len(in)-1)); err != nil {
				b.Fatal(err)
			}
			tr := tree.New(tokens[3], 11)
			var feat []model.Feature
			for i := range 10 {
				tr.Add(0, int32(i))
				feat = append(feat, store.At(0))
			}
			for b.Loop() {
				branch := hs.BranchLast()
				if _, err := h.Forward(ctx, []model.Segment{{Rows: branch, Tree: tr, From: 1, Want: model.WantAll, Feat: feat}}); err != nil {
					b.Fatal(err)
				}
				branch.Drop()
			}
			b.ReportMetric(float64(h.WeightBytes()), "weight-bytes")
		})
	}
}
