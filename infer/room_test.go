package infer_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"talf/infer"
	"talf/infer/source"
)

// A draft that is drawn at random takes no room from a sequence of a higher rank, which makes progress in every step.
func TestDrawnDraftsKeepToTheirRank(t *testing.T) {
	preempted := 0
	for trial := range 5 {
		rng := rand.New(rand.NewPCG(uint64(trial), 33))
		n := pooled(t, 0, 4)
		jobs := []*job{
			{max: 30, method: "beam:N=12,k=4,depth=3"},
			{max: 30, seed: 7, temperature: 1, method: "static:binary-3,draw=distinct", verify: "rrsw"},
		}
		for _, j := range jobs {
			for range 40 + rng.IntN(20) {
				j.prompt = append(j.prompt, rng.Int32N(int32(n.target.Spec().Vocab)))
			}
		}
		want := outcomes(t, pooled(t, 0, 0), jobs)
		e := &infer.Engine{Target: infer.NewTarget(n.target, 0), Config: infer.Config{PrefillChunk: 100, MaxNodes: 64}}
		seqs := openAll(t, e, jobs, source.NewHead(n.head, 0))
		for step := 0; !allDone(seqs[:1]); step++ {
			if err := e.Step(t.Context(), seqs); err != nil {
				t.Fatal(err)
			}
			if seqs[0].Stats().Preempted > 0 {
				t.Fatalf("trial %d: the first sequence is preempted in step %d", trial, step)
			}
		}
		for step := 0; !allDone(seqs); step++ {
			if err := e.Step(t.Context(), seqs); err != nil || step == 1000 {
				t.Fatal(err, step)
			}
		}
		for i, s := range seqs {
			if s.Err() != nil || !slices.Equal(s.Tokens(), want[i].Tokens()) {
				t.Fatalf("trial %d: %s: error %v, %v; want %v", trial, jobs[i].method, s.Err(), s.Tokens(), want[i].Tokens())
			}
			preempted += s.Stats().Preempted
			e.Close(s)
		}
	}
	if preempted == 0 {
		t.Error("nothing was preempted")
	}
}
