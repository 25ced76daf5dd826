package zoo

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"talf/internal/await"
	"talf/internal/e2e/talftest"
	"talf/internal/zoo"
	"talf/text/tokenizer"
)

// lines writes a file of JSON lines.
func lines(t *testing.T, records ...any) string {
	t.Helper()
	var b bytes.Buffer
	for _, r := range records {
		if err := json.NewEncoder(&b).Encode(r); err != nil {
			t.Fatal(err)
		}
	}
	return talftest.Write(t, filepath.Join(t.TempDir(), "lines.jsonl"), b.String())
}

// The program itself, as a process, on every model: it continues texts as llama.cpp does, answers in a chat, over HTTP
// and from a file alike, labels, trains a head on the labels, and decodes with the head.
func TestProgramRunsRealModels(t *testing.T) {
	for _, z := range chosen(t) {
		t.Run(z.Name, func(t *testing.T) {
			path := zoo.Path(t, z.Name)
			r := recorded(t, z.Name)
			if len(r.Prompts) > 0 {
				continues(t, z.Name, path, &r)
			}
			answers(t, path)
			trains(t, path)
		})
	}
}

// continues compares the beginning of greedy texts.
func continues(t *testing.T, name, path string, r *record) {
	var in inputs
	read(t, "zoo/inputs.json", &in)
	tok, err := tokenizer.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	const tokens = 8
	var texts []any
	var want []string
	for i, p := range r.Prompts {
		clear := len(p.Greedy) >= tokens
		for k := 0; clear && k < tokens; k++ {
			clear = p.Leads[k] != nil && *p.Leads[k] > tolerance[name]
		}
		if clear && len(texts) < 3 {
			texts = append(texts, map[string]string{"text": in.Prompts[i]})
			want = append(want, tok.Decode(p.Greedy[:tokens], true))
		}
	}
	out := filepath.Join(t.TempDir(), "answers.jsonl")
	talftest.OK(t, "", "generate", "--model", path, "--dtype", "f32", "--prompts", lines(t, texts...), "--out", out, "--max-tokens", fmt.Sprint(tokens))
	got := talftest.ReadAnswers(t, out)
	if len(got) != 3 || len(want) != 3 {
		t.Fatalf("%d answers to %d texts, want 3", len(got), len(want))
	}
	for i, a := range got {
		if a.Text != want[i] {
			t.Errorf("%q is continued with %q, want %q", texts[i], a.Text, want[i])
		}
	}
}

// answers asks the same question in three ways, which are one, with a chat template and without.
func answers(t *testing.T, path string) {
	const question, tokens = "Name three colours of the rainbow.", 12
	message := map[string]string{"role": "user", "content": question}
	var reply struct {
		Choices []struct{ Message struct{ Content string } }
	}
	ask(t, path, map[string]any{"messages": []any{message}, "max_tokens": tokens, "temperature": 0}, &reply)
	if len(reply.Choices) != 1 || len(reply.Choices[0].Message.Content) < tokens {
		t.Fatalf("serve answers %+v", reply)
	}
	want := strings.TrimSpace(reply.Choices[0].Message.Content)
	flags := []string{"--model", path, "--max-tokens", fmt.Sprint(tokens)}
	if got := talftest.OK(t, question+"\n", append([]string{"chat", "--temperature", "0"}, flags...)...); !strings.Contains(got, want) {
		t.Errorf("chat answers %q, serve %q", got, want)
	}
	out := filepath.Join(t.TempDir(), "answers.jsonl")
	file := lines(t, map[string]any{"messages": []any{message}})
	talftest.OK(t, "", append([]string{"generate", "--prompts", file, "--out", out}, flags...)...)
	if got := talftest.ReadAnswers(t, out); len(got) != 1 || strings.TrimSpace(got[0].Text) != want {
		t.Errorf("generate answers %+v, serve %q", got, want)
	}
}

var listens = regexp.MustCompile(`127\.0\.0\.1:\d+`)

// ask posts one request to a server of the model.
func ask(t *testing.T, path string, request, reply any) {
	t.Helper()
	var log talftest.Log
	cmd := talftest.Command(t, "serve", "--model", path, "--listen", "127.0.0.1:0")
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	}()
	await.Until(t, "a server that listens", func() bool { return listens.MatchString(log.String()) })
	url := "http://" + listens.FindString(log.String())
	await.Until(t, "a server that is ready", func() bool {
		r, err := http.Get(url + "/health")
		if err != nil {
			return false
		}
		r.Body.Close()
		return r.StatusCode == http.StatusOK
	})
	body, err := json.Marshal(request)
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.Post(url+"/v1/chat/completions", "application/json", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	if err := json.NewDecoder(r.Body).Decode(reply); err != nil || r.StatusCode != http.StatusOK {
		t.Errorf("status %d, %v", r.StatusCode, err)
	}
}

// trains makes labels and a head of a few steps, and lets methods draft with it: bench fails if an output differs from
// plain decoding's.
func trains(t *testing.T, path string) {
	dir := t.TempDir()
	labels, head := filepath.Join(dir, "labels"), filepath.Join(dir, "head")
	var in inputs
	read(t, "zoo/inputs.json", &in)
	var texts []any
	for _, p := range in.Prompts[:6] {
		texts = append(texts, map[string]string{"text": p})
	}
	file := lines(t, texts...)
	talftest.OK(t, "", "preprocess", "--model", path, "--data", file, "--out", labels, "--max-len", "24", "--k", "2", "--depth", "2")
	talftest.OK(t, "", "train", "--model", path, "--data", labels, "--out", head, "--loss", "talf", "--steps", "2", "--rows", "32", "--warmup", "1", "--held-out", "0")
	bench(t, path, file, 3, 12, []string{"salf", "static:binary-3", "beam:N=12,depth=3"}, "--head", head)
}
