package chat_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"testing"
	"unicode/utf8"

	"talf/text/chat"
)

// FuzzTemplate renders any source. The result is an error or a text, never a fault of
// the engine, and a second run gives the same.
func FuzzTemplate(f *testing.F) {
	b, err := os.ReadFile("testdata/cases.jsonl")
	if err != nil {
		f.Fatal(err)
	}
	var conv *chat.Conversation
	for line := range bytes.Lines(b) {
		var c struct {
			Variables json.RawMessage `json:"variables"`
			Template  string          `json:"template"`
		}
		if err := json.Unmarshal(line, &c); err != nil {
			f.Fatal(err)
		}
		if c.Variables == nil {
			f.Add(c.Template)
		} else if conv, err = chat.ParseConversation(c.Variables); err != nil {
			f.Fatal(err)
		}
	}
	f.Add(llama)
	f.Fuzz(func(t *testing.T, source string) {
		fault := func(err error) {
			var e *chat.EvalError
			if errors.As(err, &e) && e.Kind == "InternalError" {
				t.Fatal(err)
			}
		}
		tmpl, err := chat.Parse("fuzz", source)
		if err != nil {
			fault(err)
			return
		}
		tmpl = tmpl.WithClock(clock)
		a, err := tmpl.Render(t.Context(), conv)
		if err != nil {
			fault(err)
			return
		}
		if len(a.Text) > 16<<20 || !utf8.ValidString(a.Text) {
			t.Fatalf("%d bytes, UTF-8: %v", len(a.Text), utf8.ValidString(a.Text))
		}
		end := len(a.Text)
		for _, s := range a.Spans {
			if s.Start < 0 || s.End < s.Start {
				t.Fatalf("span %v of %d bytes", s, end)
			}
		}
		b, err := tmpl.Render(t.Context(), conv)
		if err != nil || a.Text != b.Text {
			t.Fatalf("%q, then %q, %v", a.Text, b.Text, err)
		}
	})
}

// FuzzConversation parses any line and renders it if it is a conversation. Spans must
// lie within the text, in order.
func FuzzConversation(f *testing.F) {
	for _, line := range []string{
		`{"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho"}], "tools": null, "add_generation_prompt": true}`,
		`{"messages": [{"role": "assistant", "content": [{"type": "text", "text": "x"}], "tool_calls": [{"function": {"name": "f", "arguments": {"a": 1e400}}}]}], "bos_token": "\u00e9\ud83c\udf89"}`,
		`{"messages": [{"role": "user", "thinking": null, "reasoning": "r"}], "tools": [{"b": [1.50, 12345678901234567890, -0]}], "eos_token": "</s>"}`,
		`{"messages": []}`, `{"messages": [{}]}`, `[]`, `{"messages": [{"role": 1, "content": {}}]}`,
	} {
		f.Add([]byte(line))
	}
	tmpl := parse(f, llama)
	f.Fuzz(func(t *testing.T, line []byte) {
		c, err := chat.ParseConversation(line)
		if err != nil {
			return
		}
		r, err := tmpl.RenderSpans(context.Background(), c)
		if err != nil {
			var e *chat.EvalError
			if errors.As(err, &e) && e.Kind == "InternalError" {
				t.Fatal(err)
			}
			return
		}
		end := 0
		for _, s := range r.Spans {
			if s.Start < end || s.End <= s.Start || s.End > len(r.Text) {
				t.Fatalf("span %v after %d of %d bytes", s, end, len(r.Text))
			}
			end = s.End
		}
	})
}
