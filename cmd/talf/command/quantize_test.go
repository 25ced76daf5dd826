package command

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"talf/checkpoints"
	"talf/compute"
	"talf/compute/cpu"
	"talf/infer/bench/perplexity"
	"talf/internal/e2e/talftest"
	"talf/model"
	"talf/model/quantize"
	"talf/model/safetensors"
)

func TestQuantizedModelsDecodeAsIfQuantizedWhenLoaded(t *testing.T) {
	for _, bf16 := range []bool{false, true} {
		c := talftest.TinyConfig()
		c.BF16, c.AttnBias = bf16, true
		dir := talftest.TinyModel(t, c, 4)
		headDir := talftest.TinyHead(t, dir, 1)
		for _, dt := range []string{"q8", "bf16"} {
			out := filepath.Join(t.TempDir(), "out")
			var q quantize.Result
			if err := json.Unmarshal([]byte(talftest.OK(t, "", "quantize", "--model", dir, "--out", out, "--dtype", dt, "--json")), &q); err != nil {
				t.Fatal(err)
			}
			if converted := !bf16 || dt == "q8"; converted != (q.Matrices > 0) || q.Kept == 0 || converted && q.To >= q.From {
				t.Errorf("%+v", q)
			}
			as := compute.Q8
			if dt == "bf16" {
				as = compute.BF16
			}
			got, want := lastLogits(t, out, as), lastLogits(t, dir, as)
			for i := range want {
				if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
					t.Fatalf("%s: logit %d is %v, quantised when loaded %v", dt, i, got[i], want[i])
				}
			}
			// A head of the original belongs to the new model too, which is recognised as q8.
			args := []string{"generate", "--head", headDir, "--max-tokens", "12", "--prompt", "Once upon a time", "--json"}
			a := talftest.OK(t, "", append(args, "--model", out)...)
			b := talftest.OK(t, "", append(args, "--model", dir, "--dtype", map[string]string{"q8": "q8", "bf16": "f32"}[dt])...)
			if textOf(t, a) != textOf(t, b) && (dt == "q8" || bf16) {
				t.Errorf("%s: answers %q, quantised when loaded %q", dt, textOf(t, a), textOf(t, b))
			}
		}
	}
}

// A head can be trained for a model in q8, and its checkpoints have the embedding in floats.
func TestHeadsAreTrainedForQuantizedModels(t *testing.T) {
	w := talftest.NewWorld(t)
	original := w.Model
	w.Model = filepath.Join(t.TempDir(), "q8")
	talftest.OK(t, "", "quantize", "--model", original, "--out", w.Model, "--dtype", "q8")
	w.Labels = filepath.Join(t.TempDir(), "labels")
	talftest.OK(t, "", w.Preprocess(w.Labels)...)
	w.Head = filepath.Join(t.TempDir(), "head")
	talftest.OK(t, "", w.Train(w.Head)...)
	step, err := checkpoints.Find(w.Head)
	if err != nil {
		t.Fatal(err)
	}
	embed, err := openTensors(t, filepath.Join(step, "model.safetensors")).Get("embed_tokens.weight")
	if err != nil || embed.DType != "F32" {
		t.Errorf("the checkpoint's embedding is %q (%v)", embed.DType, err)
	}
	talftest.OK(t, "", w.Generate()...)
	// To be given away, it leaves out the embedding, which is the model's.
	out := filepath.Join(t.TempDir(), "out")
	talftest.OK(t, "", "export", "--head", w.Head, "--model", w.Model, "--format", "talf", "--out", out)
	if _, ok := openTensors(t, filepath.Join(out, "model.safetensors")).Tensor("embed_tokens.weight"); ok {
		t.Error("the export has the model's embedding")
	}
	w.Head = out
	talftest.OK(t, "", w.Generate()...)
}

func textOf(t *testing.T, line string) string {
	t.Helper()
	var v struct {
		Text string `json:"text"`
	}
	if err := json.Unmarshal([]byte(line), &v); err != nil || v.Text == "" {
		t.Fatalf("%s: %v", line, err)
	}
	return v.Text
}

func lastLogits(t *testing.T, dir string, as compute.DType) []float32 {
	t.Helper()
	dev, err := cpu.New(cpu.Default())
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	opt := model.Default()
	opt.DType = as
	m, err := model.Load(dir, dev, opt)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	s := m.NewSeq()
	o, err := s.Append(t.Context(), []int32{3, 9, 12, 5}, nil, model.WantLast)
	if err != nil {
		t.Fatal(err)
	}
	row := make([]float32, m.Spec().Vocab)
	o.ReadLogits(row, 0)
	return row
}

func TestQuantizeRefusals(t *testing.T) {
	dir := talftest.TinyModel(t, talftest.TinyConfig(), 4)
	out := filepath.Join(t.TempDir(), "out")
	talftest.OK(t, "", "quantize", "--model", dir, "--out", out)
	talftest.Run(t, "", "quantize", "--model", dir, "--out", out).Refuses(t, 1, "not empty")
	talftest.Run(t, "", "quantize", "--model", out, "--out", filepath.Join(t.TempDir(), "x")).Refuses(t, 1, "q8 already")
	talftest.Run(t, "", "quantize", "--model", dir, "--out", filepath.Join(t.TempDir(), "x"), "--dtype", "f32").Refuses(t, ExitUsage, "q8, q4 or bf16")
	talftest.Run(t, "", "quantize", "--model", dir, "--out", filepath.Join(t.TempDir(), "x"), "--dtype", "bf16dp").Refuses(t, ExitUsage, "q8, q4 or bf16, which is what bf16dp is stored as")
	talftest.Run(t, "", "generate", "--model", dir, "--prompt", "x", "--dtype", "bf16dp", "--device", "cuda:0").Refuses(t, ExitFailure, "bf16dp are for the CPU, cuda:0 has bf16")
	talftest.Run(t, "", "generate", "--model", dir, "--prompt", "x", "--dtype", "q5").Refuses(t, ExitUsage, "f32, bf16, bf16dp, q8, q4")
	talftest.Run(t, "", "generate", "--model", dir, "--prompt", "x", "--dtype", "q4").Refuses(t, ExitFailure, "Q4_0, Q4_K, Q6_K")
	talftest.Run(t, "", "generate", "--model", dir, "--prompt", "x", "--act-bits", "4").Refuses(t, ExitUsage, "8 or 16")
	talftest.Run(t, "", "train", "--model", out, "--data", dir, "--out", filepath.Join(t.TempDir(), "x")).Refuses(t, 1)

	// Damaged: scales that are missing or have another shape.
	path := filepath.Join(out, "model.safetensors")
	for name, c := range map[string]struct {
		change func(*safetensors.Tensor) bool // reports whether the tensor stays
		want   string
	}{
		"no scales":       {func(x *safetensors.Tensor) bool { return !strings.HasSuffix(x.Name, "q_proj.weight_scale") }, `q_proj.weight_scale`},
		"too few":         {cut, `F16 of shape`},
		"a quantised row": {func(x *safetensors.Tensor) bool { toI8(x); return true }, "I8"},
	} {
		set, err := safetensors.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		var all []safetensors.Tensor
		for _, n := range set.Names() {
			x, _ := set.Tensor(n)
			if c.change(&x) {
				all = append(all, x)
			}
		}
		bad := t.TempDir()
		for _, f := range []string{"config.json", "tokenizer.json", "tokenizer_config.json"} {
			b, err := os.ReadFile(filepath.Join(out, f))
			if err != nil {
				t.Fatal(err)
			}
			talftest.Write(t, filepath.Join(bad, f), string(b))
		}
		if err := safetensors.WriteFile(filepath.Join(bad, "model.safetensors"), set.Metadata(), all...); err != nil {
			t.Fatal(err)
		}
		set.Close()
		t.Run(name, func(t *testing.T) {
			talftest.Run(t, "", "generate", "--model", bad, "--prompt", "x").Refuses(t, 1, "model.safetensors", c.want)
		})
	}
}

func cut(x *safetensors.Tensor) bool {
	if strings.HasSuffix(x.Name, "k_proj.weight_scale") {
		x.Shape = []int{x.Shape[0] * x.Shape[1], 1}
	}
	return true
}

func toI8(x *safetensors.Tensor) {
	if x.Name == "model.norm.weight" {
		x.DType, x.Data = "I8", x.Data[:x.Len()]
	}
}

func TestPerplexityComparesTypes(t *testing.T) {
	dir := talftest.TinyModel(t, talftest.TinyConfig(), 4)
	var r perplexity.Report
	text := talftest.Write(t, filepath.Join(t.TempDir(), "t.txt"), strings.Repeat("Once upon a time there was a cat. ", 20))
	if err := json.Unmarshal([]byte(talftest.OK(t, "", "bench", "perplexity", "--model", dir, "--text", text, "--json")), &r); err != nil {
		t.Fatal(err)
	}
	if len(r.Perplexity) != 3 || r.Perplexity[0].Above != 0 || r.Perplexity[2].Model != "q8" || math.Abs(r.Perplexity[2].Above) > 0.05 {
		t.Errorf("%+v", r.Perplexity)
	}
	b, err := os.ReadFile(text)
	if err != nil {
		t.Fatal(err)
	}
	if a, b := talftest.OK(t, "", "bench", "perplexity", "--model", dir, "--text", text), talftest.OK(t, string(b), "bench", "perplexity", "--model", dir, "--text", "-"); a != b {
		t.Errorf("of a pipe:\n%s\nof a file:\n%s", b, a)
	}
	talftest.Run(t, "", "bench", "perplexity", "--model", dir, "--text", "-").Refuses(t, ExitFailure, "standard input: 0 tokens")
	talftest.Run(t, "", "bench", "perplexity", "--model", dir).Refuses(t, ExitUsage, "text")
}
