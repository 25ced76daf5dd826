package source_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"talf/compute/cpu"
	"talf/infer"
	"talf/infer/draft"
	"talf/infer/draft/drafttest"
	"talf/infer/source"
	"talf/infer/verify"
	"talf/model"
	"talf/model/head"
	"talf/model/modeltest"
)

// random returns a random target on one thread, and an EAGLE-1 head for it.
func random(t *testing.T, c modeltest.Config) (*model.Model, *head.Head) {
	t.Helper()
	dev, err := cpu.New(cpu.Config{Class: cpu.Default().Class, Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	target, err := model.Load(modeltest.Random(t, c, 1), dev, model.Default())
	if err != nil {
		t.Fatal(err)
	}
	spec := target.Spec().DraftFor(true)
	h, err := head.FromTensors(spec, target, head.Default(), modeltest.Tensors(spec, false, 1)...)
	if err != nil {
		t.Fatal(err)
	}
	return target, h
}

// Whatever a prompt shares with a kept sequence, from nothing to all of it, the draft model
// answers as a fresh one does, which the mirrors check.
func TestPromptsBeginWhereverKeptSequencesDo(t *testing.T) {
	conf := modeltest.Default()
	conf.EOS, conf.Vocab = -1, 84
	target, h := random(t, conf)
	tiny := conf
	tiny.MaxPos = 24 // the longest of the sequences outgrow it
	spec := networks["EAGLE-3"](target.Spec())
	third, err := head.FromTensors(spec, target, head.Default(), modeltest.Tensors(spec, false, 1)...)
	if err != nil {
		t.Fatal(err)
	}
	heads := map[string]*head.Head{"head": h, "EAGLE-3 head": third}
	lms := map[string]*model.Model{}
	for name, c := range map[string]modeltest.Config{"model": conf, "small model": tiny} {
		if lms[name], err = model.Load(modeltest.Random(t, c, 2), target.Device(), model.Default()); err != nil {
			t.Fatal(err)
		}
	}
	same, err := source.NewVocab(spelling(t, texts()), spelling(t, texts()), conf.Vocab, conf.Vocab)
	if err != nil {
		t.Fatal(err)
	}
	const answered = 12
	first := make([]int32, 12)
	rng := rand.New(rand.NewPCG(1, 3))
	for i := range first {
		first[i] = rng.Int32N(int32(conf.Vocab))
	}
	for _, name := range []string{"head", "EAGLE-3 head", "model", "small model"} {
		for n := range len(first) + answered {
			for _, other := range []bool{false, true} { // tokens of its own follow
				if n == 0 && !other {
					continue
				}
				t.Run(fmt.Sprintf("%s, %d tokens, others follow %v", name, n, other), func(t *testing.T) {
					e := &infer.Engine{Target: infer.NewTarget(target, 4), Config: infer.Config{PrefillChunk: 5, MaxNodes: 16}}
					var src infer.Source
					var hm *mirror
					var lm *lmMirror
					if h := heads[name]; h != nil {
						hm = &mirror{
							t: t, inner: source.NewHead(h, 4), target: target, head: h,
							tokens: map[infer.SeqID][]int32{}, fresh: map[infer.SeqID]*source.Head{},
						}
						src = hm
					} else {
						lm = &lmMirror{
							t: t, inner: source.NewLM(lms[name], same, 4), fresh: func() *source.LM { return source.NewLM(lms[name], same, 0) },
							tokens: map[infer.SeqID][]int32{}, again: map[infer.SeqID]*source.LM{},
						}
						src = lm
					}
					answer := func(prompt []int32) *infer.Sequence {
						d, _, err := draft.New("beam:N=6,k=2,depth=2")
						if err != nil {
							t.Fatal(err)
						}
						s, err := e.Generate(t.Context(), infer.Request{
							Prompt: prompt, MaxTokens: answered, Source: src, Drafter: d,
							Verifier: new(verify.Greedy), Processor: drafttest.Plain{},
						})
						if err != nil {
							t.Fatal(err)
						}
						return s
					}
					known := slices.Concat(first, answer(first).Tokens())
					prompt := slices.Clone(known[:n])
					if other {
						prompt = append(prompt, (known[n]+1)%int32(conf.Vocab), 7)
					}
					s := answer(prompt)
					// The head may not have run the tokens that were accepted last.
					want := max(0, min(n, len(prompt)-1, len(first))-1)
					if got := s.Stats().Cached; got < want || got > n {
						t.Errorf("%d of %d prompt tokens were cached, want %d..%d", got, len(prompt), want, n)
					}
					if hm != nil && hm.rows == 0 || lm != nil && lm.rows == 0 {
						t.Error("no rows were compared")
					}
				})
			}
		}
	}
}
