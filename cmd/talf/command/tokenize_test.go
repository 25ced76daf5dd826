package command

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"talf/internal/e2e/talftest"
	"talf/internal/golden"
)

// jsonLines decodes JSON Lines.
func jsonLines[T any](t testing.TB, text string) []T {
	t.Helper()
	var all []T
	for line := range strings.Lines(text) {
		var v T
		if err := json.Unmarshal([]byte(line), &v); err != nil {
			t.Fatalf("%.80q: %v", line, err)
		}
		all = append(all, v)
	}
	return all
}

// toLines encodes values as JSON Lines.
func toLines[T, V any](t testing.TB, all []T, f func(T) V) string {
	t.Helper()
	var b strings.Builder
	enc := json.NewEncoder(&b)
	for _, x := range all {
		if err := enc.Encode(f(x)); err != nil {
			t.Fatal(err)
		}
	}
	return b.String()
}

// inProcess runs a command that must succeed, in this process.
func inProcess(t testing.TB, stdin string, args ...string) string {
	t.Helper()
	var out, errb bytes.Buffer
	if code := Run(args, strings.NewReader(stdin), &out, &errb); code != ExitOK {
		t.Fatalf("talf %s: exit %d\n%s", strings.Join(args, " "), code, &errb)
	}
	return out.String()
}

// The conformance cases of Hugging Face tokenizers, through the command.
func TestTokenizeConformance(t *testing.T) {
	if testing.Short() {
		t.Skip("encodes every case of five tokenizers")
	}
	type conformance struct {
		Text      string  `json:"text"`
		IDs       []int32 `json:"ids"`
		Special   []int32 `json:"ids_special"`
		Decoded   string  `json:"decoded"`
		DecodedSS string  `json:"decoded_skip_special"`
	}
	type encoded struct {
		IDs []int32 `json:"ids"`
	}
	type decoded struct {
		Text string `json:"text"`
	}
	for _, family := range []string{"gpt2", "gpt-neox", "llama2", "llama3-style", "phi3"} {
		t.Run(family, func(t *testing.T) {
			var dir string
			if family == "llama3-style" {
				dir = golden.File(t, "tokenizers/"+family)
			} else {
				dir = golden.Shared(t, "data/tokenizers/"+family)
			}
			cases := jsonLines[conformance](t, string(golden.Read(t, "tokenizers/"+family+"/cases.jsonl")))
			texts := toLines(t, cases, func(c conformance) any { return decoded{c.Text} })
			ids := toLines(t, cases, func(c conformance) any { return encoded{c.Special} })
			for _, x := range []struct {
				in   string
				args []string
				want string
			}{
				{texts, nil, toLines(t, cases, func(c conformance) any { return encoded{c.Special} })},
				{texts, []string{"--no-special"}, toLines(t, cases, func(c conformance) any { return encoded{c.IDs} })},
				{ids, []string{"--decode"}, toLines(t, cases, func(c conformance) any { return decoded{c.Decoded} })},
				{ids, []string{"--decode", "--skip-special"}, toLines(t, cases, func(c conformance) any { return decoded{c.DecodedSS} })},
			} {
				got := inProcess(t, x.in, append([]string{"tokenize", "--model", dir}, x.args...)...)
				if x.args == nil || x.args[0] != "--decode" {
					if diff := cmp.Diff(jsonLines[encoded](t, x.want), jsonLines[encoded](t, got)); diff != "" {
						t.Errorf("%v: (-want +got)\n%s", x.args, diff)
					}
					continue
				}
				if diff := cmp.Diff(jsonLines[decoded](t, x.want), jsonLines[decoded](t, got)); diff != "" {
					t.Errorf("%v: (-want +got)\n%s", x.args, diff)
				}
			}
		})
	}
}

// The command renders published templates as transformers does: text, error, marked generations;
// with a tokenizer, also the ids of the text.
func TestTokenizeConversations(t *testing.T) {
	own := []string{"chatml", "llama-2-chat", "vicuna-v1.1", "zephyr"}
	published := []string{
		"Qwen-Qwen2.5-7B-Instruct", "Qwen-Qwen3-0.6B", "deepseek-ai-DeepSeek-R1-Distill-Llama-8B", "google-gemma-2-2b-it",
		"meta-llama-Llama-3.1-8B-Instruct", "microsoft-Phi-3.5-mini-instruct", "mistralai-Mistral-Nemo-Instruct-2407",
	}
	dir := golden.File(t, "tokenizers/llama3-style")
	type answer struct {
		Text  *string  `json:"text"`
		IDs   []int32  `json:"ids"`
		Spans [][2]int `json:"spans"`
		Error string   `json:"error"`
	}
	for _, name := range slices.Concat(own, published) {
		t.Run(name, func(t *testing.T) {
			var template string
			if slices.Contains(own, name) {
				template = golden.File(t, "chat/"+name+".jinja")
			} else {
				template = golden.Shared(t, "data/chat/"+name+".jinja")
			}
			cases := jsonLines[map[string]json.RawMessage](t, string(golden.Read(t, "chat/"+name+".jsonl")))
			// Fields with expected results are not variables.
			in := toLines(t, cases, func(c map[string]json.RawMessage) any {
				in := map[string]json.RawMessage{}
				for k, v := range c {
					if k != "text" && k != "error" && k != "assistant_spans" {
						in[k] = v
					}
				}
				return in
			})
			// Keys of objects keep their order only in the raw fields.
			got := jsonLines[answer](t, inProcess(t, in, "tokenize", "--messages", "--template", template, "--text-only"))
			full := jsonLines[answer](t, inProcess(t, in, "tokenize", "--messages", "--template", template, "--model", dir))
			if len(got) != len(cases) || len(full) != len(cases) {
				t.Fatalf("%s: %d and %d answers to %d lines", template, len(got), len(full), len(cases))
			}
			var texts strings.Builder
			for i, c := range cases {
				var want answer
				if raw, ok := c["text"]; ok {
					want.Text = new(string)
					if err := json.Unmarshal(raw, want.Text); err != nil {
						t.Fatal(err)
					}
				} else if err := json.Unmarshal(c["error"], &want.Error); err != nil {
					t.Fatal(err)
				}
				want.Spans = got[i].Spans // found where the template marks none
				if raw, ok := c["assistant_spans"]; ok {
					if err := json.Unmarshal(raw, &want.Spans); err != nil {
						t.Fatal(err)
					}
				}
				if diff := cmp.Diff(want, got[i]); diff != "" {
					t.Errorf("line %d (-want +got)\n%s", i+1, diff)
				}
				if want.Text != nil {
					b, err := json.Marshal(map[string]string{"text": *want.Text})
					if err != nil {
						t.Fatal(err)
					}
					texts.Write(append(b, '\n'))
				}
			}
			ids := jsonLines[answer](t, inProcess(t, texts.String(), "tokenize", "--model", dir, "--no-special"))
			for i, j := 0, 0; i < len(full); i++ {
				if full[i].Text == nil {
					continue
				}
				if diff := cmp.Diff(ids[j].IDs, full[i].IDs); diff != "" {
					t.Errorf("line %d: ids (-want +got)\n%s", i+1, diff)
				}
				j++
			}
		})
	}
}

func TestTokenizeSentencePieceDirectory(t *testing.T) {
	b, err := os.ReadFile(golden.Shared(t, "data/tokenizers/llama2/tokenizer.model"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "tokenizer.model"), b, 0o644); err != nil {
		t.Fatal(err)
	}
	if got, want := inProcess(t, `{"text":"Hello world"}`, "tokenize", "--model", dir), "{\"ids\":[1,15043,3186]}\n"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// tinyTokenizer returns a directory with a tokenizer of few tokens.
func tinyTokenizer(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	const text = `{"version":"1.0","added_tokens":[{"id":4,"content":"<s>","special":true}],"decoder":{"type":"Fuse"},
"post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>"}},{"Sequence":{"id":"A"}}],"special_tokens":{"<s>":{"ids":[4]}}},
"model":{"type":"BPE","unk_token":"u","vocab":{"u":0,"a":1,"b":2,"ab":3},"merges":["a b"]}}`
	if err := os.WriteFile(filepath.Join(dir, "tokenizer.json"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestTokenizeWrongInput(t *testing.T) {
	dir := tinyTokenizer(t)
	empty := t.TempDir()
	template := filepath.Join(empty, "t.jinja")
	if err := os.WriteFile(template, []byte(`{% for m in messages %}{{ m.content }}{% endfor %}`), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, in string
		args     []string
		code     int
		want     string
	}{
		{"not JSON", "{\"text\":\"a\"}\n{", []string{"--model", dir}, ExitFailure, "line 2"},
		{"text twice on a line", `{"text":"a"} {"text":"b"}`, []string{"--model", dir}, ExitFailure, "line 1"},
		{"a list", "\n\n[]", []string{"--model", dir}, ExitFailure, "line 3: a list, want an object"},
		{"null", "null", []string{"--model", dir}, ExitFailure, "want an object"},
		{"no text", `{"ids":[1]}`, []string{"--model", dir}, ExitFailure, "no text"},
		{"a number", `{"text":1}`, []string{"--model", dir}, ExitFailure, `field "text": a number, want a text`},
		{"not UTF-8", "{\"text\":\"\xff\"}", []string{"--model", dir}, ExitFailure, "not UTF-8"},
		{"half a pair", `{"text":"\ud83d"}`, []string{"--model", dir}, ExitFailure, "surrogate"},
		{"the other half", `{"text":"\\\ude00"}`, []string{"--model", dir}, ExitFailure, "surrogate"},
		{"a pair and a half", `{"text":"\ud83d\ude00\ud83d\u0041"}`, []string{"--model", dir}, ExitFailure, "surrogate"},
		{"no ids", `{"text":"a"}`, []string{"--model", dir, "--decode"}, ExitFailure, "no ids"},
		{"negative id", `{"ids":[1,-1]}`, []string{"--model", dir, "--decode"}, ExitFailure, "ids[1] is -1"},
		{"half an id", `{"ids":[1.5]}`, []string{"--model", dir, "--decode"}, ExitFailure, "1.5"},
		{"large id", `{"ids":[4294967296]}`, []string{"--model", dir, "--decode"}, ExitFailure, "4294967296"},
		{"no directory", "", []string{"--model", filepath.Join(empty, "none")}, ExitFailure, "none"},
		{"no tokenizer", "", []string{"--model", empty}, ExitFailure, "neither tokenizer.json nor tokenizer.model"},
		{"no template", "", []string{"--model", dir, "--messages"}, ExitFailure, "chat_template"},
		{"no such template", "", []string{"--messages", "--text-only", "--chat-template", "none.jinja"}, ExitFailure, "none.jinja"},
		{"no model", "", nil, ExitUsage, "--model"},
		{"no model for ids", "", []string{"--messages", "--template", template}, ExitUsage, "--model"},
		{"nothing to render by", "", []string{"--messages", "--text-only"}, ExitUsage, "--chat-template"},
		{"two ways", "", []string{"--model", dir, "--messages", "--decode"}, ExitUsage, "--decode"},
		{"skip of nothing", "", []string{"--model", dir, "--skip-special"}, ExitUsage, "--decode"},
		{"template of nothing", "", []string{"--model", dir, "--template", template}, ExitUsage, "--messages"},
		{"no special messages", "", []string{"--model", dir, "--messages", "--no-special"}, ExitUsage, "--no-special"},
		{"no day", "", []string{"--messages", "--text-only", "--template", template, "--date", "soon"}, ExitUsage, "soon"},
	} {
		t.Run(c.name, func(t *testing.T) {
			talftest.Run(t, c.in, append([]string{"tokenize"}, c.args...)...).Refuses(t, c.code, c.want)
		})
	}
}

// Lines before a bad one are answered.
func TestTokenizeKeepsWhatItWrote(t *testing.T) {
	r := talftest.Run(t, "{\"text\":\"ab\"}\n\n{\"text\":\"ba\"}\n{}\n{\"text\":\"a\"}\n", "tokenize", "--model", tinyTokenizer(t))
	r.Refuses(t, ExitFailure, "standard input, line 4: no text")
	if want := "{\"ids\":[4,3]}\n{\"ids\":[4,2,1]}\n"; r.Out != want {
		t.Errorf("output %q, want %q", r.Out, want)
	}
}

// The named line is the bad one, however many batches precede it.
func TestTokenizeNumbersLines(t *testing.T) {
	dir := tinyTokenizer(t)
	for _, n := range []int{0, 1, 255, 256, 257, 3000} {
		in := strings.Repeat("{\"text\":\"ab\"}\n", n) + "{}\n" + strings.Repeat("{\"text\":\"\"}\n", 1000)
		var out, errb bytes.Buffer
		code := Run([]string{"tokenize", "--model", dir, "--threads", "3"}, strings.NewReader(in), &out, &errb)
		if want := fmt.Sprintf("line %d: no text", n+1); code != ExitFailure || !strings.Contains(errb.String(), want) {
			t.Errorf("exit %d, %s, want %q", code, &errb, want)
		}
		if want := strings.Repeat("{\"ids\":[4,3]}\n", n); out.String() != want {
			t.Errorf("%d lines: %d bytes of output, want %d", n, out.Len(), len(want))
		}
	}
}

// Bad conversations get an answer, too.
func TestTokenizeMessagesAnswersEveryLine(t *testing.T) {
	dir := tinyTokenizer(t)
	template := filepath.Join(t.TempDir(), "t.jinja")
	const text = `{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif -%}
{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}{{ m.content }}{% endgeneration %}{% else %}{{ bos_token + m.content }}{% endif %}{% endfor %}`
	if err := os.WriteFile(template, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "tokenizer_config.json"), []byte(`{"bos_token":"<s>"}`), 0o644); err != nil {
		t.Fatal(err)
	}
	in := `{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"ab"}]}
{"messages":[{"role":"system","content":"a"}]}
{"messages":5}

{"messages":[{"role":"user","content":"\ud800"}]}
{"messages":[{"role":"user","content":"b"}],"bos_token":"<a>"}
`
	got := strings.Split(strings.TrimSuffix(inProcess(t, in, "tokenize", "--messages", "--chat-template", template, "--model", dir), "\n"), "\n")
	want := []string{
		`{"text":"<s>aab","ids":[4,1,3],"spans":[[4,6]]}`,
		`{"error":"TemplateError: no system"}`,
		`line 3`, `line 5`,
		`{"text":"<a>b","ids":[0,1,0,2],"spans":[]}`,
	}
	if len(got) != len(want) {
		t.Fatalf("%d lines, want %d: %q", len(got), len(want), got)
	}
	for i := range want {
		if strings.HasPrefix(want[i], "line") {
			if !strings.HasPrefix(got[i], `{"error":"`+want[i]+":") {
				t.Errorf("%s, want an error of %s", got[i], want[i])
			}
		} else if got[i] != want[i] {
			t.Errorf("%s, want %s", got[i], want[i])
		}
	}
}

// Any number of lines of any length keep their order.
func TestTokenizeKeepsOrder(t *testing.T) {
	dir := tinyTokenizer(t)
	var in, want strings.Builder
	for i := range 5000 {
		n := i % 17
		if i%1000 == 999 {
			n = 300_000
		}
		in.WriteString(`{"text":"` + strings.Repeat("b", n) + "\"}\n")
		want.WriteString(`{"ids":[4` + strings.Repeat(",2", n) + "]}\n")
	}
	for _, threads := range []string{"0", "1", "7"} {
		if got := inProcess(t, in.String(), "tokenize", "--model", dir, "--threads", threads); got != want.String() {
			t.Errorf("--threads %s: the output differs", threads)
		}
	}
}

// A line is answered before the next one arrives.
func TestTokenizeIsInteractive(t *testing.T) {
	cmd := talftest.Command(t, "tokenize", "--model", tinyTokenizer(t))
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(out)
	for n := range 5 {
		if _, err := io.WriteString(in, `{"text":"`+strings.Repeat("a", n)+"\"}\n{\"te"); err != nil {
			t.Fatal(err)
		}
		line, err := lines.ReadString('\n')
		if want := `{"ids":[4` + strings.Repeat(",1", n) + "]}\n"; err != nil || line != want {
			t.Fatalf("%q, %v, want %q", line, err, want)
		}
		if _, err := io.WriteString(in, "xt\":\"\"}\n"); err != nil {
			t.Fatal(err)
		}
		if line, err := lines.ReadString('\n'); err != nil || line != "{\"ids\":[4]}\n" {
			t.Fatalf("%q, %v", line, err)
		}
	}
	if err := errors.Join(in.Close(), cmd.Wait()); err != nil {
		t.Fatal(err)
	}
}

// A command that waits for input can be interrupted.
func TestTokenizeInterrupted(t *testing.T) {
	talftest.Interrupts(t)
	cmd := talftest.Command(t, "tokenize", "--model", tinyTokenizer(t))
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = errors.Join(r.Close(), w.Close()) }()
	cmd.Stdin = r
	if _, err := io.WriteString(w, "{\"text\":\"\"}\n"); err != nil {
		t.Fatal(err)
	}
	answered := filepath.Join(t.TempDir(), "out")
	out, err := os.Create(answered)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = out.Close() }()
	var errb bytes.Buffer
	cmd.Stdout, cmd.Stderr = out, &errb
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for {
		if b, err := os.ReadFile(answered); err != nil {
			t.Fatal(err)
		} else if len(b) > 0 {
			break
		}
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // the exit code is checked
	if code := cmd.ProcessState.ExitCode(); code != ExitInterrupted {
		t.Errorf("exit %d, want %d\n%s", code, ExitInterrupted, &errb)
	}
}
