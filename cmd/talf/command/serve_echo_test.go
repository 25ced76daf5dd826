package command

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"talf/internal/e2e/talftest"
	"talf/model/safetensors"
	"talf/model/sample"
)

// An echo is what completions answer with "echo" and "logprobs".
type echo struct {
	Choices []struct {
		Text     string
		Finish   string `json:"finish_reason"`
		Logprobs struct {
			Tokens  []string
			Values  []*float64           `json:"token_logprobs"`
			Top     []map[string]float64 `json:"top_logprobs"`
			Offsets []int                `json:"text_offset"`
		}
	}
	Usage struct {
		Prompt     int `json:"prompt_tokens"`
		Completion int `json:"completion_tokens"`
	}
}

// The log probabilities of a prompt are those of talf score, whatever method drafts the answer and
// whether the prompt was asked before.
func TestServeScoresPrompts(t *testing.T) {
	dir := talftest.TinyModel(t, talftest.TinyConfig(), 1)
	ckpt := talftest.TinyHead(t, dir, 1)
	url, _ := startServer(t, "--model", dir, "--head", ckpt, "--method", "auto", "--method", "salf:paper,N=12")
	prompt := strings.Repeat("Once upon a time there was a cat. ", 5)
	_, body := ask(t, strings.TrimSuffix(url, "/v1")+"/tokenize", fmt.Sprintf(`{"prompt":%q}`, prompt))
	var ids struct{ Tokens []int32 }
	if err := json.Unmarshal([]byte(body), &ids); err != nil || len(ids.Tokens) < 20 {
		t.Fatalf("%v: %s", err, body)
	}
	out := filepath.Join(t.TempDir(), "scores")
	line, err := json.Marshal(map[string]any{"ids": ids.Tokens})
	if err != nil {
		t.Fatal(err)
	}
	talftest.OK(t, string(line), "score", "--model", dir, "--out", out)
	set, err := safetensors.Open(out)
	if err != nil {
		t.Fatal(err)
	}
	defer set.Close()
	logits, err := set.Get("0.logits")
	if err != nil {
		t.Fatal(err)
	}
	rows, err := logits.Float32s()
	if err != nil {
		t.Fatal(err)
	}
	want := []*float64{nil}
	for i, id := range ids.Tokens[1:] {
		vocab := logits.Shape[1]
		own, _ := sample.LogProbs(nil, rows[i*vocab:(i+1)*vocab], id, 0)
		want = append(want, &own.LogProb)
	}
	var last echo
	for _, fields := range []string{
		`"max_tokens":0`, `"max_tokens":0`, `"max_tokens":7,"ignore_eos":true`, `"max_tokens":7,"ignore_eos":true,"talf":{"method":"salf:paper,N=12"}`,
		`"max_tokens":7,"ignore_eos":true,"talf":{"off":true}`, `"max_tokens":1,"n":3,"seed":1`,
	} {
		status, body := ask(t, url+"/completions", fmt.Sprintf(`{"prompt":%q,"echo":true,"logprobs":2,"temperature":0,%s}`, prompt, fields))
		var got echo
		if err := json.Unmarshal([]byte(body), &got); err != nil || status != 200 {
			t.Fatalf("%s: %d, %v: %s", fields, status, err, body)
		}
		for _, c := range got.Choices {
			n, l := len(ids.Tokens), c.Logprobs
			answer := got.Usage.Completion / len(got.Choices)
			if len(l.Values) != n+answer || len(l.Tokens) != len(l.Values) || len(l.Top) != len(l.Values) || len(l.Offsets) != len(l.Values) || got.Usage.Prompt != n {
				t.Fatalf("%s: %d log probabilities, want %d and %d: %s", fields, len(l.Values), n, answer, body)
			}
			if !reflect.DeepEqual(l.Values[:n], want) {
				t.Errorf("%s: the prompt's log probabilities are not those of talf score", fields)
			}
			if l.Top[0] != nil || len(l.Top[1]) < 1 || c.Finish != "length" || !strings.HasPrefix(c.Text, prompt) {
				t.Errorf("%s: %s", fields, body)
			}
			if strings.Contains(fields, `"max_tokens":0`) && (c.Text != prompt || answer != 0) {
				t.Errorf("%s: %d tokens, %q", fields, answer, c.Text)
			}
			for i := range l.Tokens { // where the tokens are in the text
				rest := []rune(c.Text)[l.Offsets[i]:]
				if token := l.Tokens[i]; i < n && i > 0 && !strings.HasPrefix(string(rest), token) {
					t.Fatalf("%s: token %d, %q, is said to be at %d, where the text is %.20q", fields, i, token, l.Offsets[i], string(rest))
				}
			}
		}
		last = got
	}
	// A stream has the same, its prompt with the first text.
	status, body := ask(t, url+"/completions", fmt.Sprintf(`{"prompt":%q,"echo":true,"logprobs":2,"temperature":0,"max_tokens":1,"n":3,"seed":1,"stream":true}`, prompt))
	var text string
	var values []*float64
	for line := range strings.Lines(body) {
		data, ok := strings.CutPrefix(line, "data: {")
		if !ok {
			continue
		}
		var part echo
		if err := json.Unmarshal([]byte("{"+data), &part); err != nil {
			t.Fatal(err)
		}
		for i, c := range part.Choices {
			if i == 0 && strings.Contains(data, `"index":0`) {
				text, values = text+c.Text, append(values, c.Logprobs.Values...)
			}
		}
	}
	if c := last.Choices[0]; status != 200 || text != c.Text || !reflect.DeepEqual(values, c.Logprobs.Values) {
		t.Errorf("streamed: %q and %d log probabilities, want %q and %d", text, len(values), c.Text, len(c.Logprobs.Values))
	}
}
