package bench

import (
	"testing"

	"talf/infer"
	"talf/infer/verify"
	"talf/model/sample"
)

// CountPaths decodes n tokens with d and returns what is counted of its labels.
func CountPaths(t *testing.T, target infer.Target, d infer.Drafter, prompt []int32, n int) *Paths {
	t.Helper()
	w := watch(new(verify.Greedy), d)
	proc, err := infer.NewSampling(sample.Greedy())
	if err != nil {
		t.Fatal(err)
	}
	e := &infer.Engine{Target: target, Config: infer.Default()}
	_, err = e.Generate(t.Context(), infer.Request{
		Prompt: prompt, MaxTokens: n, NoEOS: true, Drafter: d, Verifier: w, Processor: proc, Emit: w.emit,
	})
	if err != nil {
		t.Fatal(err)
	}
	return w.paths
}
