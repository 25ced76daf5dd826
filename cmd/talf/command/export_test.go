package command

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"talf/internal/e2e/talftest"
)

// A head that was exported and imported decodes as before: the same logits bit for bit, and so
// the same τ.
func TestAnExportedHeadDecodesAsBefore(t *testing.T) {
	if testing.Short() {
		t.Skip("runs whole pipelines")
	}
	model := talftest.TinyModel(t, talftest.TinyConfig(), 1)
	head := talftest.TinyHead(t, model, 2)
	prompts := talftest.PromptFile(t, 3)
	line := `{"ids":[1,5,9,33,2,7,40,11]}`
	dir := t.TempDir()
	bits := func(head string) string {
		out := filepath.Join(t.TempDir(), "s.safetensors")
		talftest.OK(t, line, "score", "--model", model, "--head", head, "--out", out)
		x, err := openTensors(t, out).Get("0.head_logits")
		if err != nil {
			t.Fatal(err)
		}
		if x.Shape[0] != 7 {
			t.Fatalf("head logits of shape %v, want those of 7 tokens", x.Shape)
		}
		return string(x.Data)
	}
	tau := func(head string) float64 {
		var r struct {
			Rows []struct {
				Method string `json:"method"`
				Tau    struct {
					Mean float64 `json:"mean"`
				} `json:"tau"`
			} `json:"rows"`
		}
		if err := json.Unmarshal([]byte(talftest.OK(t, "", "bench", "--model", model, "--head", "h="+head, "--prompts", prompts, "--method", "beam:paper", "--max-tokens", "24", "--warmup", "0", "--json")), &r); err != nil {
			t.Fatal(err)
		}
		last := r.Rows[len(r.Rows)-1]
		if !strings.Contains(last.Method, "beam") || last.Tau.Mean < 1 {
			t.Fatalf("rows %+v", r.Rows)
		}
		return last.Tau.Mean
	}
	want, wantTau := bits(head), tau(head)
	for _, format := range []string{"eagle", "sglang", "vllm", "speculators"} {
		out, back, bin := filepath.Join(dir, format), filepath.Join(dir, format+"-back"), filepath.Join(dir, format+"-bin")
		said := talftest.OK(t, "", "export", "--head", head, "--format", format, "--bin", "--model", model, "--out", out)
		if !strings.Contains(said, "as "+format+": model.safetensors, pytorch_model.bin, README.md, config.json") {
			t.Errorf("export says %q", said)
		}
		talftest.OK(t, "", "import", "--head", out, "--model", model, "--out", back)
		if err := os.Remove(filepath.Join(out, "model.safetensors")); err != nil {
			t.Fatal(err)
		}
		talftest.OK(t, "", "import", "--head", out, "--model", model, "--out", bin)
		for _, h := range []string{back, bin} {
			if bits(h) != want {
				t.Errorf("%s: other logits than before the export", filepath.Base(h))
			}
		}
		if format == "sglang" {
			if got := tau(bin); got != wantTau {
				t.Errorf("τ %v, before the export %v", got, wantTau)
			}
			// Without an import, the file alone is not a head in talf's layout.
			talftest.Run(t, "", "generate", "--model", model, "--head", out, "--prompt", "x").Refuses(t, ExitFailure, "import it first")
			if said := talftest.OK(t, "", "inspect", out); !strings.Contains(said, "talf import takes it over") || !strings.Contains(said, "pytorch_model.bin") {
				t.Errorf("inspect says %q", said)
			}
		}
	}
}

// A head to give away has no embedding of its own, and drafts as before.
func TestAHeadIsGivenAwayWithoutItsEmbedding(t *testing.T) {
	if testing.Short() {
		t.Skip("trains a head")
	}
	w := talftest.NewWorld(t)
	dir := t.TempDir()
	labels, head, out := filepath.Join(dir, "labels"), filepath.Join(dir, "head"), filepath.Join(dir, "out")
	talftest.OK(t, "", w.Preprocess(labels)...)
	talftest.OK(t, "", "train", "--model", w.Model, "--data", labels, "--draft-vocab", "200", "--loss", "eagle", "--rows", "128", "--warmup", "1", "--eval-seqs", "4", "--held-out", "0.2", "--steps", "2", "--out", head)
	said := talftest.OK(t, "", "export", "--head", head, "--format", "talf", "--out", out)
	if !strings.Contains(said, "give the model to leave it out") {
		t.Errorf("without the model, export says %q", said)
	}
	whole := openTensors(t, filepath.Join(out, "model.safetensors"))
	out += "-small"
	talftest.OK(t, "", "export", "--head", head, "--format", "talf", "--model", w.Model, "--out", out)
	small := openTensors(t, filepath.Join(out, "model.safetensors"))
	if _, err := whole.Get("embed_tokens.weight"); err != nil {
		t.Error(err)
	}
	if _, err := small.Get("embed_tokens.weight"); err == nil {
		t.Error("the embedding is given away, too")
	}
	var bits []string
	for _, h := range []string{head, out} {
		scores := filepath.Join(t.TempDir(), "s.safetensors")
		talftest.OK(t, `{"ids":[1,5,9,33,2,7,40,11]}`, "score", "--model", w.Model, "--head", h, "--out", scores)
		x, err := openTensors(t, scores).Get("0.head_logits")
		if err != nil {
			t.Fatal(err)
		}
		bits = append(bits, string(x.Data))
	}
	if bits[0] != bits[1] {
		t.Error("other logits than before")
	}
}

func TestExportAndImportRefuseWhatCannotBe(t *testing.T) {
	model := talftest.TinyModel(t, talftest.TinyConfig(), 1)
	head := talftest.TinyHead(t, model, 2)
	other := talftest.TinyConfig()
	other.Hidden = 44
	wide := talftest.TinyModel(t, other, 1)
	another := talftest.TinyModel(t, talftest.TinyConfig(), 7)
	out := filepath.Join(t.TempDir(), "out")
	talftest.Run(t, "", "export", "--head", head, "--format", "onnx", "--out", out).Refuses(t, ExitUsage, "onnx", "sglang")
	talftest.Run(t, "", "export", "--head", head, "--format", "gguf", "--out", out).Refuses(t, ExitFailure, "llama.cpp would refuse it: a head of EAGLE-1")
	talftest.Run(t, "", "export", "--head", head, "--format", "gguf", "--bin", "--out", out).Refuses(t, ExitUsage, "pytorch_model.bin")
	talftest.Run(t, "", "export", "--head", head, "--format", "eagle").Refuses(t, ExitUsage, "--out")
	talftest.Run(t, "", "export", "--head", head, "--format", "eagle", "--dtype", "q8", "--out", out).Refuses(t, ExitUsage, "q8", "bf16")
	talftest.Run(t, "", "export", "--head", head, "--format", "eagle", "--out", out).Refuses(t, ExitFailure, "EAGLE's loader would refuse it", "embed_tokens.weight")
	talftest.Run(t, "", "export", "--head", head, "--format", "sglang", "--out", model).Refuses(t, ExitFailure, "not empty")
	talftest.Run(t, "", "export", "--head", model, "--format", "sglang", "--out", out).Refuses(t, ExitFailure, "not a draft head")
	talftest.Run(t, "", "export", "--head", head, "--format", "vllm", "--model", wide, "--out", out).Refuses(t, ExitFailure, "44")
	talftest.Run(t, "", "import", "--head", head, "--model", another, "--out", out).Refuses(t, ExitFailure, "--force")
	talftest.Run(t, "", "import", "--head", filepath.Join(head, "none"), "--out", out).Refuses(t, ExitFailure, "none")
	if said := talftest.OK(t, "", "export", "--head", head, "--format", "eagle", "--check"); !strings.Contains(said, "problem: EAGLE's loader would refuse it") {
		t.Errorf("--check says %q", said)
	}
	if _, err := os.Stat(out); err == nil {
		t.Error("something was written")
	}
	talftest.OK(t, "", "import", "--head", head, "--model", another, "--out", out, "--force")
}
