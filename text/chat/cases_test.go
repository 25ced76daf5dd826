package chat_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"talf/text/chat"
)

// casesFile may name other output of testdata/make_cases.py, for example for random
// templates.
var casesFile = flag.String("cases", "testdata/cases.jsonl", "the results of transformers")

// clock is the time that testdata/make_cases.py fixes.
func clock() time.Time { return time.Date(2024, 7, 4, 15, 6, 9, 123456000, time.UTC) }

// TestCasesAgreeWithTransformers renders templates written for this test, at least one
// per feature, and compares them with transformers' results. The first line of
// testdata/cases.jsonl names the versions.
func TestCasesAgreeWithTransformers(t *testing.T) {
	b, err := os.ReadFile(*casesFile)
	if err != nil {
		t.Fatal(err)
	}
	sc := bufio.NewScanner(bytes.NewReader(b))
	sc.Buffer(nil, 1<<24)
	var conv *chat.Conversation
	n := 0
	for sc.Scan() {
		var c struct {
			Variables json.RawMessage `json:"variables"`
			Template  string          `json:"template"`
			Text      *string         `json:"text"`
			Error     string          `json:"error"`
			Spans     [][2]int        `json:"spans"`
		}
		if err := json.Unmarshal(sc.Bytes(), &c); err != nil {
			t.Fatal(err)
		}
		if c.Variables != nil {
			if conv, err = chat.ParseConversation(c.Variables); err != nil {
				t.Fatal(err)
			}
			continue
		}
		n++
		tmpl, err := chat.Parse("case", c.Template)
		var got *chat.Rendered
		if err == nil {
			got, err = tmpl.WithClock(clock).Render(context.Background(), conv)
		}
		switch {
		case c.Text == nil && err == nil:
			t.Errorf("%s\n  rendered %q, want error %q", c.Template, got.Text, c.Error)
		case c.Text == nil:
			if errorText(err) != c.Error {
				t.Errorf("%s\n  error %q, want %q", c.Template, errorText(err), c.Error)
			}
		case err != nil:
			t.Errorf("%s\n  error %v, want text %q", c.Template, err, *c.Text)
		default:
			if got.Text != *c.Text {
				t.Errorf("%s\n  got  %q\n  want %q", c.Template, got.Text, *c.Text)
			}
			var spans []chat.Span
			for _, s := range c.Spans {
				spans = append(spans, chat.Span{Start: s[0], End: s[1]})
			}
			if diff := cmp.Diff(spans, got.Spans); diff != "" {
				t.Errorf("%s\n  spans (-transformers +here):\n%s", c.Template, diff)
			}
		}
	}
	if err := sc.Err(); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d cases", n)
}
