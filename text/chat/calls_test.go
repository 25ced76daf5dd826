package chat_test

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"talf/text/chat"
)

// A message that only calls tools has no text by which to find it. If the template
// writes its last turn differently, the name of the function shows where the message
// is.
func TestSpansOfToolCalls(t *testing.T) {
	const source = `{%- for m in messages -%}<{{ m.role }}>
{%- if m.role == 'assistant' and loop.last %}(thought){% endif -%}
{%- if m.tool_calls %}call {{ m.tool_calls[0].function.name }} {{ m.tool_calls[0].function.arguments | tojson }}{% else %}{{ m.content }}{% endif -%};
{%- endfor -%}{%- if add_generation_prompt %}<assistant>{% endif -%}`
	const talk = `{"messages":[{"role":"user","content":"Q"},CALL,{"role":"tool","content":"3"},{"role":"assistant","content":"Three."}]}`
	for _, c := range []struct{ call, want string }{
		{`{"role":"assistant","content":null,"tool_calls":[{"function":{"name":"f","arguments":{"a":1}}}]}`, `call f {"a": 1};`},
		{`{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":{}}},{}]}`, `call f {};`},
		{`{"role":"assistant","content":"","tool_calls":[{"function":{"arguments":{}}}]}`, `call  {};`},
		{`{"role":"assistant","content":null,"tool_calls":[{"function":"f"}]}`, ""},
		{`{"role":"assistant","content":null,"tool_calls":[3]}`, ""},
	} {
		template, err := chat.Parse("test", source)
		if err != nil {
			t.Fatal(err)
		}
		conv, err := chat.ParseConversation([]byte(strings.Replace(talk, "CALL", c.call, 1)))
		if err != nil {
			t.Fatal(err)
		}
		r, err := template.RenderSpans(context.Background(), conv)
		if c.want == "" {
			if err == nil {
				t.Errorf("%s: spans %v of %q, want an error", c.call, r.Spans, r.Text)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.call, err)
			continue
		}
		var got []string
		for _, s := range r.Spans {
			got = append(got, r.Text[s.Start:s.End])
		}
		if d := cmp.Diff([]string{c.want, "(thought)Three.;"}, got); d != "" {
			t.Errorf("%s: %s", c.call, d)
		}
	}
}
