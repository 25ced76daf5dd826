package command

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"talf/internal/e2e/talftest"
)

// A method that draws its children decodes as talf generate does with its verifier, at the
// temperature of each request.
func TestServeVerifiers(t *testing.T) {
	dir := talftest.TinyModel(t, talftest.TinyConfig(), 1)
	ckpt := talftest.TinyHead(t, dir, 1)
	const drawn = "static:binary-3,draw=distinct"
	url, _ := startServer(t, "--model", dir, "--head", ckpt, "--budget", "sequence", // drafts whatever they cost
		"--method", drawn+"@traversal", "--method", drawn, "--method", "linear:K=4,draw=repeated@rrs")
	type talk struct {
		Choices []struct {
			Text string
			Talf struct {
				Method                    string
				Rounds, Drafted, Accepted int
			}
		}
	}
	texts := map[string]int{}
	for _, method := range []string{drawn + "@traversal", drawn, "linear:K=4,draw=repeated@rrs"} {
		spec, verifier, _ := strings.Cut(method, "@")
		for _, temperature := range []float64{0, 0.7, 1.3} {
			args := []string{
				"generate", "--model", dir, "--head", ckpt, "--prompt", "Once upon a", "--max-tokens", "40", "--ignore-eos",
				"--temperature", fmt.Sprint(temperature), "--seed", "5", "--method", spec,
			}
			if temperature > 0 && verifier != "" {
				args = append(args, "--verify", verifier)
			}
			want := strings.TrimSuffix(talftest.OK(t, "", args...), "\n")
			status, body := ask(t, url+"/completions", fmt.Sprintf(
				`{"prompt":"Once upon a","max_tokens":40,"ignore_eos":true,"temperature":%v,"seed":5,"talf":{"method":%q}}`, temperature, method))
			var got talk
			if err := json.Unmarshal([]byte(body), &got); err != nil || status != 200 || len(got.Choices) != 1 {
				t.Fatalf("%d, %v: %s", status, err, body)
			}
			c := got.Choices[0]
			if c.Text != want || c.Talf.Method != method || c.Talf.Drafted == 0 {
				t.Errorf("%s at %v: %q, want %q: %+v", method, temperature, c.Text, want, c.Talf)
			}
			if temperature > 0 {
				texts[c.Text]++
			}
		}
	}
	if len(texts) < 4 { // verifiers that draw otherwise than plain decoding write other texts
		t.Errorf("%d texts of 6: %v", len(texts), texts)
	}
	// A prediction is no draw of the draft model's. The verifier that does for every tree takes over.
	status, body := ask(t, url+"/completions", fmt.Sprintf(
		`{"prompt":"Once upon a","max_tokens":40,"ignore_eos":true,"temperature":0.7,"seed":5,"talf":{"method":%q},"prediction":{"type":"content","content":"Once upon a time"}}`, drawn+"@traversal"))
	plain := strings.TrimSuffix(talftest.OK(t, "", "generate", "--model", dir, "--method", "ar", "--prompt", "Once upon a", "--max-tokens", "40", "--ignore-eos", "--temperature", "0.7", "--seed", "5"), "\n")
	var got talk
	if err := json.Unmarshal([]byte(body), &got); err != nil || status != 200 || len(got.Choices) != 1 || got.Choices[0].Text != plain {
		t.Errorf("with a prediction: %d %s, want %q", status, body, plain)
	}
	for method, want := range map[string]string{
		drawn + "@block":       "block",
		"salf@traversal":       "traversal",
		drawn + "@greedy":      "greedy",
		drawn + "@traversal@x": "distinct@traversal",
		"salf@":                "verifier",
	} {
		talftest.Run(t, "", "serve", "--model", dir, "--head", ckpt, "--listen", "127.0.0.1:0", "--method", method).Refuses(t, 64, want)
	}
}
