package toolcall_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"talf/internal/golden"
	"talf/text/chat"
	"talf/text/grammar"
	"talf/text/grammar/grammartest"
	"talf/text/toolcall"
)

var tools = []toolcall.Tool{
	{Name: "add", Parameters: json.RawMessage(`{"properties":{"a":{"type":"integer"}},"required":["a"],"additionalProperties":false}`)},
	{Name: "add.all", JSON: json.RawMessage(`{}`)},
}

// joined are the events of an answer that comes in pieces of n bytes.
func joined(p *toolcall.Parser, text string, n int) []toolcall.Event {
	var out []toolcall.Event
	add := func(events []toolcall.Event) {
		for _, e := range events {
			if k := len(out); k > 0 && out[k-1].Kind == e.Kind && e.Kind != toolcall.Begin {
				out[k-1].Text += e.Text
			} else {
				out = append(out, e)
			}
		}
	}
	for ; len(text) > n; text = text[n:] {
		add(p.Push(text[:n]))
	}
	add(p.Push(text))
	add(p.End())
	return out
}

// What a format writes is in its grammar, and is read as the same calls, however it comes.
func TestCallsAreWrittenAndReadAlike(t *testing.T) {
	calls := []toolcall.Call{{Name: "add", Arguments: `{"a": 1}`}, {Name: "add.all", Arguments: `{}`}}
	for _, name := range toolcall.Names() {
		f := toolcall.Find(name)
		some := calls
		if name == "llama3" || name == "harmony" {
			some = calls[:1]
		}
		for _, required := range []bool{true, false} {
			ask := toolcall.Ask{Tools: tools, Required: required}
			g, err := f.Grammar(ask, toolcall.Lexicon{Mark: func(string) (int32, bool) { return 0, false }})
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			a, err := grammar.NewAutomaton(g, grammartest.Bytes())
			if err != nil {
				t.Fatal(err)
			}
			text := strings.TrimSuffix(f.Write(some), "<|call|>") // which is a token that ends the answer
			if s := a.Read(a.Start(), []byte(text)); s == nil || !s.Accepting() {
				t.Errorf("%s: the grammar does not allow %q", name, text)
			}
			wrong := strings.Replace(text, `"a": 1`, `"a": "1"`, 1)
			if a.Read(a.Start(), []byte(wrong)) != nil {
				t.Errorf("%s: the grammar allows %q", name, wrong)
			}
			var want []toolcall.Event
			for _, c := range some {
				want = append(want, toolcall.Event{Kind: toolcall.Begin, Text: c.Name}, toolcall.Event{Kind: toolcall.Arguments, Text: c.Arguments})
			}
			for n := 1; n < 9; n++ {
				if d := cmp.Diff(want, joined(f.Parser(ask), text, n)); d != "" {
					t.Errorf("%s in pieces of %d: %s", name, n, d)
				}
			}
			// A token that a reader does not see changes nothing: what is read as a call is held to it.
			for at := range wrong {
				hidden := wrong[:at] + "\xff\x00\x00\x09" + wrong[at:]
				if s := a.Read(a.Start(), []byte(hidden)); s != nil && s.Accepting() {
					t.Errorf("%s: the grammar allows %q", name, hidden)
				}
			}
			for _, stay := range []string{"Hello \xff\x00\x00\x09there", "\xff\x00\x00\x09", "a < b\xff\xff\xff\xff"} {
				if s := a.Read(a.Start(), []byte(stay)); name != "harmony" && !required && (s == nil || !s.Accepting()) {
					t.Errorf("%s: the grammar does not allow %q", name, stay)
				}
			}
			said := a.Read(a.Start(), []byte("Hello <b>")) // no call
			if name != "harmony" && (said == nil) != required {
				t.Errorf("%s, required %v: a text is allowed: %v", name, required, said != nil)
			}
		}
	}
}

// Arguments are an object, also where a draft ignores what stands beside a reference.
func TestArgumentsAreObjects(t *testing.T) {
	f := toolcall.Find("hermes")
	for schema, allowed := range map[string]map[string]bool{
		`{"$schema":"http://json-schema.org/draft-07/schema#","definitions":{"a":{"enum":[7,[1,2],{"b":1}]}},"type":"object","$ref":"#/definitions/a"}`: {`7`: false, `[1,2]`: false, `{"b":1}`: true},
		`{"enum":["x",{}]}`: {`"x"`: false, `{}`: true},
	} {
		ask := toolcall.Ask{Tools: []toolcall.Tool{{Name: "f", Parameters: json.RawMessage(schema), Strict: true}}, Required: true}
		g, err := f.Grammar(ask, toolcall.Lexicon{Mark: func(string) (int32, bool) { return 0, false }})
		if err != nil {
			t.Fatal(err)
		}
		a, err := grammar.NewAutomaton(g, grammartest.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		for text, want := range allowed {
			s := a.Read(a.Start(), []byte(f.Write([]toolcall.Call{{Name: "f", Arguments: text}})))
			if got := s != nil && s.Accepting(); got != want {
				t.Errorf("%s: %s is allowed: %v", schema, text, got)
			}
		}
	}
}

// What is thought and what is said comes apart, and text that only looks like a call is said.
func TestTextIsDivided(t *testing.T) {
	type events = []toolcall.Event
	for _, c := range []struct {
		format, text string
		thinking     toolcall.Thinking
		want         events
	}{
		{"hermes", "<think>\nHm.\n</think>\n\nLook:\n<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 2}}\n</tool_call>", toolcall.MayThink, events{
			{Kind: toolcall.Reasoning, Text: "Hm."}, {Kind: toolcall.Content, Text: "Look:"}, {Kind: toolcall.Begin, Text: "add"}, {Kind: toolcall.Arguments, Text: `{"a": 2}`},
		}},
		{"hermes", "Hm.</think>Yes. ", toolcall.Thinks, events{{Kind: toolcall.Reasoning, Text: "Hm."}, {Kind: toolcall.Content, Text: "Yes. "}}},
		{"hermes", "a <tool_call>b", toolcall.Silent, events{{Kind: toolcall.Content, Text: "a<tool_call>b"}}},
		{"llama3", `{"name": "sub", "parameters": {}}`, toolcall.Silent, events{{Kind: toolcall.Content, Text: `{"name": "sub", "parameters": {}}`}}},
		{"llama3", `{"name": "add", "parameters": {"a": "}\"`, toolcall.Silent, events{{Kind: toolcall.Begin, Text: "add"}, {Kind: toolcall.Arguments, Text: `{"a": "}\"`}}},
		{"harmony", "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Yes.", toolcall.Silent, events{
			{Kind: toolcall.Reasoning, Text: "Hm."}, {Kind: toolcall.Content, Text: "Yes."},
		}},
		{"mistral-v11", "Look: [TOOL_CALLS]add[CALL_ID]aB3dEf9hI[ARGS]{\"a\": 2}[TOOL_CALLS]add.all[ARGS]{}", toolcall.Silent, events{
			{Kind: toolcall.Content, Text: "Look:"}, {Kind: toolcall.Begin, Text: "add"}, {Kind: toolcall.Arguments, Text: `{"a": 2}`}, {Kind: toolcall.Begin, Text: "add.all"}, {Kind: toolcall.Arguments, Text: `{}`},
		}},
		{"mistral-v11", "[TOOL_CALLS]add[CALL_ID]aB3-Ef9hI[ARGS]{}", toolcall.Silent, events{{Kind: toolcall.Content, Text: "[TOOL_CALLS]add[CALL_ID]aB3-Ef9hI[ARGS]{}"}}},
		{"mistral-v11", "[TOOL_CALLS]add[CALL_ID]aB3dEf9hIj[ARGS]{}", toolcall.Silent, events{{Kind: toolcall.Content, Text: "[TOOL_CALLS]add[CALL_ID]aB3dEf9hIj[ARGS]{}"}}},
		{"mistral-v11", "[TOOL_CALLS]add[CALL_ID]aB3", toolcall.Silent, nil},
		{"hermes", "a <tool_ca", toolcall.Silent, events{{Kind: toolcall.Content, Text: "a <tool_ca"}}},
		{"harmony", "Hm", toolcall.Silent, events{{Kind: toolcall.Content, Text: "Hm"}}},
	} {
		f := toolcall.Find(c.format)
		for n := 1; n < 12; n++ {
			if d := cmp.Diff(c.want, joined(f.Parser(toolcall.Ask{Tools: tools, Thinking: c.thinking}), c.text, n)); d != "" {
				t.Errorf("%s, %q in pieces of %d: %s", c.format, c.text, n, d)
			}
		}
	}
}

// Of an answer that is cut off anywhere, what was certain stays: text, names and the beginning of
// arguments. Nothing of what is written around calls becomes content.
func TestAnswersAreCutOff(t *testing.T) {
	calls := []toolcall.Call{{Name: "add", Arguments: `{"a": 1}`}, {Name: "add.all", Arguments: `{}`}}
	const content = "Look:"
	for _, name := range toolcall.Names() {
		f := toolcall.Find(name)
		some, before, text := calls, content, content
		switch name {
		case "llama3":
			some, before, text = calls[:1], "", ""
		case "harmony":
			some, before = calls[:1], "<|channel|>commentary<|message|>"+content+"<|end|><|start|>assistant"
		}
		begun := before + strings.TrimSuffix(f.Write(some), "<|call|>")
		for n := len(before); n <= len(begun); n++ {
			for size := 1; size < 4; size++ {
				p := f.Parser(toolcall.Ask{Tools: tools})
				said, args, named := "", "", 0
				for _, e := range joined(p, begun[:n], size) {
					switch e.Kind {
					case toolcall.Content:
						said += e.Text
					case toolcall.Begin:
						if e.Text != some[named].Name {
							t.Errorf("%s: %q is called, want %q", name, e.Text, some[named].Name)
						}
						named++
						args = ""
					case toolcall.Arguments:
						args += e.Text
					}
				}
				whole := named > 0 && args == some[named-1].Arguments
				if named > 0 && !strings.HasPrefix(some[named-1].Arguments, args) || p.Called() != whole {
					t.Errorf("%s, %q: arguments %q, called %v", name, begun[:n], args, p.Called())
				}
				// The beginning of a mark may be text.
				call := strings.Contains(begun[:n], "add") || name != "llama3" && strings.Contains(begun[:n], `"name"`)
				if call && said != text {
					t.Errorf("%s, %q: content %q", name, begun[:n], said)
				}
			}
		}
	}
}

// A text of a format that is cut off may look like a call, unless it follows one.
func TestTextsOfAFormatAreCutOff(t *testing.T) {
	type events = []toolcall.Event
	ask := toolcall.Ask{Tools: tools, Content: func(b *grammar.Builder) (grammar.Expr, error) { return b.Text("{}"), nil }}
	call := events{{Kind: toolcall.Begin, Text: "add.all"}, {Kind: toolcall.Arguments, Text: "{}"}}
	for _, c := range []struct {
		format, text string
		want         events
	}{
		{"llama3", `{"name": "ad`, events{{Kind: toolcall.Content, Text: `{"name": "ad`}}},
		{"hermes", "<tool_call>\n{\"name\": \"add.all\", \"arguments\": {}}\n</tool_call>\n<tool_call>\n{\"name\": \"ad", call},
		{"hermes", "<tool_call>\n{\"name\": \"add.all\", \"arguments\": {}}\n</tool_call>\n<tool_", call},
	} {
		for n := 1; n < 9; n++ {
			if d := cmp.Diff(c.want, joined(toolcall.Find(c.format).Parser(ask), c.text, n)); d != "" {
				t.Errorf("%s, %q in pieces of %d: %s", c.format, c.text, n, d)
			}
		}
	}
}

// However an answer is divided into pieces, its parts are the same, and none is longer than it.
func FuzzParser(f *testing.F) {
	for i, text := range []string{"<think>a</think><tool_call>\n{\"name\": \"add\", \"arguments\": {}}\n</tool_call>", `[TOOL_CALLS][{"name": "add", "arguments": {}}]`, `[TOOL_CALLS]add[CALL_ID]aB3dEf9hI[ARGS]{}`, `{"name": "add", "parameters": {}}`} {
		f.Add(byte(i), text, byte(3))
	}
	f.Fuzz(func(t *testing.T, which byte, text string, n byte) {
		names := toolcall.Names()
		format := toolcall.Find(names[int(which)%len(names)])
		ask := toolcall.Ask{Tools: tools, Thinking: toolcall.Thinking(which % 3)}
		whole := joined(format.Parser(ask), text, len(text)+1)
		if d := cmp.Diff(whole, joined(format.Parser(ask), text, 1+int(n))); d != "" {
			t.Error(d)
		}
		size := 0
		for _, e := range whole {
			size += len(e.Text)
		}
		if size > len(text) {
			t.Errorf("%d bytes of %d", size, len(text))
		}
	})
}

func TestFormatsAreDetected(t *testing.T) {
	const each = `{% for m in messages %}{% for c in m.tool_calls or [] %}`
	const arguments = `{{ c.function.arguments | tojson }}`
	for want, source := range map[string]string{
		"hermes":        `{% for t in tools %}{{ t | tojson }}{% endfor %}` + each + `<tool_call>{"name": "{{ c.function.name }}", "arguments": ` + arguments + `}</tool_call>{% endfor %}{% endfor %}`,
		"generic":       `{% for m in messages %}{{ m.content }}{% endfor %}as described`,
		"llama3":        each + `{"name": "{{ c.function.name }}", "parameters": ` + arguments + `}{% endfor %}{% endfor %}`,
		"mistral-v11":   each + `[TOOL_CALLS]{{ c.function.name }}[CALL_ID]{{ c.id }}[ARGS]` + arguments + `{% endfor %}{% endfor %}`,
		"mistral-v13":   each + `[TOOL_CALLS]{{ c.function.name }}[ARGS]` + arguments + `{% endfor %}{% endfor %}`,
		"deepseek-v3.1": each + `<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>{{ c.function.name }}<｜tool▁sep｜>` + arguments + `<｜tool▁call▁end｜><｜tool▁calls▁end｜>{% endfor %}{% endfor %}`,
		"harmony":       each + `<|start|>assistant to=functions.{{ c.function.name }}<|channel|>commentary json<|message|>` + arguments + `<|call|>{% endfor %}{% endfor %}`,
	} {
		tmpl, err := chat.Parse("test", source)
		if err != nil {
			t.Fatal(err)
		}
		s, err := toolcall.Detect(context.Background(), tmpl)
		if err != nil || s.Format.Name() != want || s.Told != (want == "hermes") {
			t.Errorf("%s: %s, told %v, %v", want, s.Format.Name(), s.Told, err)
		}
	}
}

// tokensOf returns a model's directory that names the first and the last token of texts.
func tokensOf(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "tokenizer_config.json"), []byte(`{"bos_token":"<s>","eos_token":"</s>"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// The templates of published models are known for what they are.
func TestPublishedTemplates(t *testing.T) {
	dir := tokensOf(t)
	type style struct {
		Format       string
		Told, Thinks bool
	}
	for name, want := range map[string]style{
		"Qwen-Qwen2.5-7B-Instruct":                 {"hermes", true, false},
		"Qwen-Qwen3-0.6B":                          {"hermes", true, true},
		"deepseek-ai-DeepSeek-R1-Distill-Llama-8B": {"deepseek", false, true},
		"google-gemma-2-2b-it":                     {"generic", false, false},
		"meta-llama-Llama-3.1-8B-Instruct":         {"llama3", true, false},
		"microsoft-Phi-3.5-mini-instruct":          {"generic", false, false},
		"mistralai-Mistral-Nemo-Instruct-2407":     {"mistral", true, false},
	} {
		tmpl, err := chat.LoadFile(golden.Shared(t, "data/chat/"+name+".jinja"))
		if err == nil {
			tmpl, err = tmpl.WithTokens(dir)
		}
		if err != nil {
			t.Fatal(err)
		}
		s, err := toolcall.Detect(context.Background(), tmpl)
		if got := (style{s.Format.Name(), s.Told, s.Thinks}); err != nil || got != want {
			t.Errorf("%s: %+v, want %+v: %v", name, got, want, err)
		}
	}
}

// What transformers 5.23 renders of a call with published templates (tools/goldens/calls.py) is read as that call,
// in pieces of any size.
func TestCallsThatTransformersRendersAreRead(t *testing.T) {
	b, err := os.ReadFile(filepath.Join("testdata", "rendered.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	ask := toolcall.Ask{Tools: []toolcall.Tool{{Name: "weather"}}}
	want := []toolcall.Event{{Kind: toolcall.Begin, Text: "weather"}, {Kind: toolcall.Arguments, Text: `{"city": "Zürich \"<x>\"", "days": 2}`}}
	formats := map[string]bool{}
	for line := range strings.Lines(string(b)) {
		var c struct{ Template, Format, Text string }
		if err := json.Unmarshal([]byte(line), &c); err != nil {
			t.Fatal(err)
		}
		formats[c.Format] = true
		// The token of <|call|> ends an answer, and ids come from who runs the tool: no model writes either as text.
		c.Text = strings.Replace(strings.TrimSuffix(c.Text, "<|call|>"), `, "id": "abcdef123"`, "", 1)
		for n := 1; n < 9; n++ {
			if d := cmp.Diff(want, joined(toolcall.Find(c.Format).Parser(ask), c.Text, n)); d != "" {
				t.Errorf("%s, %q in pieces of %d: %s", c.Template, c.Text, n, d)
				break
			}
		}
	}
	if len(formats) < 6 {
		t.Errorf("formats %v", formats)
	}
}

var templates = flag.String("templates", "", "directory of published chat templates, such as models/templates of llama.cpp's sources")

// published returns the template of a name and SHA-256, from -templates or from what is shared. The test skips without it.
func published(t *testing.T, name, hash string) *chat.Template {
	t.Helper()
	dir := *templates
	if dir == "" {
		if !slices.Contains(sharedTemplates, name) {
			t.Skip("the published template is not at hand: give -templates")
		}
		dir = filepath.Dir(golden.Shared(t, "data/chat/"+name+".jinja"))
	}
	b, err := os.ReadFile(filepath.Join(dir, name+".jinja"))
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprintf("%x", sha256.Sum256(b)); got != hash {
		t.Fatalf("%s has SHA-256 %s, want %s", name, got, hash)
	}
	tmpl, err := chat.Parse(name, string(b))
	if err == nil {
		tmpl, err = tmpl.WithTokens(tokensOf(t))
	}
	if err != nil {
		t.Fatal(err)
	}
	return tmpl.WithClock(func() time.Time { return time.Date(2024, 7, 26, 0, 0, 0, 0, time.UTC) })
}

var sharedTemplates = []string{
	"Qwen-Qwen2.5-7B-Instruct", "Qwen-Qwen3-0.6B", "deepseek-ai-DeepSeek-R1-Distill-Llama-8B", "meta-llama-Llama-3.1-8B-Instruct",
	"mistralai-Mistral-Nemo-Instruct-2407",
}

// Prompts of conversations with tools are those that transformers renders with published templates
// (tools/goldens/calls.py), and the format of calls is found.
func TestPromptsWithToolsAgreeWithTransformers(t *testing.T) {
	b, err := os.ReadFile(filepath.Join("testdata", "prompts.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	type prompt struct {
		Template, SHA256, Format, Name, Text, Error string
		line                                        []byte
	}
	var all []prompt
	for line := range strings.Lines(string(b)) {
		c := prompt{line: []byte(line)}
		if err := json.Unmarshal(c.line, &c); err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
	}
	for len(all) > 0 {
		n := 1
		for n < len(all) && all[n].Template == all[0].Template {
			n++
		}
		some := all[:n]
		all = all[n:]
		t.Run(some[0].Template, func(t *testing.T) {
			tmpl := published(t, some[0].Template, some[0].SHA256)
			for _, c := range some {
				talk, err := chat.ParseConversation(c.line)
				if err != nil {
					t.Fatal(err)
				}
				got, err := tmpl.Render(t.Context(), talk)
				if c.Error != "" {
					_, why, _ := strings.Cut(c.Error, ": ")
					if err == nil || !strings.Contains(err.Error(), why) {
						t.Errorf("%s: error %v, want %q", c.Name, err, c.Error)
					}
				} else if err != nil {
					t.Errorf("%s: %v", c.Name, err)
				} else if d := cmp.Diff(c.Text, got.Text); d != "" {
					t.Errorf("%s: %s", c.Name, d)
				}
			}
			if s, err := toolcall.Detect(t.Context(), tmpl); err != nil || s.Format.Name() != some[0].Format {
				t.Errorf("the format of calls is %s, want %s: %v", s.Format.Name(), some[0].Format, err)
			}
		})
	}
}

// Templates that know nothing of tools get texts, whatever the first message is.
func TestMessagesAreRewritten(t *testing.T) {
	f := toolcall.Find("generic")
	told := f.Describe(tools)
	type message struct{ Role, Content string }
	const call, result = `{"role":"assistant","content":"So:","tool_calls":[{"function":{"name":"add","arguments":"{}"}}]}`, `{"role":"tool","tool_call_id":7,"content":"1"}`
	written := message{"assistant", "So:\n" + f.Write([]toolcall.Call{{Name: "add", Arguments: "{}"}})}
	results := message{"user", "<tool_response>\n1\n</tool_response>\n<tool_response>\n1\n</tool_response>"}
	for _, c := range []struct {
		inline   bool
		messages []string
		want     []message
	}{
		{false, []string{`{"role":"user","content":"Hi"}`, call, result, result}, []message{{"system", told}, {"user", "Hi"}, written, results}},
		{false, []string{`{"role":"system","content":"Be."}`, result, result, `{"role":"user","content":"Hi"}`}, []message{{"system", "Be.\n\n" + told}, results, {"user", "Hi"}}},
		{false, []string{result, result, call}, []message{{"system", told}, results, written}},
		{false, []string{call}, []message{{"system", told}, written}},
		{true, []string{`{"role":"user","content":"Hi"}`, call}, []message{{"user", told + "\n\nHi"}, written}},
	} {
		var in []json.RawMessage
		for _, m := range c.messages {
			in = append(in, json.RawMessage(m))
		}
		out, err := toolcall.Style{Format: f}.Rewrite(in, tools, c.inline)
		if err != nil {
			t.Fatal(err)
		}
		var got []message
		for _, raw := range out {
			var m message
			if err := json.Unmarshal(raw, &m); err != nil {
				t.Fatal(err)
			}
			got = append(got, m)
		}
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%v: %s", c.messages, d)
		}
	}
}

// Between a name and its arguments a model of Mistral's may write an id, which is nine letters and digits.
func TestCallsMayHaveIDs(t *testing.T) {
	for text, want := range map[string]bool{
		"[TOOL_CALLS]add[CALL_ID]aB3dEf9hI[ARGS]{\"a\": 1}": true, "[TOOL_CALLS]add[ARGS]{\"a\": 1}": true, "[TOOL_CALLS]add[CALL_ID]aB3dEf9h[ARGS]{\"a\": 1}": false,
		"[TOOL_CALLS]add[CALL_ID]aB3dEf9h-[ARGS]{\"a\": 1}": false, "[TOOL_CALLS]add[CALL_ID]aB3dEf9hI{\"a\": 1}": false,
	} {
		for name, id := range map[string]bool{"mistral-v11": true, "mistral-v13": false} {
			g, err := toolcall.Find(name).Grammar(toolcall.Ask{Tools: tools, Required: true}, toolcall.Lexicon{Mark: func(string) (int32, bool) { return 0, false }})
			if err != nil {
				t.Fatal(err)
			}
			a, err := grammar.NewAutomaton(g, grammartest.Bytes())
			if err != nil {
				t.Fatal(err)
			}
			want := want && (id || !strings.Contains(text, "[CALL_ID]"))
			if s := a.Read(a.Start(), []byte(text)); (s != nil && s.Accepting()) != want {
				t.Errorf("%s: %q is allowed: %v, want %v", name, text, !want, want)
			}
		}
	}
}

// A format may be chosen by name: where the template does not write it, messages say how calls are written and have
// them as text.
func TestFormatsAreChosenByName(t *testing.T) {
	detected, err := toolcall.Detect(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range append(toolcall.Names(), "", "xml") {
		s, err := detected.As(toolcall.Name(name))
		if name == "xml" || name == "harmony" {
			if err == nil || !strings.Contains(err.Error(), name) || (new(toolcall.Name).Set(name) == nil) == (name == "xml") {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err != nil || name == "" && s != detected || name != "" && s.Format.Name() != name || !s.Format.Plain() || s.Told {
			t.Errorf("%q: %+v, %v", name, s, err)
			continue
		}
		call := `{"role":"assistant","content":null,"tool_calls":[{"type":"function","id":"1","function":{"name":"add","arguments":"{\"a\": 1}"}}]}`
		got, err := s.Rewrite([]json.RawMessage{json.RawMessage(`{"role":"user","content":"Hi"}`), json.RawMessage(call)}, tools, false)
		if err != nil || len(got) != 3 {
			t.Fatalf("%q: %s, %v", name, got, err)
		}
		var told, said struct{ Content string }
		if err := json.Unmarshal(got[0], &told); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(got[2], &said); err != nil {
			t.Fatal(err)
		}
		if want := s.Format.Write([]toolcall.Call{{Name: "add", Arguments: `{"a": 1}`}}); said.Content != want {
			t.Errorf("%q: a call is %q, want %q", name, said.Content, want)
		}
		if want := s.Format.Write([]toolcall.Call{{Name: "NAME", Arguments: "{…}"}}); !strings.Contains(told.Content, want) {
			t.Errorf("%q: the model is told %q, want %q in it", name, told.Content, want)
		}
	}
	if s := toolcall.Find("mistral"); s.Plain() {
		t.Error("choosing a format changed it for others")
	}
}
