package infer_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"talf/compute/cpu"
	"talf/infer"
	"talf/infer/draft"
	"talf/infer/draft/drafttest"
	"talf/infer/source"
	"talf/internal/golden"
	"talf/model"
	"talf/model/head"
	"talf/model/safetensors"
)

// The engine's greedy output on a trained model equals transformers', plain and with
// draft trees from an untrained head. The smallest margin between the two best
// logits on the way is 2e-3, far above the difference between two f32 sums.
func TestGreedyContinuationsEqualTransformers(t *testing.T) {
	dir, file := filepath.Join("..", "internal", "demo", "target"), golden.File(t, "demo/golden.safetensors")
	set, err := safetensors.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer set.Close()
	dev, err := cpu.New(cpu.Default())
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	m, err := model.Load(dir, dev, model.Default())
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	spec := m.Spec().DraftFor(true)
	h, err := head.FromTensors(spec, m, head.Default(), head.Random(spec, 1)...)
	if err != nil {
		t.Fatal(err)
	}
	src := source.NewHead(h, 0)
	e := &infer.Engine{Target: infer.NewTarget(m, 0), Config: infer.Default()}
	prompts := 5
	if testing.Short() {
		prompts = 1
	}
	for i := range prompts {
		ints := func(name string) []int32 {
			x, err := set.Get(fmt.Sprintf("greedy%d_%s", i, name))
			if err != nil {
				t.Fatal(err)
			}
			ids, err := x.Int32s()
			if err != nil {
				t.Fatal(err)
			}
			return ids
		}
		prompt, want := ints("prompt"), ints("ids")
		for _, method := range []string{"ar", "salf:paper,N=16,B=4"} {
			if testing.Short() {
				want = want[:30]
			}
			d, _, err := draft.New(method)
			if err != nil {
				t.Fatal(err)
			}
			s, err := e.Generate(t.Context(), infer.Request{
				Prompt: prompt, MaxTokens: len(want), NoEOS: true, Drafter: d, Source: src,
				Verifier: verifier(t, 0), Processor: drafttest.Plain{},
			})
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(s.Tokens(), want) {
				t.Errorf("prompt %d, %s: leaves transformers' output at token %d of %d", i, method, infer.CommonPrefix(s.Tokens(), want), len(want))
			}
			t.Logf("prompt %d, %s: τ = %.2f", i, method, s.Stats().Tau())
		}
	}
}
