package draft_test

import (
	"slices"
	"testing"

	"talf/infer"
	"talf/infer/draft"
	"talf/infer/draft/drafttest"
	"talf/infer/verify"
)

// A drafter that has decoded another sequence drafts for the next one as a new drafter does,
// unless its method says that it keeps what it has learned.
func TestADrafterBeginsEverySequenceAsANewOne(t *testing.T) {
	for _, spec := range []string{
		"linear:K=3", "fixed:D=4", "dynatree:rows,D0=2,Dmax=4,tau=0.001,stop=0.001,deep=0.5,etaD=3,etah=0.2", "static:binary-3", "static:binary-2,draw=distinct", "sequoia:N=9", "beam:N=9,k=3,depth=2",
		"optimal:N=9", "salf:N=9,th=0.2", "pld:lo=1", "suffix", "suffix:use_tree_spec=off", "recycle:N=9", "isotropic:N=7,lo=1", "goose:N=7,lo=1,r=auto", "goose:N=5,lo=1,bypass=2,ema=0.9,alloc=linear", "lookahead:W=3,N=3,G=3",
	} {
		drafted := 0
		for seed := range uint64(24) {
			mk, m, err := draft.Open(spec, draft.Env{Temperature: float64(seed % 2), Vocab: 8})
			if err != nil {
				t.Fatal(err)
			}
			target := &drafttest.Target{Table: drafttest.Table{Seed: seed, Vocab: 8, Order: 1 + int(seed%3), Sharp: 1.5}, MaxLen: 200}
			// Chunks of prompts are as long as trees are large.
			e := &infer.Engine{Target: target, Config: infer.Config{PrefillChunk: 1 + int(seed%9), MaxNodes: 64}}
			decode := func(d infer.Drafter, prompt ...int32) infer.Stats {
				v, err := verify.New("", float64(seed%2))
				if err != nil {
					t.Fatal(err)
				}
				req := infer.Request{
					Prompt: prompt, MaxTokens: 30, Seed: seed, Drafter: d, Verifier: v, Processor: drafttest.Plain{Temperature: float64(seed % 2)},
				}
				if m.Source {
					req.Source = &drafttest.Source{Target: target, Agree: 0.7}
				}
				// A kept prefix has no rows to learn from.
				target.Forget()
				s, err := e.Generate(t.Context(), req)
				if err != nil {
					t.Fatal(err)
				}
				return *s.Stats()
			}
			used := mk.New()
			decode(used, 1, 2, 3, 1, 2, 3, 1, 2)
			prompt := []int32{5, 6, 7, 5, 6, 7, 4, 5, 6, 7, 4, 5, 6, 7, 5, 6}
			got, want := decode(used, prompt...), decode(mk.New(), prompt...)
			if got.Drafted != want.Drafted || !slices.Equal(got.Emitted, want.Emitted) || !slices.Equal(got.Ranked, want.Ranked) {
				t.Errorf("%s, seed %d: %d nodes drafted, rounds of %v; of a new drafter %d, %v", spec, seed, got.Drafted, got.Emitted, want.Drafted, want.Emitted)
			}
			drafted += want.Drafted
		}
		if drafted == 0 {
			t.Errorf("%s drafted nothing", spec)
		}
	}
}
