package transcode

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"talf/text/chat"
	"talf/text/tokenizer"
)

func TestEachLineReportsFaults(t *testing.T) {
	echo := func(dst, line []byte, _ int) ([]byte, bool, error) {
		if bytes.Contains(line, []byte("bug")) {
			panic("planted")
		}
		return append(dst, bytes.TrimSpace(line)...), false, nil
	}
	var out bytes.Buffer
	if _, err := Each(t.Context(), "input", io.MultiReader(strings.NewReader("a\nb"), iotest.ErrReader(errors.New("torn"))), &out, 2, echo); err == nil || !strings.Contains(err.Error(), "torn") {
		t.Errorf("a broken input: %v", err)
	}
	if _, err := Each(t.Context(), "input", panicReader{}, &out, 2, echo); err == nil || !strings.Contains(err.Error(), "input: panic: planted") {
		t.Errorf("a reader that panics: %v", err)
	}
	if _, err := Each(t.Context(), "input", strings.NewReader("a\nb\n"), brokenWriter{}, 2, echo); err == nil || !strings.Contains(err.Error(), "full") {
		t.Errorf("a broken output: %v", err)
	}
	defer func() {
		if bug := fmt.Sprint(recover()); !strings.HasPrefix(bug, "planted\n") || !strings.Contains(bug, "TestEachLineReportsFaults") {
			t.Errorf("a panic became %q, want what and where", bug)
		}
	}()
	_, _ = Each(t.Context(), "input", strings.NewReader("a\nbug\n"), &out, 2, echo) // does not return
}

func TestLines(t *testing.T) {
	tok, err := tokenizer.Load("../../internal/demo/target")
	if err != nil {
		t.Fatal(err)
	}
	template := func(source string) *chat.Template {
		c, err := chat.Parse("test", source)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	marked := template("{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}")
	ids, err := tok.Encode("a <b>", false)
	if err != nil {
		t.Fatal(err)
	}
	list := strings.ReplaceAll(fmt.Sprint(ids), " ", ",")
	// The text of a special token, and then the token.
	spelt, err := tok.EncodeLiteral("<|end|>", []int{0}, false)
	if err != nil || slices.ContainsFunc(spelt, tok.Special) {
		t.Fatalf("%v, %v", spelt, err)
	}
	ended := strings.ReplaceAll(fmt.Sprint(append(spelt, 1)), " ", ",")
	for _, c := range []struct {
		f        Func
		in, want string
		failed   bool
		err      string
	}{
		{Encode(tok, false), `{"text":"a <b>"}`, `{"ids":` + list + `}`, false, ""},
		{Encode(tok, false), `{"text":""}`, `{"ids":[]}`, false, ""},
		{Encode(tok, false), `{"texts":""}`, "", false, "no text"},
		{Encode(tok, false), `{"text":3}`, "", false, "field \"text\": a number, want a text"},
		{Encode(tok, false), `null`, "", false, "want an object"},
		{Encode(tok, false), `{"text":"\ud83d"}`, "", false, "surrogate"},
		{Encode(tok, false), `{"TEXT":"a"}`, "", false, "no text"},
		{Encode(tok, false), `{"text":"a","text":"b"}`, "", false, `field "text": it occurs twice`},
		{Decode(tok, false), `{"ids":` + list + `}`, `{"text":"a <b>"}`, false, ""},
		{Decode(tok, false), `{"ids":[1,-1]}`, "", false, "ids[1] is -1"},
		{Decode(tok, false), `{}`, "", false, "no ids"},
		{Render(t.Context(), marked, nil), `{"messages":[{"role":"user","content":"<q>"},{"role":"assistant","content":"yes"}]}`, `{"text":"user: <q>\nassistant: yes\n","spans":[[10,25]]}`, false, ""},
		{Render(t.Context(), marked, nil), `{"messages":[{"role":"user","content":"q"}]}`, `{"text":"user: q\n","spans":[]}`, false, ""},
		{Render(t.Context(), template("a <b>"), tok), `{"messages":[{"role":"user","content":"q"}]}`, `{"text":"a <b>","ids":` + list + `,"spans":[]}`, false, ""},
		{Render(t.Context(), template("{{ messages[0].content }}<|end|>"), tok), `{"messages":[{"role":"user","content":"<|end|>"}]}`, `{"text":"<|end|><|end|>","ids":` + ended + `,"spans":[]}`, false, ""},
		{Render(t.Context(), template("{{ messages[0].content }}<|end|>").WithControlTokens(), tok), `{"messages":[{"role":"user","content":"<|end|>"}]}`, `{"text":"<|end|><|end|>","ids":[1,1],"spans":[]}`, false, ""},
		{Render(t.Context(), template("{{ messages[0].content | length }}"), tok), `{"messages":[{"role":"user","content":"<|end|>"}]}`, `{"error":"line 7: chat template test: messages hold texts of special tokens`, true, ""},
		{Render(t.Context(), template("{{ raise_exception('not me') }}"), nil), `{"messages":[{"role":"user","content":"q"}]}`, `{"error":"TemplateError: not me"}`, true, ""},
		{Render(t.Context(), marked, nil), `[]`, `{"error":"line 7: `, true, ""},
	} {
		got, failed, err := c.f([]byte("before "), []byte(c.in), 7)
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: error %v, want %q", c.in, err, c.err)
			}
			continue
		}
		text, ok := strings.CutPrefix(string(got), "before ")
		if err != nil || failed != c.failed || !ok || !strings.HasPrefix(text, c.want) || !failed && text != c.want {
			t.Errorf("%s: %s, failed %v, %v, want %s", c.in, got, failed, err, c.want)
		}
	}
}

type panicReader struct{}

func (panicReader) Read([]byte) (int, error) { panic("planted") }

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errors.New("full") }

// The answer to a line is JSON with all of its content, or an error.
func FuzzTokenizeLine(f *testing.F) {
	t, err := tokenizer.Load("../../internal/demo/target")
	if err != nil {
		f.Fatal(err)
	}
	for _, s := range []string{`{"text":"a\ud83d\ude00\\ud800"}`, `{"text":"\ud83d"}`, `{"text":"\udc00\u0041"}`, "{\"text\":\"\xff\"}", `{"ids":[1,-1]}`, `null`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t2 *testing.T, line []byte) {
		for _, g := range []Func{Encode(t, true), Decode(t, false)} {
			if len(bytes.TrimSpace(line)) == 0 {
				continue
			}
			out, _, err := g(nil, line, 1)
			if err == nil && !json.Valid(out) {
				t2.Fatalf("%q becomes %q", line, out)
			}
		}
		var in struct{ Text string }
		if readLine(line, &in) == nil {
			// No invalid character was replaced.
			had := bytes.Count(line, []byte("\uFFFD")) + bytes.Count(bytes.ToLower(line), []byte(`\ufffd`))
			if got := strings.Count(in.Text, "\uFFFD"); got > had {
				t2.Fatalf("%q: %d replacement characters from %d", line, got, had)
			}
		}
	})
}

// Arguments of calls are objects for a template, whether a line has them so or as a text, unless the template
// wants a text.
func TestArgumentsOfCalls(t *testing.T) {
	line := func(arguments string) string {
		return `{"messages":[{"role":"assistant","content":"","tool_calls":[{"type":"function","function":{"name":"f","arguments":` + arguments + `}}]}]}`
	}
	for _, c := range []struct{ template, arguments, want string }{
		{`{{ messages[0].tool_calls[0].function.arguments | tojson }}`, `{"a": 1.25, "b": "ü"}`, `{\"a\": 1.25, \"b\": \"ü\"}`},
		{`{{ messages[0].tool_calls[0].function.arguments | tojson }}`, `"{\"a\": 1.25, \"b\": \"ü\"}"`, `{\"a\": 1.25, \"b\": \"ü\"}`},
		{`{{ '<' + messages[0].tool_calls[0].function.arguments + '>' }}`, `"{\"a\": 1}"`, `<{\"a\": 1}>`},
		{`{{ messages[0].tool_calls[0].function.arguments }}`, `"[1]"`, `[1]`},
		{`{{ messages[0].tool_calls[0].function.arguments }}`, `"{"`, `{`},
	} {
		tmpl, err := chat.Parse("test", c.template)
		if err != nil {
			t.Fatal(err)
		}
		out, failed, err := Render(t.Context(), tmpl, nil)(nil, []byte(line(c.arguments)), 1)
		if want := `{"text":"` + c.want + `",`; err != nil || failed || !strings.HasPrefix(string(out), want) {
			t.Errorf("%s of %s: %s, %v, want %s", c.template, c.arguments, out, err, want)
		}
	}
}
