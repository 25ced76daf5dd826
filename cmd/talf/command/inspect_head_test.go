package command

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"talf/checkpoints"
	"talf/infer/bench/diagnose"
	"talf/internal/demo"
	"talf/internal/e2e/talftest"
	"talf/model/safetensors"
)

// A head of the demo's model is planted with each of the causes, which are found, and others are not.
func TestWhyAHeadIsSeldomRight(t *testing.T) {
	if testing.Short() {
		t.Skip("trains a head")
	}
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	if err := demo.Unpack(in("model")); err != nil {
		t.Fatal(err)
	}
	if err := demo.WriteJSONL(in("text.jsonl"), demo.Corpus(5, 60)); err != nil {
		t.Fatal(err)
	}
	var prompts strings.Builder
	for _, p := range demo.Prompts(9, 12) {
		b, err := json.Marshal(map[string]string{"prompt": p})
		if err != nil {
			t.Fatal(err)
		}
		prompts.Write(append(b, '\n'))
	}
	talftest.Write(t, in("prompts.jsonl"), prompts.String())
	talftest.OK(t, "", "preprocess", in("model"), "--data", in("text.jsonl"), "--out", in("labels"), "--features", "none", "--k", "1", "--depth", "1", "--max-len", "128")
	train := func(out string, more ...string) string {
		talftest.OK(t, "", append([]string{
			"train", in("model"), "--data", in("labels"), "--network", "eagle3:taps=3+6+10", "--loss", "eagle3:steps=1", "--steps", "60",
			"--rows", "512", "--lr", "5e-3", "--warmup", "5", "--held-out", "0.1", "--eval-every", "30", "--out", in(out),
		}, more...)...)
		at, err := checkpoints.Find(filepath.Join(in(out), "best"))
		if err != nil {
			t.Fatal(err)
		}
		return at
	}
	head := train("head")
	// copied is the head as other programs have it, changed so.
	copied := func(name string, change func(dir string)) string {
		to := in(name)
		if err := os.Mkdir(to, 0o755); err != nil {
			t.Fatal(err)
		}
		for _, f := range []string{"config.json", "model.safetensors"} {
			b, err := os.ReadFile(filepath.Join(head, f))
			if err != nil {
				t.Fatal(err)
			}
			talftest.Write(t, filepath.Join(to, f), string(b))
		}
		change(to)
		return to
	}
	causes := func(head string, more ...string) (found []string) {
		t.Helper()
		var d diagnose.Diagnosis
		args := append([]string{"inspect", "head", head, "--max-tokens", "48", "--json"}, more...)
		if !slices.Contains(more, "--prompts") {
			args = append(args, "--prompts", in("prompts.jsonl"))
		}
		if !slices.Contains(more, "--model") {
			args = append(args, "--model", in("model"))
		}
		if err := json.Unmarshal([]byte(talftest.OK(t, "", args...)), &d); err != nil {
			t.Fatal(err)
		}
		t.Logf("%s %q: %+v", head, more, d)
		for _, f := range d.Findings {
			found = append(found, f.Cause)
		}
		return found
	}
	if got := causes(head); got != nil {
		t.Errorf("a sound head: %q", got)
	}
	taps := copied("taps", func(dir string) {
		talftest.EditJSON(t, filepath.Join(dir, "config.json"), "eagle_config", map[string]any{"use_aux_hidden_state": true, "eagle_aux_hidden_state_layer_ids": []int{2, 5, 9}})
	})
	if got := causes(taps); !slices.Equal(got, []string{diagnose.Taps}) {
		t.Errorf("taps off by one: %q", got)
	}
	another := in("another")
	if err := os.CopyFS(another, os.DirFS(in("model"))); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(another, "model.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)-2] ^= 1 // of a weight
	talftest.Write(t, filepath.Join(another, "model.safetensors"), string(b))
	if got := causes(head, "--model", another); !slices.Equal(got, []string{diagnose.Weights}) {
		t.Errorf("another model: %q", got)
	}
	template := filepath.Join(t.TempDir(), "template.jinja")
	talftest.Write(t, template, talftest.TurnTemplate)
	if got := causes(head, "--chat-template", template); !slices.Contains(got, diagnose.Template) {
		t.Errorf("texts in another form: %q", got)
	}
	talftest.Write(t, in("other.jsonl"), `{"prompt": "17 (+) 4 = [[q;"}
{"prompt": "xqz? kk; 99 9"}
{"prompt": "AAAA 1. 2. 3."}
{"prompt": "]]]> $$ %"}
{"prompt": "Zw 0 Zw 0 Zw"}
{"prompt": "func main() {"}
`)
	if got := causes(head, "--prompts", in("other.jsonl"), "--limit", "6"); !slices.Equal(got, []string{diagnose.Domain}) {
		t.Errorf("texts of another kind: %q", got)
	}
	if got := causes(train("few", "--draft-vocab", "40")); !slices.Contains(got, diagnose.Vocabulary) {
		t.Errorf("a small vocabulary: %q", got)
	}
	// An element of each block of a row that is as large in every row moves all logits alike, but what 8 bits keep of the
	// block's others is little.
	rounded := copied("rounded", func(dir string) {
		set, err := safetensors.OpenDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		var all []safetensors.Tensor
		for _, name := range set.Names() {
			x, err := set.Get(name)
			if err != nil {
				t.Fatal(err)
			}
			if name == "lm_head.weight" {
				w, err := x.Float32s()
				if err != nil {
					t.Fatal(err)
				}
				for i := range w {
					if i%32 == 0 {
						w[i] += 300
					}
				}
				x = safetensors.F32(name, w, x.Shape...)
			}
			all = append(all, x)
		}
		meta := set.Metadata()
		if err := safetensors.WriteFile(filepath.Join(dir, "new"), meta, all...); err != nil {
			t.Fatal(err)
		}
		if err := set.Close(); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(dir, "new"), filepath.Join(dir, "model.safetensors")); err != nil {
			t.Fatal(err)
		}
	})
	if got := causes(rounded, "--dtype", "q8"); !slices.Equal(got, []string{diagnose.Type}) {
		t.Errorf("rounded weights: %q", got)
	}
}
