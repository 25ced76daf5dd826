package gsm10m_test

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"talf/cmd/talf/command"
	"talf/compute/cpu"
	"talf/infer"
	"talf/infer/draft"
	"talf/infer/draft/drafttest"
	"talf/infer/source"
	"talf/infer/verify"
	"talf/internal/demo"
	"talf/internal/golden"
	"talf/lab/gsm10m"
	"talf/model"
	"talf/model/head"
	"talf/model/safetensors"
)

// The target has the logits of transformers, and decodes the same texts, plain and with draft trees
// from an untrained head. The smallest margin between the two best logits on the way is 2e-3, far
// above the difference between two f32 sums.
func TestTheTargetAgreesWithTransformers(t *testing.T) {
	dir := t.TempDir()
	if err := gsm10m.Unpack(dir); err != nil {
		t.Fatal(err)
	}
	set, err := safetensors.Open(golden.File(t, "gsm10m/golden.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	defer set.Close()
	ints := func(name string) []int32 {
		x, err := set.Get(name)
		if err != nil {
			t.Fatal(err)
		}
		ids, err := x.Int32s()
		if err != nil {
			t.Fatal(err)
		}
		return ids
	}
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

	x, err := set.Get("logits")
	if err != nil {
		t.Fatal(err)
	}
	want, err := x.Float32s()
	if err != nil {
		t.Fatal(err)
	}
	seq := m.NewSeq()
	o, err := seq.Append(t.Context(), ints("input_ids"), nil, model.WantAll)
	if err != nil {
		t.Fatal(err)
	}
	got := make([]float32, len(want))
	o.ReadLogits(got, 0)
	seq.Close()
	for i := range want {
		// Five times the distance between transformers in float32 and in float64 at least.
		if d := math.Abs(float64(got[i] - want[i])); !(d <= 2e-4) {
			t.Fatalf("logit %d is %v, want %v", i, got[i], want[i])
		}
	}

	spec := m.Spec().DraftFor(true)
	h, err := head.FromTensors(spec, m, head.Default(), head.Random(spec, 1)...)
	if err != nil {
		t.Fatal(err)
	}
	src := source.NewHead(h, 0)
	e := &infer.Engine{Target: infer.NewTarget(m, 0), Config: infer.Default()}
	greedy, err := verify.New("", 0)
	if err != nil {
		t.Fatal(err)
	}
	prompts := 5
	if testing.Short() {
		prompts = 1
	}
	for i := range prompts {
		prompt, want := ints(fmt.Sprintf("greedy%d_prompt", i)), ints(fmt.Sprintf("greedy%d_ids", i))
		if testing.Short() {
			want = want[:30]
		}
		for _, method := range []string{"ar", "salf:paper,N=16,B=4"} {
			d, _, err := draft.New(method)
			if err != nil {
				t.Fatal(err)
			}
			s, err := e.Generate(t.Context(), infer.Request{
				Prompt: prompt, MaxTokens: len(want), NoEOS: true, Drafter: d, Source: src, Verifier: greedy, Processor: drafttest.Plain{},
			})
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(s.Tokens(), want) {
				t.Errorf("prompt %d, %s: leaves transformers' output at token %d of %d", i, method, infer.CommonPrefix(s.Tokens(), want), len(want))
			}
		}
	}
}

// A draft model of another family reads and writes the target's text through the bytes of its tokens.
func TestADraftModelOfAnotherVocabulary(t *testing.T) {
	target, small := filepath.Join(t.TempDir(), "target"), filepath.Join(t.TempDir(), "small")
	if err := gsm10m.Unpack(target); err != nil {
		t.Fatal(err)
	}
	if err := demo.Unpack(small); err != nil {
		t.Fatal(err)
	}
	generate := func(more ...string) (out, said string) {
		t.Helper()
		var stdout, stderr bytes.Buffer
		args := append([]string{
			"generate", "--model", target,
			"--prompt", "Question: Tom has 3 apples and buys 4 more. How many apples does Tom have?\nAnswer:", "--max-tokens", "30",
		}, more...)
		if code := command.Run(args, io.MultiReader(), &stdout, &stderr); code != command.ExitOK {
			t.Fatalf("exit %d: %s", code, stderr.String())
		}
		return stdout.String(), stderr.String()
	}
	want, _ := generate("--method", "ar")
	if got, said := generate("--draft", small, "--method", "salf:paper", "--stats"); got != want || strings.Contains(said, "τ 1.00") {
		t.Errorf("%q, want %q; stderr %q", got, want, said)
	}
}
