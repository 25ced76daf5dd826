package source_test

import (
	"math/rand/v2"
	"testing"

	"talf/compute"
	"talf/infer"
	"talf/infer/draft"
	"talf/infer/draft/drafttest"
	"talf/infer/source"
	"talf/infer/verify"
	"talf/model"
	"talf/model/head"
	"talf/model/modeltest"
)

// What a draft model keeps of closed sequences makes room for a pass that needs it: no round goes without drafts for it.
func TestKeptSequencesMakeRoomForADraftModel(t *testing.T) {
	const blocks = 4
	conf := modeltest.Default()
	conf.EOS, conf.Vocab = -1, 84
	target, _ := random(t, conf)
	opt := head.Default()
	opt.Model.KVBlocks = blocks
	spec := target.Spec().DraftFor(true)
	h, err := head.FromTensors(spec, target, opt, modeltest.Tensors(spec, false, 1)...)
	if err != nil {
		t.Fatal(err)
	}
	small := model.Default()
	small.KVBlocks = blocks
	m, err := model.Load(modeltest.Random(t, conf, 2), target.Device(), small)
	if err != nil {
		t.Fatal(err)
	}
	same, err := source.NewVocab(spelling(t, texts()), spelling(t, texts()), conf.Vocab, conf.Vocab)
	if err != nil {
		t.Fatal(err)
	}
	hs, ls := source.NewHead(h, 4), source.NewLM(m, same, 4)
	for name, src := range map[string]struct {
		infer.Source
		kept func() int
	}{"head": {hs, hs.Prefixes().Len}, "model": {ls, ls.Prefixes().Len}} {
		t.Run(name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(1, 9))
			e := &infer.Engine{Target: infer.NewTarget(target, 0), Config: infer.Config{PrefillChunk: 256, MaxNodes: 16}}
			answer := func(tokens int) *infer.Sequence {
				prompt := make([]int32, tokens)
				for i := range prompt {
					prompt[i] = rng.Int32N(int32(conf.Vocab))
				}
				d, _, err := draft.New("beam:N=6,k=2,depth=2")
				if err != nil {
					t.Fatal(err)
				}
				s, err := e.Generate(t.Context(), infer.Request{
					Prompt: prompt, MaxTokens: 6, Source: src.Source, Drafter: d, Verifier: new(verify.Greedy), Processor: drafttest.Plain{},
				})
				if err != nil {
					t.Fatal(err)
				}
				return s
			}
			answer(compute.BlockLen + 8) // two blocks are kept
			if src.kept() != 1 {
				t.Fatalf("%d sequences are kept, want 1", src.kept())
			}
			if s := answer(3*compute.BlockLen - 16); s.Stats().Undrafted > 0 || s.Stats().Drafted == 0 {
				t.Errorf("%d nodes were drafted, and %d rounds had none: %v", s.Stats().Drafted, s.Stats().Undrafted, s.Undrafted())
			}
		})
	}
}
