package command

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"talf/internal/e2e/talftest"
	"talf/model/safetensors"
)

// A small language model drafts as a head does: the text stays the same.
func TestALanguageModelMayDraft(t *testing.T) {
	if testing.Short() {
		t.Skip("runs whole pipelines")
	}
	dir := talftest.TinyModel(t, talftest.TinyConfig(), 1)
	c := talftest.TinyConfig()
	c.Hidden, c.Layers, c.FFN, c.MaxPos = 24, 1, 40, 64 // and forgets the beginning of long texts
	c.HeadDim = 6
	lm := talftest.TinyModel(t, c, 5)
	for _, sampling := range [][]string{nil, {"--temperature", "0.9", "--seed", "5"}} {
		args := append([]string{"generate", "--model", dir, "--prompt", "Once upon a time", "--max-tokens", "90", "--ignore-eos"}, sampling...)
		want := talftest.OK(t, "", append(args, "--method", "ar")...)
		for _, method := range []string{"salf:th=auto", "dynatree", "sequoia:N=20", "auto"} {
			if got := talftest.OK(t, "", append(args, "--draft", lm, "--method", method, "--threads", "1")...); got != want {
				t.Errorf("%v, %s:\n%q, want\n%q", sampling, method, got, want)
			}
		}
	}
	// A model that drafts for itself is always right.
	r := talftest.Run(t, "", "generate", "--model", dir, "--draft", dir, "--prompt", "Once", "--max-tokens", "50", "--ignore-eos", "--stats", "--method", "beam:N=5,k=1,depth=3")
	if r.Code != ExitOK || !strings.Contains(r.Err, "τ 5.00: 50 tokens in 10 passes") {
		t.Errorf("exit %d, stderr:\n%s", r.Code, r.Err)
	}
}

// Draft models that cannot draft are refused before anything is decoded, with the reason and
// alternatives.
func TestDraftsThatMakeNoSenseAreRefused(t *testing.T) {
	dir := talftest.TinyModel(t, talftest.TinyConfig(), 1)
	ckpt := talftest.TinyHead(t, dir, 1)
	empty := t.TempDir()
	for _, c := range []struct {
		code int
		want string
		args []string
	}{
		{ExitUsage, "--head and --draft exclude each other", []string{"--head", ckpt, "--draft", dir}},
		{ExitUsage, "--method salf asks a draft model: give --head CKPT or --draft DIR, or a method without one: auto, suffix, ", []string{"--method", "salf"}},
		{ExitUsage, "--method pld asks no draft model: leave --head and --draft out, or choose a method that asks one: auto, salf, ", []string{"--method", "pld", "--head", ckpt}},
		{ExitFailure, "give it as --head", []string{"--draft", ckpt}},
		{ExitFailure, "give it as --draft", []string{"--head", dir}},
		{ExitFailure, "draft: " + empty + " has no config.json", []string{"--draft", empty}},
		{ExitFailure, "does not exist: want a model (directory or .gguf)", []string{"--draft", filepath.Join(empty, "none")}},
	} {
		r := talftest.Run(t, "", append([]string{"generate", "--model", dir, "--prompt", "Once"}, c.args...)...)
		if r.Code != c.code || !strings.Contains(r.Err, c.want) || r.Out != "" {
			t.Errorf("%v: exit %d, stderr %q, want %d and %q", c.args, r.Code, r.Err, c.code, c.want)
		}
	}
}

// A draft model of another family reads and writes the target's text through the bytes of its
// tokens.
func TestADraftModelOfAnotherVocabulary(t *testing.T) {
	demo := filepath.Join("..", "..", "..", "internal", "demo", "target")
	args := []string{"generate", "--model", demo, "--prompt", "Once upon a time", "--max-tokens", "50", "--ignore-eos"}
	want := talftest.OK(t, "", append(args, "--method", "ar")...)
	r := talftest.Run(t, "", append(args, "--draft", renumbered(t, demo), "--method", "beam:N=5,k=1,depth=3", "--stats")...)
	// The same network with its tokens in another order is always right.
	if r.Code != ExitOK || r.Out != want || !strings.Contains(r.Err, "τ 5.00: 50 tokens in 10 passes") {
		t.Errorf("exit %d, %q, want %q; stderr %q", r.Code, r.Out, want, r.Err)
	}
}

// renumbered copies a model with tied embeddings so that every token except the three special
// ones has another id.
func renumbered(t *testing.T, dir string) string {
	t.Helper()
	out := t.TempDir()
	for _, name := range []string{"config.json", "tokenizer_config.json"} {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(out, name), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	const special = 3
	set, err := safetensors.OpenDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer set.Close()
	var tensors []safetensors.Tensor
	vocab := 0
	move := func(id int) int {
		if id < special {
			return id
		}
		return special + (id-special+400)%(vocab-special)
	}
	for _, name := range set.Names() {
		x, err := set.Get(name)
		if err != nil {
			t.Fatal(err)
		}
		if name == "model.embed_tokens.weight" {
			vocab = x.Shape[0]
			row := len(x.Data) / vocab
			rows := make([]byte, len(x.Data))
			for id := range vocab {
				copy(rows[move(id)*row:][:row], x.Data[id*row:])
			}
			x.Data = rows
		}
		tensors = append(tensors, x)
	}
	if err := safetensors.WriteFile(filepath.Join(out, "model.safetensors"), nil, tensors...); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(dir, "tokenizer.json"))
	if err != nil {
		t.Fatal(err)
	}
	var file map[string]any
	if err := json.Unmarshal(b, &file); err != nil {
		t.Fatal(err)
	}
	ids := file["model"].(map[string]any)["vocab"].(map[string]any)
	for s, id := range ids {
		ids[s] = move(int(id.(float64)))
	}
	if b, err = json.Marshal(file); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(out, "tokenizer.json"), b, 0o644); err != nil {
		t.Fatal(err)
	}
	return out
}
