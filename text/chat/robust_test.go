package chat_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"talf/text/chat"
)

func parse(t testing.TB, source string) *chat.Template {
	t.Helper()
	tmpl, err := chat.Parse("test", source)
	if err != nil {
		t.Fatal(err)
	}
	return tmpl
}

// conversation parses messages.
func conversation(msgs ...chat.Message) *chat.Conversation {
	c, err := chat.ParseConversation((&chat.Transcript{}).JSON(msgs))
	if err != nil {
		panic(err)
	}
	return c
}

// hello is a conversation of one turn.
func hello() *chat.Conversation {
	return conversation(chat.NewMessage("user", "Hi"))
}

func TestRenderingIsBounded(t *testing.T) {
	if testing.Short() {
		t.Skip("uses up a template's limits, many times")
	}
	cases := map[string]struct{ source, kind string }{
		"a range too long":             {"{% for i in range(10**9) %}{% endfor %}", "OverflowError"},
		"loops in loops":               {"{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", "LimitError"},
		"loops that write":             {"{% for a in range(99999) %}{% for b in range(99999) %}xxxxxxxxxxxxxxxx{% endfor %}{% endfor %}", "LimitError"},
		"a repeated text":              {"{{ 'x' * 10**12 }}", "LimitError"},
		"a repeated list":              {"{{ [0] * 10**12 }}", "LimitError"},
		"a text that doubles":          {"{% set ns = namespace(s='x') %}{% for i in range(99) %}{% set ns.s = ns.s + ns.s %}{% endfor %}", "LimitError"},
		"a text that doubles by ~":     {"{% set ns = namespace(s='x') %}{% for i in range(99) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}", "LimitError"},
		"a list that doubles":          {"{% set ns = namespace(s=[0]) %}{% for i in range(99) %}{% set ns.s = ns.s + ns.s %}{% endfor %}", "LimitError"},
		"many large texts":             {"{% set ns = namespace(s=[]) %}{% for i in range(9999) %}{% set ns.s = ns.s + ['x' * 10**7] %}{% endfor %}", "LimitError"},
		"text doubled by replace":      {"{% set ns = namespace(s='xx') %}{% for i in range(99) %}{% set ns.s = ns.s.replace('x', ns.s) %}{% endfor %}", "LimitError"},
		"text grown by join":           {"{% set s = 'x' * 10**6 %}{{ s.join(['a'] * 10**5) }}", "LimitError"},
		"text grown by the filter":     {"{% set s = 'x' * 10**6 %}{{ (['a'] * 10**5) | join(s) }}", "LimitError"},
		"text grown by captures":       {"{% set ns = namespace(s='x') %}{% for i in range(99) %}{% set q %}{{ ns.s }}{{ ns.s }}{% endset %}{% set ns.s = q %}{% endfor %}", "LimitError"},
		"a value that contains itself": {"{% set ns = namespace() %}{% set ns.x = [ns] %}{{ ns }}", "RecursionError"},
		"a deep value":                 {"{% set ns = namespace(x=[]) %}{% for i in range(99999) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x }}", "RecursionError"},
		"a deep value as JSON":         {"{% set ns = namespace(x=[]) %}{% for i in range(99999) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x | tojson }}", "RecursionError"},
		"deep values compared":         {"{% set ns = namespace(x=[], y=[]) %}{% for i in range(99999) %}{% set ns.x = [ns.x] %}{% set ns.y = [ns.y] %}{% endfor %}{{ ns.x == ns.y }}", "RecursionError"},
		"a value wide by sharing":      {"{% set ns = namespace(x=[0]) %}{% for i in range(40) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x }}", "LimitError"},
		"wide values compared":         {"{% set ns = namespace(x=[0], y=[0]) %}{% for i in range(40) %}{% set ns.x = [ns.x, ns.x] %}{% set ns.y = [ns.y, ns.y] %}{% endfor %}{{ ns.x == ns.y }}", "LimitError"},
		"a wide value as JSON":         {"{% set ns = namespace(x=[]) %}{% for i in range(40) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x | tojson | length }}", "LimitError"},
		"a macro without end":          {"{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "RecursionError"},
		"two macros without end":       {"{% macro f(g) %}{{ g(f) }}{% endmacro %}{% macro h(g) %}{{ g(h) }}{% endmacro %}{{ f(h) }}", "RecursionError"},
		"a loop without end":           {"{% for x in [1] recursive %}{{ loop([x]) }}{% endfor %}", "RecursionError"},
		"macros that fan out":          {"{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}", "LimitError"},
		"a large power":                {"{{ 9 ** (9 ** 9) }}", "LimitError"},
		"a power of powers":            {"{% set ns = namespace(x=3) %}{% for i in range(99) %}{% set ns.x = ns.x * ns.x %}{% endfor %}", "LimitError"},
		"a wide format":                {"{{ '%999999999d' % 1 }}", "LimitError"},
		"a precise format":             {"{{ '{:.999999999f}'.format(1.5) }}", "LimitError"},
		"a wide format by a name":      {"{{ '%(x)999999999d' % {'x': 1} }}", "LimitError"},
		"a wide field":                 {"{{ '{:9999999999}'.format('x') }}", "LimitError"},
		"a large indent":               {"{{ ('x\\n' * 9999) | indent(10**6) }}", "LimitError"},
		"an indented JSON":             {"{{ range(9999) | list | tojson(indent=10**6) }}", "LimitError"},
		"an iterator of itself":        {"{% set ns = namespace(g=[1]) %}{% for i in range(99999) %}{% set ns.g = ns.g | map('string') %}{% endfor %}{{ ns.g | list }}", "RecursionError"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := parse(t, c.source).Render(context.Background(), hello())
			runtime.ReadMemStats(&after)
			var e *chat.EvalError
			if !errors.As(err, &e) || e.Kind != c.kind {
				t.Fatalf("error %v, want a %s", err, c.kind)
			}
			if e.Line != 1 {
				t.Errorf("line %d, want 1", e.Line)
			}
			if n := after.TotalAlloc - before.TotalAlloc; n > 2<<30 {
				t.Errorf("made %d MiB of garbage", n>>20)
			}
		})
	}
}

func TestDeeplyNestedSourceIsRefused(t *testing.T) {
	const n = 20000
	for name, source := range map[string]string{
		"parentheses": "{{ " + strings.Repeat("(", n) + "1" + strings.Repeat(")", n) + " }}",
		"lists":       "{{ " + strings.Repeat("[", n) + strings.Repeat("]", n) + " }}",
		"not":         "{{ " + strings.Repeat("not ", n) + "1 }}",
		"minus":       "{{ 1" + strings.Repeat(" - -", n) + "1 }}",
		"minuses":     "{{ " + strings.Repeat("-", n) + "1 }}",
		"sum":         "{{ 1" + strings.Repeat(" + 1", n) + " }}",
		"or":          "{{ 0" + strings.Repeat(" or 0", n) + " }}",
		"attributes":  "{{ a" + strings.Repeat(".a", n) + " }}",
		"calls":       "{{ a" + strings.Repeat("()", n) + " }}",
		"filters":     "{{ 1" + strings.Repeat(" | string", n) + " }}",
		"tests":       "{{ 1" + strings.Repeat(" is defined", n) + " }}",
		"blocks":      strings.Repeat("{% if 1 %}", n) + strings.Repeat("{% endif %}", n),
		"branches":    "{% if 0 %}" + strings.Repeat("{% elif 0 %}", n) + "{% endif %}",
		"conditions":  "{{ 1" + strings.Repeat(" if 1 else 1", n) + " }}",
		"targets":     "{% set " + strings.Repeat("(", n) + "a" + strings.Repeat(")", n) + " = 1 %}",
		"subscripts":  "{{ " + strings.Repeat("a[", n) + "1" + strings.Repeat("]", n) + " }}",
	} {
		t.Run(name, func(t *testing.T) {
			tmpl, err := chat.Parse(name, source)
			if err == nil {
				_, err = tmpl.Render(context.Background(), hello())
			}
			var e *chat.EvalError
			if !errors.As(err, &e) || e.Kind == "InternalError" {
				t.Errorf("error %v, want an EvalError", err)
			}
		})
	}
}

// over is a context that ends when it has been looked at some times.
type over struct {
	context.Context
	left int // looks
}

func (o *over) Err() error {
	if o.left--; o.left > 0 {
		return nil
	}
	return context.DeadlineExceeded
}

func TestRenderStopsWithItsContext(t *testing.T) {
	tmpl := parse(t, "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}")
	o := &over{t.Context(), 100}
	if _, err := tmpl.Render(o, hello()); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v, want the deadline", err)
	}
	if o.left != 0 {
		t.Errorf("it went on after the end of its context: looks left %d", o.left)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := parse(t, "x").Render(ctx, hello()); err == nil {
		t.Error("rendered although its context had ended")
	}
}

func TestATemplateReachesNeitherFilesNorGo(t *testing.T) {
	for _, source := range []string{
		"{% include '/etc/passwd' %}", "{% import 'x' as y %}", "{% from 'x' import y %}", "{% extends 'x' %}",
		"{{ messages.Items }}", "{{ messages[0].All }}", "{{ range.call }}", "{{ loop.r }}", "{{ ''.__class__.__mro__ }}",
		"{{ namespace.__init__.__globals__ }}", "{{ messages.append(1) }}", "{{ '{0.__class__.__mro__}'.format(1) }}",
		"{{ messages | attr('__class__') | attr('__mro__') }}",
	} {
		tmpl, err := chat.Parse("x", source)
		var r *chat.Rendered
		if err == nil {
			r, err = tmpl.Render(context.Background(), hello())
		}
		if err == nil && r.Text != "" {
			t.Errorf("%s rendered %q", source, r.Text)
		}
	}
}

func TestErrorsNameTemplateAndLine(t *testing.T) {
	_, err := chat.Parse("my.jinja", "a\n{% if %}")
	if want := "chat template my.jinja, line 2: TemplateSyntaxError: Expected an expression, got 'end of statement block'"; err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
	tmpl := parse(t, "\n\n{{ raise_exception('No.') }}")
	_, err = tmpl.Render(context.Background(), hello())
	if want := "chat template test, line 3: TemplateError: No."; err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
	var raised *chat.RaisedError
	if !errors.As(err, &raised) || raised.Message != "No." || raised.Line != 3 {
		t.Errorf("%#v, want a RaisedError", err)
	}
}

func TestConversationErrorsNameTheField(t *testing.T) {
	for line, want := range map[string]string{
		`[]`:                      "conversation: a list, want an object with messages",
		`{}`:                      "conversation: messages: missing",
		`{"messages": 1}`:         "conversation: messages: a number, want a list of objects",
		`{"messages": [{}, "x"]}`: "conversation: messages[1]: a string, want an object",
		`{"messages": [], "add_generation_prompt": "yes"}`: "conversation: add_generation_prompt: a string, want true or false",
		`{"messages": [], "tools": {}}`:                    "conversation: tools: an object, want a list of objects",
		`{"messages": [], "tools": [1]}`:                   "conversation: tools[0]: a number, want an object",
		`{"messages": [{"content": "\ud800"}]}`:            "conversation: JSON at byte 27: half of a surrogate pair",
		`{"messages": [}`:                                  "conversation: JSON at byte 14: want a value",
		`{"messages": []} x`:                               "conversation: JSON at byte 17: more text after the value",
		"{\"messages\": [\"\xff\"]}":                       "conversation: not UTF-8",
		`{"messages": ` + strings.Repeat("[", 1000):        "conversation: JSON at byte 513: nested deeper than 500",
	} {
		_, err := chat.ParseConversation([]byte(line))
		if err == nil || err.Error() != want {
			t.Errorf("%.60s: error %v, want %s", line, err, want)
		}
	}
}

func TestLoad(t *testing.T) {
	write := func(dir, name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	render := func(t *testing.T, tmpl *chat.Template, line string) string {
		t.Helper()
		c, err := chat.ParseConversation([]byte(line))
		if err != nil {
			t.Fatal(err)
		}
		r, err := tmpl.Render(context.Background(), c)
		if err != nil {
			t.Fatal(err)
		}
		return r.Text
	}
	const plain, tools = `{"messages": []}`, `{"messages": [], "tools": [{"a": 1}]}`

	t.Run("a text, with tokens of both files", func(t *testing.T) {
		dir := t.TempDir()
		write(dir, "tokenizer_config.json", `{"chat_template": "{{ bos_token }}|{{ eos_token }}|{{ unk_token }}|{{ pad_token }}", "bos_token": "<s>", "eos_token": {"content": "</s>", "lstrip": false}, "pad_token": null}`)
		write(dir, "special_tokens_map.json", `{"bos_token": "<old>", "unk_token": {"content": "<unk>"}}`)
		tmpl, err := chat.Load(dir)
		if err != nil {
			t.Fatal(err)
		}
		if got := render(t, tmpl, plain); got != "<s>|</s>|<unk>|" {
			t.Errorf("got %q", got)
		}
		if got := render(t, tmpl, `{"messages": [], "bos_token": "<own>"}`); got != "<own>|</s>|<unk>|" {
			t.Errorf("a variable does not override a token: %q", got)
		}
	})
	t.Run("a list", func(t *testing.T) {
		dir := t.TempDir()
		write(dir, "tokenizer_config.json", `{"chat_template": [{"name": "default", "template": "D"}, {"name": "tool_use", "template": "T"}, {"name": "rag", "template": "{% bad"}]}`)
		tmpl, err := chat.Load(dir)
		if err != nil {
			t.Fatal(err)
		}
		if got := render(t, tmpl, plain) + render(t, tmpl, tools); got != "DT" {
			t.Errorf("got %q, want DT", got)
		}
	})
	t.Run("the file wins", func(t *testing.T) {
		dir := t.TempDir()
		write(dir, "tokenizer_config.json", `{"chat_template": "config", "eos_token": "E"}`)
		write(dir, "chat_template.jinja", "file{{ eos_token }}")
		tmpl, err := chat.Load(dir)
		if err != nil {
			t.Fatal(err)
		}
		if got := render(t, tmpl, plain); got != "fileE" {
			t.Errorf("got %q", got)
		}
		if err := os.Mkdir(filepath.Join(dir, "additional_chat_templates"), 0o700); err != nil {
			t.Fatal(err)
		}
		write(filepath.Join(dir, "additional_chat_templates"), "tool_use.jinja", "tools")
		if tmpl, err = chat.Load(dir); err != nil {
			t.Fatal(err)
		}
		if got := render(t, tmpl, plain) + render(t, tmpl, tools); got != "fileEtools" {
			t.Errorf("got %q, want fileEtools", got)
		}
	})
	for name, config := range map[string]string{
		"no template":       `{}`,
		"a number":          `{"chat_template": 1}`,
		"no default":        `{"chat_template": [{"name": "rag", "template": ""}]}`,
		"a bad template":    `{"chat_template": "{% if"}`,
		"a bad token":       `{"chat_template": "", "bos_token": 1}`,
		"no object":         `[]`,
		"a token of {text}": `{"chat_template": "", "bos_token": {"text": "x"}}`,
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write(dir, "tokenizer_config.json", config)
			_, err := chat.Load(dir)
			if err == nil || !strings.Contains(err.Error(), dir) {
				t.Errorf("error %v, want one that names the file", err)
			}
			if errors.Is(err, os.ErrNotExist) != (name == "no template") {
				t.Errorf("error %v: is it fs.ErrNotExist?", err)
			}
		})
	}
}

func TestConcurrentRendering(t *testing.T) {
	tmpl := parse(t, llama).WithClock(clock)
	conv := dialogue(4)
	want, err := tmpl.Render(context.Background(), conv)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 50 {
				got, err := tmpl.Render(context.Background(), conv)
				if err != nil || got.Text != want.Text {
					t.Errorf("another text, error %v", err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// The spans found by rendering prefixes equal those that a template marks.
func TestRenderSpansFindsMarkedSpans(t *testing.T) {
	for _, name := range own {
		source, err := os.ReadFile(template(t, name))
		if err != nil {
			t.Fatal(err)
		}
		s := string(source)
		bare := parse(t, strings.NewReplacer("{% generation %}", "", "{% endgeneration %}", "").Replace(s))
		marked := parse(t, s)
		for _, c := range readCases(t, name) {
			conv, err := chat.ParseConversation(c.line)
			if err != nil {
				t.Fatal(err)
			}
			if name == "chatml" {
				// The end of a turn is the token that the model is trained to finish
				// with.
				if conv, err = conv.WithVariable("eos_token", []byte(`"<|im_end|>"`)); err != nil {
					t.Fatal(err)
				}
			}
			want, err := marked.Render(context.Background(), conv)
			if err != nil {
				continue
			}
			got, err := bare.RenderSpans(context.Background(), conv)
			if err != nil {
				t.Errorf("%s %s: %v", name, c.Name, err)
				continue
			}
			if got.Marked || got.Text != want.Text {
				t.Errorf("%s %s: marked %v, text %q, want %q", name, c.Name, got.Marked, got.Text, want.Text)
			}
			// A marked span may begin after the generation prompt's space.
			if diff := cmp.Diff(words(want), words(got)); diff != "" {
				t.Errorf("%s %s: (-marked +found):\n%s", name, c.Name, diff)
			}
		}
	}
}

// words returns the texts of spans without surrounding white space.
func words(r *chat.Rendered) []string {
	var out []string
	for _, s := range r.Spans {
		if w := strings.TrimSpace(r.Text[s.Start:s.End]); w != "" {
			out = append(out, w)
		}
	}
	return out
}

func TestRenderSpansWhereHistoryIsRewritten(t *testing.T) {
	// Reasoning is dropped from all turns except the last, which gets a block of it.
	const source = `{% for m in messages %}<{{ m.role }}>{% if m.role == 'assistant' %}` +
		`{% if loop.last %}<think>{{ m.content.split('</think>')[0] if '</think>' in m.content }}</think>{% endif %}{{ m.content.split('</think>')[-1] | trim }}` +
		`{% else %}{{ m.content }}{% endif %}<end>
{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}`
	conv := conversation(chat.NewMessage("user", "a"), chat.NewMessage("assistant", "one</think> A "),
		chat.NewMessage("user", "b"), chat.NewMessage("assistant", "B"), chat.NewMessage("user", "c"), chat.NewMessage("assistant", "three</think>C"))
	conv, err := conv.WithVariable("eos_token", []byte(`"<end>"`))
	if err != nil {
		t.Fatal(err)
	}
	r, err := parse(t, source).RenderSpans(context.Background(), conv)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"A<end>", "B<end>", "<think>three</think>C<end>"}
	if diff := cmp.Diff(want, words(r)); diff != "" {
		t.Errorf("%q (-want +got):\n%s", r.Text, diff)
	}
}

func TestRenderSpansOfPublishedTemplates(t *testing.T) {
	for name, want := range map[string][]string{
		"Qwen-Qwen2.5-7B-Instruct":                 {"One.<|im_end|>", "Two.<|im_end|>"},
		"Qwen-Qwen3-0.6B":                          {"One.<|im_end|>", "<think>\nhm\n</think>\n\nTwo.<|im_end|>"},
		"deepseek-ai-DeepSeek-R1-Distill-Llama-8B": {"One.<｜end▁of▁sentence｜>", "Two.<｜end▁of▁sentence｜>"},
		"google-gemma-2-2b-it":                     {"One.<end_of_turn>", "Two.<end_of_turn>"},
		"meta-llama-Llama-3.1-8B-Instruct":         {"One.<|eot_id|>", "Two.<|eot_id|>"},
		"microsoft-Phi-3.5-mini-instruct":          {"One.<|end|>", "Two.<|end|>"},
		"mistralai-Mistral-Nemo-Instruct-2407":     {"One.<eos>", "Two.<eos>"},
	} {
		t.Run(name, func(t *testing.T) {
			tmpl, err := chat.LoadFile(template(t, name))
			if err != nil {
				t.Fatal(err)
			}
			eos := map[string]string{
				"Qwen-Qwen2.5-7B-Instruct": "<|im_end|>", "Qwen-Qwen3-0.6B": "<|im_end|>", "meta-llama-Llama-3.1-8B-Instruct": "<|eot_id|>",
			}[name]
			if eos == "" {
				eos = "<eos>"
			}
			think := func(s string) string {
				if strings.HasPrefix(name, "Qwen-Qwen3") || strings.HasPrefix(name, "deepseek") {
					return "<think>\nhm\n</think>\n\n" + s
				}
				return s
			}
			line := fmt.Sprintf(`{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": %q}, {"role": "user", "content": "b"}, {"role": "assistant", "content": %q}], "eos_token": %q, "bos_token": "<bos>"}`, think("One."), think("Two."), eos)
			conv, err := chat.ParseConversation([]byte(line))
			if err != nil {
				t.Fatal(err)
			}
			r, err := tmpl.RenderSpans(context.Background(), conv)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, words(r)); diff != "" {
				t.Errorf("%q (-want +found):\n%s", r.Text, diff)
			}
		})
	}
}

func TestRenderSpansReportsWhatItCannotFind(t *testing.T) {
	tmpl := parse(t, "{% for m in messages %}{{ m.content | upper }}{{ loop.length }}{% endfor %}")
	conv := conversation(chat.NewMessage("user", "a"), chat.NewMessage("assistant", "b"), chat.NewMessage("user", "c"))
	_, err := tmpl.RenderSpans(context.Background(), conv)
	if err == nil || !strings.Contains(err.Error(), "messages[1]") {
		t.Errorf("error %v, want one that names the message", err)
	}
}

// llama is a template like Llama 3.1's.
const llama = `{{- bos_token }}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content'] | trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|header|>system<|/header|>\n\n" }}
{%- if tools %}{{- tools | tojson(indent=4) }}{%- endif %}
{{- "Today: " + strftime_now("%d %b %Y") + "\n\n" + system_message + "<|eot|>" }}
{%- for message in messages %}
    {%- if not (message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|header|>' + message['role'] + '<|/header|>\n\n' + message['content'] | trim + '<|eot|>' }}
    {%- elif 'tool_calls' in message %}
        {%- for call in message.tool_calls %}
            {{- '{"name": "' + call.function.name + '", "parameters": ' + call.function.arguments | tojson + '}' }}
        {%- endfor %}
    {%- else %}
        {{- message.content | tojson if message.content is mapping else message.content }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|header|>assistant<|/header|>\n\n' }}{%- endif %}`

// dialogue returns a conversation of n questions and answers.
func dialogue(n int) *chat.Conversation {
	msgs := []chat.Message{chat.NewMessage("system", "Be terse.")}
	for i := range n {
		msgs = append(msgs, chat.NewMessage("user", fmt.Sprintf("Question %d about trees, in a sentence of some length?", i)),
			chat.NewMessage("assistant", strings.Repeat("An answer of several words. ", 20)))
	}
	return conversation(msgs...)
}

func BenchmarkRender(b *testing.B) {
	tmpl, conv := parse(b, llama), dialogue(10)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := tmpl.Render(context.Background(), conv); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkRenderSpans(b *testing.B) {
	tmpl, conv := parse(b, llama), dialogue(10)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := tmpl.RenderSpans(context.Background(), conv); err != nil {
			b.Fatal(err)
		}
	}
}

func TestPartsOfAConversation(t *testing.T) {
	whole, err := chat.ParseConversation([]byte(`{"messages": [{"role": "user", "content": "a"}, {"role": 1}, {"role": "assistant", "content": "b"}], "x": 1.50, "add_generation_prompt": true}`))
	if err != nil {
		t.Fatal(err)
	}
	if whole.Len() != 3 || whole.Role(0) != "user" || whole.Role(1) != "" || whole.Role(2) != "assistant" {
		t.Errorf("%d messages, roles %q %q %q", whole.Len(), whole.Role(0), whole.Role(1), whole.Role(2))
	}
	tmpl := parse(t, "{{ messages | length }} {{ add_generation_prompt }} {{ x }}")
	render := func(c *chat.Conversation) string {
		t.Helper()
		r, err := tmpl.Render(context.Background(), c)
		if err != nil {
			t.Fatal(err)
		}
		return r.Text
	}
	other, err := whole.WithVariable("x", []byte(`{"b": [1, "ü"], "a": null}`))
	if err != nil {
		t.Fatal(err)
	}
	got := []string{render(whole.Head(1)), render(whole.WithGenerationPrompt(false)), render(other), render(whole)}
	want := []string{"1 True 1.5", "3 False 1.5", "3 True {'b': [1, 'ü'], 'a': None}", "3 True 1.5"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for name, value := range map[string]string{"messages": "[]", "add_generation_prompt": "true", "x": "{", "tools": "1"} {
		if _, err := whole.WithVariable(name, []byte(value)); err == nil {
			t.Errorf("%s = %s is accepted", name, value)
		}
	}
}
