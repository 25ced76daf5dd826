package chat_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"talf/internal/golden"
	"talf/model/chat"
)

// A renderCase is a line of data/chat: the variables, and what transformers
// made of them.
type renderCase struct {
	Name  string      `json:"name"`
	Text  *string     `json:"text"`
	Error string      `json:"error"`
	Spans *[][2]int   `json:"assistant_spans"`
	line  []byte      // the variables alone
	vars  []chat.Span // Spans in this package's type
}

func readCases(t testing.TB, path string) []renderCase {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var out []renderCase
	sc := bufio.NewScanner(bytes.NewReader(b))
	sc.Buffer(nil, 1<<24)
	for sc.Scan() {
		var c renderCase
		if err := json.Unmarshal(sc.Bytes(), &c); err != nil {
			t.Fatalf("%s: %v", path, err)
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

// errorText is the exception within an error of Render.
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
	dir := golden.Shared(t, "data/chat")
	files, err := filepath.Glob(filepath.Join(dir, "*.jinja"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no templates in %s: %v", dir, err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".jinja")
		t.Run(name, func(t *testing.T) {
			tmpl, err := chat.LoadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			cases := readCases(t, strings.TrimSuffix(file, ".jinja")+".jsonl")
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
