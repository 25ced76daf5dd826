package command

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"talf/infer/bench"
	"talf/internal/e2e/talftest"
	"talf/model/arch"
	"talf/model/medusa"
	"talf/model/safetensors"
)

// medusaHeads writes random Medusa heads for the model in dir, as they are published.
func medusaHeads(t *testing.T, dir string) string {
	t.Helper()
	spec, err := arch.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	s := medusa.Spec{Heads: 3, Layers: 1, Hidden: spec.Hidden, Vocab: spec.Vocab}
	rng := rand.New(rand.NewPCG(1, 1))
	var ts []safetensors.Tensor
	add := func(name string, shape ...int) {
		n := 1
		for _, x := range shape {
			n *= x
		}
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(rng.NormFloat64()) / 4
		}
		ts = append(ts, safetensors.F32(name, x, shape...))
	}
	for h := range s.Heads {
		add(s.Weight(h, 0), s.Hidden, s.Hidden)
		add(s.Bias(h, 0), s.Hidden)
		add(s.LMHead(h), s.Vocab, s.Hidden)
	}
	out := t.TempDir()
	if err := safetensors.WriteFile(filepath.Join(out, "medusa_lm_head.safetensors"), nil, ts...); err != nil {
		t.Fatal(err)
	}
	talftest.Write(t, filepath.Join(out, "config.json"), `{"medusa_num_heads":2,"medusa_num_layers":1,"base_model_name_or_path":"lmsys/vicuna-7b-v1.3"}`)
	return out
}

// Medusa heads are inspected, and draft in every command that decodes; what only a head of EAGLE's kind
// can do is refused in words.
func TestMedusaHeadsDraft(t *testing.T) {
	dir := talftest.TinyModel(t, talftest.TinyConfig(), 1)
	heads := medusaHeads(t, dir)
	if said := talftest.OK(t, "", "inspect", heads); !strings.Contains(said, "Medusa: 3 heads") || !strings.Contains(said, "vicuna-7b-v1.3") ||
		!strings.Contains(said, "medusa_num_heads is 2, but the weights have 3") {
		t.Errorf("inspect says\n%s", said)
	}
	common := []string{"--model", dir, "--prompt", "Once upon", "--max-tokens", "20", "--ignore-eos"}
	plain := talftest.OK(t, "", append([]string{"generate"}, common...)...)
	for _, method := range []string{"static:medusa", "beam:N=12,k=3,depth=3", "salf"} {
		if got := talftest.OK(t, "", append([]string{"generate", "--head", heads, "--method", method}, common...)...); got != plain {
			t.Errorf("%s answers %q, the model %q", method, got, plain)
		}
	}
	const turns = "Hello\nAnd then?\n"
	chat := []string{"chat", "--model", dir, "--max-tokens", "6", "--ignore-eos"}
	if got, want := talftest.OK(t, turns, append(chat, "--head", heads, "--method", "static:medusa")...), talftest.OK(t, turns, chat...); got != want {
		t.Errorf("chat answers %q, want %q", got, want)
	}
	prompts := talftest.PromptFile(t, 3)
	log := filepath.Join(t.TempDir(), "log.jsonl")
	var r struct {
		Rows []bench.Row `json:"rows"`
	}
	for range 2 { // the second time from the log
		args := []string{"bench", "--model", dir, "--head", "m=" + heads, "--prompts", prompts, "--method", "static:medusa", "--max-tokens", "8", "--warmup", "0", "--log", log, "--json"}
		if err := json.Unmarshal([]byte(talftest.OK(t, "", args...)), &r); err != nil {
			t.Fatal(err)
		}
		if last := r.Rows[len(r.Rows)-1]; last.Source != "m" || !(last.Pooled >= 1) {
			t.Errorf("bench: %+v", r.Rows)
		}
	}
	url, _ := startServer(t, "--model", dir, "--head", heads, "--method", "static:medusa", "--method", "salf:th=0.1,N=12", "--budget", "sequence")
	for _, method := range []string{"static:medusa", "salf:th=0.1,N=12"} { // of a given size: the clock decides on others
		status, body := ask(t, url+"/completions", fmt.Sprintf(`{"prompt":"Once upon","max_tokens":20,"ignore_eos":true,"temperature":0,"talf":{"method":%q}}`, method))
		var got struct {
			Choices []struct {
				Text string
				Talf struct{ Drafted int }
			}
		}
		if err := json.Unmarshal([]byte(body), &got); err != nil || status != 200 || got.Choices[0].Text+"\n" != plain || got.Choices[0].Talf.Drafted == 0 {
			t.Errorf("%s: %d, %v: %s, want %q", method, status, err, body, plain)
		}
	}
	out := filepath.Join(t.TempDir(), "out")
	for want, args := range map[string][]string{
		"want a head of EAGLE's kind":          {"score", "--model", dir, "--head", heads, "--out", out},
		"only draft: want":                     {"export", "--head", heads, "--format", "vllm", "--out", out},
		"which only draft":                     {"import", "--head", heads, "--out", out},
		"do not read the tokens of a draft":    {"eval", "fig2b", "--model", dir, "--head", "m=" + heads, "--prompts", prompts},
		"hidden size of 44, but the target's ": {"generate", "--model", dir, "--head", medusaHeads(t, wider(t)), "--method", "salf", "--prompt", "x"},
	} {
		talftest.Run(t, "{\"ids\":[1,2]}", args...).Refuses(t, ExitFailure, want)
	}
	if _, err := os.Stat(out); err == nil {
		t.Error("something was written")
	}
}

// wider is a model of another hidden size than others.
func wider(t *testing.T) string {
	c := talftest.TinyConfig()
	c.Hidden = 44
	return talftest.TinyModel(t, c, 1)
}
