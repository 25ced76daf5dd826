package command

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"talf/internal/e2e/talftest"
	"talf/internal/golden"
	"talf/model/arch"
	"talf/model/modeltest"
	"talf/model/safetensors"
)

// TestPipelineOfEveryArchitecture trains a head for a model of each architecture
// and decodes with it: the text is that of plain decoding, whatever the method.
func TestPipelineOfEveryArchitecture(t *testing.T) {
	if testing.Short() {
		t.Skip("runs whole pipelines")
	}
	var text strings.Builder
	for range 12 {
		text.WriteString("The cat sat on the mat. The dog ran to the door.\n\nOne day a bird sang in the tree.\n\n")
	}
	for _, name := range []string{
		"qwen3", "gpt-neox-parallel", "mistral-swa", "qwen2",
		"gemma2", "gemma3_text", "phi3", "olmo2", "granite", "smollm3", "starcoder2", "cohere2", "qwen2_moe", "qwen3_next", "glm4_moe", "deepseek_v3", "gpt_oss",
	} {
		t.Run(name, func(t *testing.T) {
			dir, tmp := familyDir(t, name), t.TempDir()
			in := talftest.Write(t, filepath.Join(tmp, "text.txt"), text.String())
			labels, heads := filepath.Join(tmp, "labels"), filepath.Join(tmp, "head")
			talftest.OK(t, "", "preprocess", "--model", dir, "--data", in, "--out", labels, "--max-len", "40", "--threads", "2")
			talftest.OK(t, "", "train", "--model", dir, "--data", labels, "--out", heads, "--steps", "6", "--rows", "64", "--warmup", "1", "--eval-every", "0", "--threads", "2")

			// The head is Llama's layer with the target's sizes.
			var conf struct {
				Type    string `json:"model_type"`
				Hidden  int    `json:"hidden_size"`
				Heads   int    `json:"num_attention_heads"`
				HeadDim int    `json:"head_dim"`
			}
			found, err := filepath.Glob(filepath.Join(heads, "*", "config.json"))
			if err != nil || len(found) != 1 {
				t.Fatalf("checkpoints %v, %v", found, err)
			}
			b, err := os.ReadFile(found[0])
			if err == nil {
				err = json.Unmarshal(b, &conf)
			}
			if err != nil || conf.Type != "llama" {
				t.Fatalf("%s: %+v, %v", found[0], conf, err)
			}
			set, err := safetensors.OpenDir(filepath.Dir(found[0]))
			if err != nil {
				t.Fatal(err)
			}
			q, err := set.Get("layers.0.self_attn.q_proj.weight")
			if err != nil || q.Shape[0] != conf.Heads*conf.HeadDim || q.Shape[1] != conf.Hidden {
				t.Errorf("q_proj is %v of %+v, %v", q.Shape, conf, err)
			}
			if err := set.Close(); err != nil {
				t.Fatal(err)
			}

			args := []string{"generate", "--model", dir, "--prompt", "The cat", "--max-tokens", "24", "--ignore-eos"}
			want := talftest.OK(t, "", append(args, "--method", "ar")...)
			if want == "" {
				t.Fatal("plain decoding wrote nothing")
			}
			for _, method := range []string{"salf", "beam"} {
				if got := talftest.OK(t, "", append(args, "--head", heads, "--method", method)...); got != want {
					t.Errorf("%s: %q, want %q", method, got, want)
				}
			}
		})
	}
}

// familyDir returns a golden model, or a random one of a family with a golden's tokenizer.
func familyDir(t *testing.T, name string) string {
	t.Helper()
	if !slices.Contains(arch.Supported(), name) || name == "qwen2" || name == "qwen3" {
		return golden.File(t, "hf/"+name)
	}
	from := golden.File(t, "hf/qwen3")
	spec, err := arch.Load(from)
	if err != nil {
		t.Fatal(err)
	}
	c := modeltest.Of(name)
	c.Vocab = spec.Vocab
	dir := modeltest.Random(t, c, 1)
	for _, file := range []string{"tokenizer.json", "tokenizer_config.json"} {
		b, err := os.ReadFile(filepath.Join(from, file))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, file), b, 0o644)
		}
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
	}
	return dir
}

func TestInspectTellsWhatIsSpecialInAnArchitecture(t *testing.T) {
	for name, want := range map[string]string{
		"mistral-swa":       "window        16 positions in 3 of 3 layers\n",
		"gpt-neox-parallel": "positions     64, rope default of 4 elements a head, theta 10000\n",
		"qwen2":             "positions     512, rope default, theta 1e+06\n",
	} {
		if got := talftest.OK(t, "", "inspect", golden.File(t, "hf/"+name)); !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q in it", name, got, want)
		}
	}
}

func TestOnlyLlamasAreTrained(t *testing.T) {
	dir := golden.File(t, "hf/qwen2")
	r := talftest.Run(t, "", "train", "--kind", "lm", "--model", dir, "--data", talftest.TextFile(t, 2), "--out", t.TempDir(), "--steps", "1")
	r.Refuses(t, ExitFailure, filepath.Join(dir, "config.json"), `model_type is "qwen2"`, `want "llama" for a language model`)
	r = talftest.Run(t, "", "train", "--kind", "lm", "--model", dir, "--data", talftest.TextFile(t, 2), "--out", t.TempDir(), "--init", "linear")
	r.Refuses(t, ExitUsage, "--init linear is for heads")
}
