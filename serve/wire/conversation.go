package wire

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"talf/serve/wire/refuse"
)

// roles are those of the messages of a chat. Whether a template knows developer is its own matter.
var roles = []string{"system", "developer", "user", assistant, "tool", "function"}

// conversation reads the messages of a chat for its template.
func (o *object) conversation() (p Prompt) {
	messages := o.list("messages", maxMessages)
	if o.err == nil && len(messages) == 0 {
		o.fail("messages", "is empty, want at least one message")
	}
	var legacy functionCalls
	prefill := false // the last message is to be continued
	for i, m := range messages {
		in := open(fmt.Sprintf("messages[%d]", i), m)
		role := in.text("role")
		switch {
		case in.err != nil:
		case role == "":
			in.fail("role", "is missing, want system, user or assistant")
		case !slices.Contains(roles, role):
			in.fail("role", "is %q, want system, developer, user, assistant or tool", role)
		}
		changed := legacy.read(in, role)
		changed = in.called() || changed
		changed = in.plain(role) || changed
		prefill = i == len(messages)-1 && in.prefilled(role)
		if p := in.optionalBoolean("prefix"); p != nil && *p && !prefill { // DeepSeek's
			in.fail("prefix", "is true, want it of the last message alone, of the assistant, without calls")
		} else if p != nil {
			prefill = *p
		}
		if o.take(in); o.err != nil {
			return p
		}
		if changed { // otherwise its keys keep their order
			messages[i], _ = json.Marshal(in.fields) // it was read from JSON
		}
	}
	p.effort(o, "reasoning_effort")
	p.verbosity(o)
	o.variables(&p, messages, prefill)
	return p
}

// prefilled reports whether a message that is the last begins an answer.
func (o *object) prefilled(role string) bool {
	_, calls := o.has("tool_calls")
	return role == assistant && !calls
}

// variables sets what the chat template is given: messages, and the variables that the request
// adds. With prefill the last message begins the answer, as in llama.cpp's server, unless the
// request says in vLLM's words that it does not.
func (o *object) variables(p *Prompt, messages any, prefill bool) {
	c := map[string]json.RawMessage{}
	for _, h := range p.Hints {
		for name, v := range h.variables {
			c[name] = must(v)
		}
	}
	if v, ok := o.has("chat_template_kwargs"); ok { // which win
		if err := json.Unmarshal(v, &c); err != nil {
			o.fail("chat_template_kwargs", "is %s, want an object", kind(v))
			return
		}
	}
	for _, name := range []string{"messages", "add_generation_prompt", "continue_final_message", "tools"} {
		if _, ok := c[name]; ok {
			o.fail("chat_template_kwargs."+name, "is not for the template's variables")
			return
		}
	}
	generation, continues := o.optionalBoolean("add_generation_prompt"), o.optionalBoolean("continue_final_message")
	switch {
	case continues != nil:
		prefill = *continues
	case generation != nil:
		prefill = false
	}
	begins := !prefill
	if generation != nil {
		begins = *generation
	}
	if begins && prefill {
		o.fail("continue_final_message", "is true beside add_generation_prompt, want one of them")
	}
	c["messages"], _ = json.Marshal(messages)
	c["add_generation_prompt"], _ = json.Marshal(begins)
	if prefill {
		c["continue_final_message"] = json.RawMessage("true")
	}
	p.Conversation, _ = json.Marshal(c)
}

// plain turns the content of a message into a string: parts of text are joined by line breaks, as
// vLLM does for templates that expect a string. The assistant may have said nothing, which is an
// empty text, and beside calls null. It reports whether it changed anything.
func (o *object) plain(role string) bool {
	v, ok := o.has("content")
	_, given := o.fields["content"]
	_, calls := o.has("tool_calls")
	var text string
	switch {
	case o.err != nil:
		return false
	case ok && v[0] == '"':
		if !calls || string(v) != `""` {
			return false
		}
	case ok:
		s, err := o.parts("content")
		if err != nil {
			o.err = err
			return false
		}
		text = s
	case role != assistant || !given && !calls:
		what := "missing"
		if given {
			what = "null"
		}
		o.fail("content", "is %s, want a string or a list of parts", what)
		return false
	}
	if o.fields["content"], _ = json.Marshal(text); calls && text == "" {
		o.fields["content"] = json.RawMessage("null")
	}
	return true
}

func (o *object) parts(name string) (string, *refuse.Error) {
	var texts []string
	for i, p := range o.list(name, maxMessages) {
		in := open(fmt.Sprintf("%s%s[%d]", o.at, name, i), p)
		switch t := in.text("type"); {
		case in.err != nil:
		case t == "text" || t == "input_text" || t == "output_text":
			texts = append(texts, in.need("text"))
		case t == "refusal": // of an earlier answer
			texts = append(texts, in.need("refusal"))
		case t == "":
			in.fail("type", "is missing, want \"text\"")
		default:
			in.unsupported("type", "is %q: this server reads text only, and fetches nothing", t)
		}
		if in.err != nil {
			return "", in.err
		}
	}
	return strings.Join(texts, "\n"), o.err
}
