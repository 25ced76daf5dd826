package command

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"talf/infer/bench"
	"talf/infer/bench/heads"
	"talf/internal/e2e/talftest"
	"talf/model/arch"
	"talf/model/draftvocab"
	"talf/model/head"
	"talf/model/identity"
)

// eagle3Head writes a random model and an EAGLE-3 head of it as published ones are: it says nothing of
// its target, and predicts every second token.
func eagle3Head(t *testing.T) (target, dir string, outputs int) {
	t.Helper()
	c := talftest.TinyConfig()
	c.Layers = 7
	target = talftest.TinyModel(t, c, 1)
	spec, err := arch.Load(target)
	if err != nil {
		t.Fatal(err)
	}
	s := spec.Eagle3For(nil, spec.Vocab/2)
	var ids []int32
	for i := range s.DraftVocab {
		ids = append(ids, int32(2*i))
	}
	dir = filepath.Join(t.TempDir(), "head")
	if err := head.Write(t.Context(), dir, s, identity.Tie{}, append(head.Random(s, 1), draftvocab.Tensors(ids, spec.Vocab)...)...); err != nil {
		t.Fatal(err)
	}
	return target, dir, s.DraftVocab
}

// An EAGLE-3 head as it was published is inspected, decodes with every method as plain decoding does,
// and is written in every format and read again.
func TestAnEagle3HeadWorksInEveryCommand(t *testing.T) {
	base := t.TempDir()
	target, dir, outputs := eagle3Head(t)
	if said := talftest.OK(t, "", "inspect", dir); !strings.Contains(said, "EAGLE-3, in the layout of EAGLE, SpecForge, SGLang and vLLM\n") ||
		!strings.Contains(said, fmt.Sprintf("predicts      %d of these tokens", outputs)) || !strings.Contains(said, "hidden states 2, n/2 and n−3, of") {
		t.Errorf("inspect says\n%s", said)
	}
	heads := []string{dir}
	for _, f := range []string{"eagle", "sglang", "vllm", "speculators"} {
		out := filepath.Join(base, f)
		talftest.OK(t, "", "export", "--head", dir, "--format", f, "--model", target, "--out", out)
		heads = append(heads, out)
	}
	gguf := filepath.Join(base, "gguf")
	talftest.OK(t, "", "export", "--head", dir, "--format", "gguf", "--model", target, "--out", gguf)
	heads = append(heads, filepath.Join(gguf, "eagle3-F32.gguf"))
	if said := talftest.OK(t, "", "inspect", heads[5]); !strings.Contains(said, "EAGLE-3, in the layout of GGUF\n") ||
		!strings.Contains(said, fmt.Sprintf("predicts      %d of these tokens", outputs)) || !strings.Contains(said, "hidden states 2 3 4, of") {
		t.Errorf("inspect says\n%s", said)
	}
	imported := filepath.Join(base, "imported")
	talftest.OK(t, "", "import", "--head", heads[4], "--model", target, "--out", imported)
	heads = append(heads, imported)
	plain := talftest.OK(t, "", "generate", "--model", target, "--method", "ar", "--prompt", "x", "--max-tokens", "24")
	for i, h := range heads {
		methods := []string{"salf:paper,N=12,B=3"}
		if i == 0 {
			methods = []string{"linear", "static", "fixed", "beam:N=12,k=3,depth=3", "optimal:N=12,B=3", "salf:paper,N=12,B=3", "dynatree", "sequoia", "auto"}
		}
		for _, m := range methods {
			if said := talftest.OK(t, "", "generate", "--model", target, "--head", h, "--method", m, "--prompt", "x", "--max-tokens", "24"); said != plain {
				t.Errorf("%s with %s says\n%q, plain decoding\n%q", m, h, said, plain)
			}
		}
	}
	// Its logits are the same in every layout, and several prompts share passes.
	bits := func(head string) string {
		out := filepath.Join(t.TempDir(), "s.safetensors")
		talftest.OK(t, `{"ids":[1,5,9,33,2,7,40,11]}`, "score", "--model", target, "--head", head, "--out", out)
		x, err := openTensors(t, out).Get("0.head_logits")
		if err != nil {
			t.Fatal(err)
		}
		return string(x.Data)
	}
	want := bits(dir)
	for _, h := range heads[1:] {
		if bits(h) != want {
			t.Errorf("other logits of %s", h)
		}
	}
	prompts := talftest.PromptFile(t, 3)
	if said := talftest.OK(t, "", "bench", "--model", target, "--head", dir, "--prompts", prompts, "--max-tokens", "8", "--method", "salf"); !strings.Contains(said, "salf") {
		t.Errorf("bench says\n%s", said)
	}
	other := talftest.TinyConfig()
	other.Layers = 4
	small := talftest.TinyModel(t, other, 1)
	talftest.Run(t, "", "generate", "--model", small, "--head", dir, "--prompt", "x").Refuses(t, ExitFailure, "want at least 7")
	talftest.Run(t, "", "import", "--head", heads[4], "--model", small, "--out", filepath.Join(base, "x")).Refuses(t, ExitFailure, "want at least 7")
}

// A dialogue, and the answers of a server to clients that ask at the same time for other methods, are
// those without the head.
func TestAnEagle3HeadChatsAndServes(t *testing.T) {
	target, dir, _ := eagle3Head(t)
	chat := []string{"chat", "--model", target, "--max-tokens", "8", "--ignore-eos"}
	const turns = "Hello\nHow are you?\n/reset\nHello\n"
	want := talftest.OK(t, turns, chat...)
	r := talftest.Run(t, turns, append(chat, "--head", dir, "--method", "beam:N=12,k=3,depth=3", "--stats")...)
	if r.Code != ExitOK || r.Out != want {
		t.Errorf("exit %d: %q, without the head %q\n%s", r.Code, r.Out, want, r.Err)
	}
	if strings.Count(r.Err, "τ ") != 3 || strings.Count(r.Err, ", 0 of them cached") == 3 {
		t.Errorf("want three answers, of which one continues what is kept:\n%s", r.Err)
	}

	methods := []string{"beam:N=12,k=3,depth=3", "salf:N=12,B=3,th=0", "optimal:N=12,B=3", "static:binary-3"}
	args := []string{"--model", target, "--head", dir, "--budget", "sequence", "--max-running", fmt.Sprint(2 * len(methods))}
	for _, m := range methods {
		args = append(args, "--method", m)
	}
	url, _ := startServer(t, args...)
	var wg sync.WaitGroup
	for i := range 2 * len(methods) {
		method, temperature := methods[i%len(methods)], i/len(methods)
		prompt := fmt.Sprintf("Once upon %d", i%3)
		want := strings.TrimSuffix(talftest.OK(t, "", "generate", "--model", target, "--prompt", prompt, "--method", "ar", "--max-tokens", "24", "--ignore-eos",
			"--temperature", fmt.Sprint(temperature), "--seed", "7"), "\n")
		wg.Go(func() {
			status, body := ask(t, url+"/completions", fmt.Sprintf(
				`{"prompt":%q,"max_tokens":24,"ignore_eos":true,"temperature":%d,"seed":7,"talf":{"method":%q}}`, prompt, temperature, method))
			var got struct {
				Choices []struct {
					Text string
					Talf struct {
						Method  string
						Drafted int
					}
				}
			}
			if err := json.Unmarshal([]byte(body), &got); err != nil || status != 200 || len(got.Choices) != 1 {
				t.Errorf("%d, %v: %s", status, err, body)
				return
			}
			if c := got.Choices[0]; c.Text != want || c.Talf.Method != method || c.Talf.Drafted == 0 {
				t.Errorf("%s at %d: %+v, want %q of some drafted tokens", method, temperature, c, want)
			}
		})
	}
	wg.Wait()
}

// Each rank of the head has an accuracy, and τ with optimal trees is that of bench.
func TestAnEagle3HeadIsEvaluated(t *testing.T) {
	if testing.Short() {
		t.Skip("runs whole pipelines")
	}
	target, dir, _ := eagle3Head(t)
	common := []string{"--model", target, "--head", "e3=" + dir, "--prompts", "a=" + talftest.PromptFile(t, 3), "--max-tokens", "8", "--json"}
	var ranks, table heads.Report
	if err := json.Unmarshal([]byte(talftest.OK(t, "", append([]string{"eval", "fig2b", "--resamples", "100"}, common...)...)), &ranks); err != nil {
		t.Fatal(err)
	}
	if len(ranks.Ranks) != 5 || ranks.Ranks[0].Head != "e3" || ranks.Ranks[0].Accuracy.Value < 0 || ranks.Ranks[0].Accuracy.Value > 1 {
		t.Errorf("%+v", ranks.Ranks)
	}
	if err := json.Unmarshal([]byte(talftest.OK(t, "", append([]string{"eval", "table3", "--resamples", "100"}, common...)...)), &table); err != nil {
		t.Fatal(err)
	}
	var benched struct {
		Rows []bench.Row `json:"rows"`
	}
	if err := json.Unmarshal([]byte(talftest.OK(t, "", append([]string{"bench", "--method", "optimal:paper"}, common...)...)), &benched); err != nil {
		t.Fatal(err)
	}
	same := 0
	for _, e := range table.Methods {
		for _, row := range benched.Rows {
			if strings.HasPrefix(row.Spec, "optimal") && row.Source == e.Head && row.Pooled == e.Tau.Value {
				same++
			}
		}
	}
	if same != 1 {
		t.Errorf("τ of %d rows is bench's, want one: %+v, bench %+v", same, table.Methods, benched.Rows)
	}
}
