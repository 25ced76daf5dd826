package chat_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"talf/internal/golden"
	"talf/text/chat"
)

// A renderCase is a line of data/chat: the variables and transformers' result.
type renderCase struct {
	Name  string      `json:"name"`
	Text  *string     `json:"text"`
	Error string      `json:"error"`
	Spans *[][2]int   `json:"assistant_spans"`
	line  []byte      // only the variables
	vars  []chat.Span // Spans in this package's type
}

// Templates written for this project after published formats, and published ones.
var (
	own       = []string{"chatml", "llama-2-chat", "vicuna-v1.1", "zephyr"}
	published = []string{
		"Qwen-Qwen2.5-7B-Instruct", "Qwen-Qwen3-0.6B", "deepseek-ai-DeepSeek-R1-Distill-Llama-8B", "google-gemma-2-2b-it",
		"meta-llama-Llama-3.1-8B-Instruct", "microsoft-Phi-3.5-mini-instruct", "mistralai-Mistral-Nemo-Instruct-2407",
	}
)

// template returns the path of a template.
func template(t testing.TB, name string) string {
	t.Helper()
	if slices.Contains(own, name) {
		return golden.File(t, "chat/"+name+".jinja")
	}
	return golden.Shared(t, "data/chat/"+name+".jinja")
}

// readCases returns what transformers renders from the template name.
func readCases(t testing.TB, name string) []renderCase {
	t.Helper()
	b := golden.Read(t, "chat/"+name+".jsonl")
	var out []renderCase
	sc := bufio.NewScanner(bytes.NewReader(b))
	sc.Buffer(nil, 1<<24)
	for sc.Scan() {
		var c renderCase
		if err := json.Unmarshal(sc.Bytes(), &c); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		c.line = bytes.Clone(sc.Bytes())
		if c.Spans != nil {
			for _, s := range *c.Spans {
				c.vars = append(c.vars, chat.Span{Start: s[0], End: s[1]})
			}
		}
		out = append(out, c)
	}
	if err := sc.Err(); err != nil {
		t.Fatal(err)
	}
	return out
}

// errorText returns the exception within an error of Render.
func errorText(err error) string {
	var raised *chat.RaisedError
	var eval *chat.EvalError
	switch {
	case errors.As(err, &raised):
		return raised.Error()
	case errors.As(err, &eval):
		return eval.Error()
	}
	return err.Error()
}

func TestRenderAgreesWithTransformers(t *testing.T) {
	for _, name := range slices.Concat(own, published) {
		t.Run(name, func(t *testing.T) {
			tmpl, err := chat.LoadFile(template(t, name))
			if err != nil {
				t.Fatal(err)
			}
			cases := readCases(t, name)
			for _, c := range cases {
				conv, err := chat.ParseConversation(c.line)
				if err != nil {
					t.Errorf("%s: %v", c.Name, err)
					continue
				}
				got, err := tmpl.Render(context.Background(), conv)
				if c.Error != "" {
					if err == nil {
						t.Errorf("%s: rendered, want error %q", c.Name, c.Error)
					} else if errorText(err) != c.Error {
						t.Errorf("%s: error %q, want %q", c.Name, errorText(err), c.Error)
					}
					continue
				}
				if err != nil {
					t.Errorf("%s: %v", c.Name, err)
					continue
				}
				if diff := cmp.Diff(*c.Text, got.Text); diff != "" {
					t.Errorf("%s: text (-transformers +here):\n%s", c.Name, diff)
				}
				if c.Spans != nil {
					if diff := cmp.Diff(c.vars, got.Spans); diff != "" || !got.Marked {
						t.Errorf("%s: spans, marked %v (-transformers +here):\n%s", c.Name, got.Marked, diff)
					}
				}
			}
			t.Logf("%d cases", len(cases))
		})
	}
}
