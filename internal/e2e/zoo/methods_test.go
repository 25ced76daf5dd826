package zoo

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"talf/internal/e2e/talftest"
	"talf/internal/zoo"
)

// Methods that need no draft model, and methods that ask one.
var (
	alone = []string{"pld", "suffix", "goose:N=16", "recycle:rows", "isotropic", "lookahead", "auto"}
	asked = []string{"salf", "static:chain-3", "static:binary-3", "beam:N=16,depth=4", "optimal:N=16", "dynatree:rows", "linear:K=4", "sequoia:N=16", "auto"}
)

// Greedy texts are those of plain decoding whatever the method.
func TestMethodsWriteWhatPlainDecodingWrites(t *testing.T) {
	var in inputs
	read(t, "zoo/inputs.json", &in)
	prompts, methods := 2, []string{"pld", "goose:N=16", "recycle:rows", "auto"}
	if *full {
		prompts, methods = len(in.Prompts), alone
	}
	var texts []any
	for _, p := range in.Prompts {
		texts = append(texts, map[string]string{"text": p})
	}
	for _, z := range chosen(t) {
		t.Run(z.Name, func(t *testing.T) {
			path, file := zoo.Path(t, z.Name), lines(t, texts...)
			bench(t, path, file, prompts, *tokens, methods)
			if z.Name == zoo.Qwen15 {
				bench(t, path, file, prompts, *tokens, asked, "--draft", zoo.Path(t, zoo.Qwen05))
			}
		})
	}
}

// The head in lab/heads, which is for the real file, leaves texts as they are, and is right often enough to be of use.
func TestTheHeadOfSmolLM2(t *testing.T) {
	var in inputs
	read(t, "zoo/inputs.json", &in)
	prompts := 3
	if *full {
		prompts = len(in.Prompts)
	}
	var texts []any
	for _, p := range in.Prompts {
		texts = append(texts, map[string]any{"turns": []string{p}})
	}
	head := filepath.Join("..", "..", "..", "lab", "heads", "smollm2-135m")
	tau := bench(t, zoo.Path(t, zoo.SmolLM2), lines(t, texts...), prompts, *tokens, []string{"static:chain-3", "salf", "auto"}, "--head", "h="+head)
	if got := tau["static:chain-3 h"]; got < 1.2 {
		t.Errorf("τ of a chain of three is %.2f, want at least 1.2: the head knows little of this model", got)
	}
}

// bench decodes the first prompts of a file by plain decoding and by methods, and holds all texts to plain decoding's.
// It returns the mean τ of each method.
func bench(t *testing.T, path, file string, prompts, tokens int, methods []string, flags ...string) map[string]float64 {
	t.Helper()
	args := []string{"bench", "--model", path, "--prompts", file, "--limit", fmt.Sprint(prompts), "--warmup", "0", "--max-tokens", fmt.Sprint(tokens), "--json"}
	args = append(args, flags...)
	for _, m := range methods {
		args = append(args, "--method", m)
	}
	r := talftest.Finish(t, talftest.CommandWithin(t, time.Hour, args...))
	if r.Code != 0 {
		t.Fatalf("exit %d\n%s", r.Code, r.Err)
	}
	var report struct {
		Rows []struct {
			Method   string
			Equal    int `json:"equal_outputs"`
			Compared int `json:"compared_outputs"`
			Tau      struct{ Mean float64 }
			Speedup  struct{ Value float64 } `json:"speedup_decoding"`
		}
	}
	if err := json.Unmarshal([]byte(r.Out), &report); err != nil {
		t.Fatal(err)
	}
	if len(report.Rows) < len(methods)+1 {
		t.Errorf("%d rows of results, want those of plain decoding and %q", len(report.Rows), methods)
	}
	tau := map[string]float64{}
	for _, row := range report.Rows {
		tau[row.Method] = row.Tau.Mean
		t.Logf("%s %v: %d of %d texts equal plain decoding's, τ %.2f, speed %.2f", row.Method, flags, row.Equal, row.Compared, row.Tau.Mean, row.Speedup.Value)
		if row.Equal != prompts || row.Compared != prompts {
			t.Errorf("%s: %d of %d texts equal plain decoding's, want %d", row.Method, row.Equal, row.Compared, prompts)
		}
	}
	return tau
}
