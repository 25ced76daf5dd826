package draft_test

import (
	"slices"
	"testing"

	"talf/infer"
	"talf/infer/draft"
	"talf/infer/draft/drafttest"
	"talf/infer/verify"
)

// A maker says whether its drafters learn from each other's requests: if they do, a second
// request drafts differently than the same request with a new maker.
func TestMakersSayWhetherTheirDraftersLearn(t *testing.T) {
	specs := []string{
		"recycle:N=9,table=keep", "isotropic:N=7,lo=1,table=keep", "goose:N=7,lo=1,table=keep", "suffix:table=keep",
		"salf:paper", "beam:paper", "optimal:paper",
	}
	for _, m := range draft.Methods() {
		if m.Main == "" { // the others need a file or a shape
			specs = append(specs, m.Name)
		}
	}
	seeds := uint64(24)
	if testing.Short() {
		seeds = 8
	}
	for _, spec := range specs {
		learns, differs := false, false
		for seed := range seeds {
			decode := func(mk *draft.Maker, source bool, prompt ...int32) infer.Stats {
				v, err := verify.New("", 0)
				if err != nil {
					t.Fatal(err)
				}
				target := &drafttest.Target{Table: drafttest.Table{Seed: seed, Vocab: 8, Order: 2, Sharp: 1.5}, MaxLen: 200}
				req := infer.Request{Prompt: prompt, MaxTokens: 40, Drafter: mk.New(), Verifier: v, Processor: drafttest.Plain{}}
				if source {
					req.Source = &drafttest.Source{Target: target, Agree: 0.7}
				}
				e := &infer.Engine{Target: target, Config: infer.Config{PrefillChunk: 8, MaxNodes: 64}}
				s, err := e.Generate(t.Context(), req)
				if err != nil {
					t.Fatal(err)
				}
				return *s.Stats()
			}
			open := func() (*draft.Maker, bool) {
				mk, m, err := draft.Open(spec, draft.Env{Vocab: 8})
				if err != nil {
					t.Fatal(err)
				}
				return mk, m.Source
			}
			used, source := open()
			decode(used, source, 1, 2, 3, 1, 2)
			fresh, _ := open()
			got, want := decode(used, source, 5, 6, 7, 5, 6), decode(fresh, source, 5, 6, 7, 5, 6)
			learns = used.Learns
			if got.Drafted != want.Drafted || !slices.Equal(got.Emitted, want.Emitted) || !slices.Equal(got.Ranked, want.Ranked) {
				differs = true
			}
		}
		if learns != differs {
			t.Errorf("%s: Learns is %v, and a request after another drafts differently: %v", spec, learns, differs)
		}
	}
}
