package corpus_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"talf/data/corpus"
	"talf/internal/golden"
)

func loadText(t testing.TB, name, text string, c corpus.Config) (docs []corpus.Doc, bad []corpus.BadLine) {
	t.Helper()
	p := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(p, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	return load(t, []string{p}, c)
}

func load(t testing.TB, files []string, c corpus.Config) (docs []corpus.Doc, bad []corpus.BadLine) {
	t.Helper()
	for d, err := range corpus.Load(files, c, func(b corpus.BadLine) { bad = append(bad, b) }) {
		if err != nil {
			t.Fatal(err)
		}
		docs = append(docs, d)
	}
	return docs, bad
}

// show writes documents as line:prompt|>answer.
func show(docs []corpus.Doc) string {
	var b strings.Builder
	for _, d := range docs {
		fmt.Fprintf(&b, "%d", d.Line)
		if d.ID != "" {
			fmt.Fprintf(&b, "#%s", d.ID)
		}
		for _, s := range d.Spans {
			if s.Answer {
				b.WriteString("|>")
			} else {
				b.WriteString("|")
			}
			fmt.Fprintf(&b, "%q", s.Text)
		}
		b.WriteString("\n")
	}
	return b.String()
}

func showBad(bad []corpus.BadLine) string {
	var b strings.Builder
	for _, x := range bad {
		fmt.Fprintf(&b, "%d: %s\n", x.Line, x.Why)
	}
	return b.String()
}

func TestLoad(t *testing.T) {
	qa := corpus.Config{Format: corpus.Auto, MaxLine: 1 << 20, Template: `Question: {question}\nAnswer:`, AnswerField: "answer", AnswerRemove: `<<[^>]*>>`}
	short := corpus.Default()
	short.MaxLine = 12
	some := corpus.Default()
	some.Skip, some.Limit = 1, 2
	whole := corpus.Default()
	whole.Format = corpus.Document
	for _, c := range []struct {
		name, file, text string
		conf             corpus.Config
		docs, bad        string
	}{
		{
			"paragraphs end at blank lines", "a.txt", "\ufeffone\r\ntwo\r\n\r\n \t\nthree\n\n\nfour", corpus.Default(),
			"1|\"one\\ntwo\"\n5|\"three\"\n8|\"four\"\n", "",
		},
		{"a file as one document", "a.txt", "one\n\ntwo\n", whole, "1|\"one\\n\\ntwo\\n\"\n", ""},
		{"bytes that are not UTF-8", "a.txt", "ok\n\n\xff\xfe\n\nfine", corpus.Default(), "1|\"ok\"\n5|\"fine\"\n", "3: not UTF-8\n"},
		{"long paragraphs", "a.txt", "123456789012\n\n123456\n123456\nx\n\nok", short, "1|\"123456789012\"\n7|\"ok\"\n", "3: a paragraph of 14 bytes, want at most 12\n"},
		{"skip and limit", "a.txt", "a\n\nb\n\nc\n\nd", some, "3|\"b\"\n5|\"c\"\n", ""},
		{
			"fields of JSONL", "a.jsonl", `{"text":"t","id":7}` + "\n\n" + `{"prompt":"p","question_id":"q"}` + "\r\n" + `{"turns":["a","b"]}`, corpus.Default(),
			"1#7|\"t\"\n3#q|\"p\"\n4|\"a\"|\"b\"\n", "",
		},
		{
			"bad JSONL", "a.jsonl", "{\"text\":\"\"}\n[1]\n{\"x\":1}\nnull\n{\"text\":1}{}\n{\"text\":{}}\n{\"text\":\"\xff\"}\n{\"turns\":[1,null]}\n{\"turns\":3}\n{\"text\":true}", corpus.Default(),
			"10|\"true\"\n",
			"1: field \"text\": empty, want text\n" +
				"2: not a JSON object: array\n" +
				"3: no field \"messages\", \"conversations\", \"text\", \"prompt\" or \"turns\", and no template that says what to take\n" +
				"4: not a JSON object: null\n" +
				"5: text after the JSON value\n" +
				"6: field \"text\": an object, want text\n" +
				"7: field \"text\": not UTF-8\n" +
				"8: field \"turns[1]\": null, want text\n" +
				"9: field \"turns\": want a list of texts\n",
		},
		{
			"JSONL that two readers take differently", "a.jsonl",
			`{"TEXT":"b","text":"a","Text":"c"}` + "\n" + `{"text":"a","text":"b"}` + "\n" + `{"text":"\ud800"}` + "\n" + `{"prompt":"x\udc00"}` + "\n" + `{"text":"a","x":{"y":1,"\u0079":2}}` + "\n" +
				`{"messages":[{"role":"user","content":"\ud83d"}]}` + "\n" + `{"messages":[{"role":"user","content":"a","content":"b"}]}` + "\n" +
				`{"messages":[{"role":"user","content":"a"}],"tools":"[{\"a\":1,\"a\":2}]"}` + "\n" + `{"text":"\ud83d\ude00\ufffd"}`, corpus.Default(),
			"1|\"a\"\n9|\"😀\ufffd\"\n",
			"2: field \"text\": it occurs twice\n" +
				"3: field \"text\": half of a surrogate pair, want UTF-8\n" +
				"4: field \"prompt\": half of a surrogate pair, want UTF-8\n" +
				"5: field \"x.y\": it occurs twice\n" +
				"6: field \"messages[0].content\": half of a surrogate pair, want UTF-8\n" +
				"7: field \"messages[0].content\": it occurs twice\n" +
				"8: field \"tools\": text that is not JSON, want a list of tools: field \"[0].a\": it occurs twice\n",
		},
		{"long lines", "a.jsonl", "{\"text\":\"" + strings.Repeat("x", 100_000) + "\"}\n{\"text\":1}\n", short, "2|\"1\"\n", "1: a line of 100012 bytes, want at most 12\n"},
		{
			"template and answer", "a.jsonl", `{"question":"1+1?","answer":"It is <<1+1=2>>2."}` + "\n" + `{"question":"x"}` + "\n" + `{"question":"y","answer":"<<>> "}`, qa,
			"1|\"Question: 1+1?\\nAnswer:\"|>\" It is 2.\"\n", "2: field \"answer\": missing\n3: field \"answer\": empty, want an answer\n",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			docs, bad := loadText(t, c.file, c.text, c.conf)
			if d := cmp.Diff(c.docs, show(docs)); d != "" {
				t.Error(d)
			}
			if d := cmp.Diff(c.bad, showBad(bad)); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestTemplate(t *testing.T) {
	o := map[string]any{"a": "x", "b": map[string]any{"c": []any{"y", true}}, "turns": []any{"first", "second"}, "n": nil}
	for _, c := range []struct{ template, want, err string }{
		{`Q: {a}\nA:`, "Q: x\nA:", ""},
		{`{{{a}}}`, "{x}", ""},
		{`{b.c.1}{b.c.0}\t\\`, "truey\t\\", ""},
		{"{prompt}", "first", ""},
		{"", "", ""},
		{"{missing}", "", `field "missing": missing`},
		{"{b.c.2}", "", `field "b.c.2": no element "2" in a list of 2`},
		{"{a.b}", "", `field "a.b": missing`},
		{"{n}", "", `field "n": null, want text`},
		{"{b}", "", `field "b": an object, want text`},
		{"{turns}", "", `field "turns": a list, want text`},
		{"{a", "", "template: { at byte 0 is not closed"},
		{"x{a{b}}", "", "template: { at byte 1 is not closed"},
		{"{}", "", "template: {} at byte 0, want a field name"},
		{"a}", "", "template: } at byte 1 is not opened; write }} for a brace"},
		{`\d`, "", `template: "\\d" at byte 0, want \n, \t or \\`},
		{`\`, "", `template: "\\" at byte 0, want \n, \t or \\`},
	} {
		tm, err := corpus.ParseTemplate(c.template)
		var got string
		if err == nil {
			got, err = tm.Render(o)
		}
		if fmt.Sprint(err) != c.err && !(err == nil && c.err == "") || got != c.want {
			t.Errorf("%q: %q, %v; want %q, %s", c.template, got, err, c.want, c.err)
		}
	}
}

func TestUnreadableInputIsAnError(t *testing.T) {
	c := corpus.Default()
	for _, files := range [][]string{{filepath.Join(t.TempDir(), "none.txt")}, {t.TempDir()}} {
		n := 0
		for _, err := range corpus.Load(files, c, nil) {
			if n++; err == nil || !strings.Contains(err.Error(), files[0]) {
				t.Fatal(err)
			}
		}
		if n != 1 {
			t.Fatalf("%d results, want one error", n)
		}
	}
	c.Template = "{"
	for _, err := range corpus.Load(nil, c, nil) {
		if err == nil {
			t.Fatal("a broken template is accepted")
		}
	}
}

// Published data files must load without a bad line.
func TestPublishedFilesLoad(t *testing.T) {
	qa := corpus.Default()
	qa.Template, qa.AnswerField, qa.AnswerRemove = `Question: {question}\nAnswer:`, "answer", `<<[^>]*>>`
	turns := corpus.Default()
	turns.Template = `Question: {prompt}\nAnswer:`
	for _, c := range []struct {
		file string
		conf corpus.Config
		docs int
	}{
		{"data/prompts/gsm8k_train.jsonl", qa, 7473},
		{"data/prompts/eagle_gsm8k_question.jsonl", turns, 80},
		{"data/prompts/mt_bench_question.jsonl", corpus.Default(), 80},
		{"data/text/tinystories_val_794k.txt", corpus.Default(), 4302},
	} {
		docs, bad := load(t, []string{golden.Shared(t, c.file)}, c.conf)
		if len(docs) != c.docs || len(bad) > 0 {
			t.Errorf("%s: %d documents and %d bad lines, want %d and 0", c.file, len(docs), len(bad), c.docs)
		}
		for _, d := range docs {
			for _, s := range d.Spans {
				if s.Answer && strings.Contains(s.Text, "<<") {
					t.Fatalf("%s:%d: annotations are left: %q", c.file, d.Line, s.Text)
				}
			}
		}
	}
}

// For any bytes: no panic, every document is non-empty UTF-8, and lines never go
// backwards.
func FuzzLoad(f *testing.F) {
	f.Add("{\"text\":\"a\"}\n{\"turns\":[\"a\"]}\nx", "{a.b}{{", true)
	f.Add("a\n\nb\xff", "", false)
	f.Fuzz(func(t *testing.T, text, template string, jsonl bool) {
		c := corpus.Config{Format: corpus.Paragraphs, MaxLine: 64, Template: template}
		if jsonl {
			c.Format = corpus.JSONL
		}
		p := filepath.Join(t.TempDir(), "f")
		if err := os.WriteFile(p, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		last, item := 0, 0
		for d, err := range corpus.Load([]string{p}, c, func(corpus.BadLine) {}) {
			if err != nil {
				return // the template, or an array that is broken
			}
			if d.Line < last || d.Line == last && d.Item <= item || (d.Chat == nil) == (len(d.Spans) == 0) {
				t.Fatalf("document at line %d, item %d after %d, %d: %d spans", d.Line, d.Item, last, item, len(d.Spans))
			}
			last, item = d.Line, d.Item
			for _, s := range d.Spans {
				if utf8.ValidString(template) && !utf8.ValidString(s.Text) || strings.TrimSpace(s.Text) == "" {
					t.Fatalf("line %d: %q", d.Line, s.Text)
				}
			}
		}
	})
}

func FuzzTemplate(f *testing.F) {
	f.Add(`Q: {a.0.b}\n{{x}}`)
	f.Add(`{prompt`)
	f.Fuzz(func(t *testing.T, s string) {
		tm, err := corpus.ParseTemplate(s)
		if err != nil {
			return
		}
		out, err := tm.Render(map[string]any{"a": []any{map[string]any{"b": "1"}}, "turns": []any{"2"}})
		if err == nil && !strings.ContainsAny(s, `\{}`) && out != s {
			t.Fatalf("%q gives %q", s, out)
		}
	})
}
