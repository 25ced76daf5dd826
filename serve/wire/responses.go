package wire

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"talf/serve/wire/refuse"
)

// An asked is what a response repeats of its request.
type asked struct {
	Instructions *string
	MaxOutput    *int
	MaxTools     *int64
	Parallel     bool
	Tools        []echoedTool
	ToolChoice   json.RawMessage
	Effort       *string
	Verbosity    string
	Format       json.RawMessage
	Metadata     map[string]string
	Safety       *string
	CacheKey     *string
	User         *string
}

// logprobsIncluded is the element of "include" that asks for log probabilities.
const logprobsIncluded = "message.output_text.logprobs"

// included are the other elements of "include". They are about items that answers never have.
var included = []string{
	"reasoning.encrypted_content", "message.input_image.image_url", "file_search_call.results", "web_search_call.results",
	"web_search_call.action.sources", "code_interpreter_call.outputs", "computer_call_output.output.image_url",
}

// ParseResponses reads the body of POST /v1/responses.
func ParseResponses(body []byte) (*Request, *refuse.Error) {
	o := open("", body)
	r := o.shared(maxTemperature)
	if r.Model == "" {
		o.fail("model", "is missing, want the name of a model")
	}
	r.Stop = o.stops("stop")
	o.untraced(r)
	a := &asked{Instructions: o.optional("instructions"), Safety: o.optional("safety_identifier"), CacheKey: o.optional("prompt_cache_key"), User: o.optional("user")}
	var t talk
	if a.Instructions != nil && *a.Instructions != "" {
		t.say("system", *a.Instructions)
	}
	o.input(&t)
	p := Prompt{Tools: o.responseTools()}
	if o.length("max_output_tokens", &r.MaxTokens); r.MaxTokens > 0 {
		a.MaxOutput = &r.MaxTokens
	}
	for i, what := range o.texts("include", 16) {
		if what == logprobsIncluded {
			r.Logprobs = true
		} else if !slices.Contains(included, what) {
			o.unsupported(fmt.Sprintf("include[%d]", i), "is %q: this server can include %s", what, logprobsIncluded)
		}
	}
	if n, ok := o.integer("top_logprobs", 0, maxTop); ok {
		if r.Top = int(n); n > 0 && !r.Logprobs {
			o.fail("top_logprobs", "is %d without log probabilities, want %q in include", n, logprobsIncluded)
		}
	}
	if s := o.object("stream_options"); s != nil {
		s.boolean("include_obfuscation") // hides the lengths of tokens; events have no such field
		if o.take(s); !r.Stream {
			o.fail("stream_options", "is given without \"stream\": true")
		}
	}
	a.tools(o, p.Tools)
	o.steering(a, &p, r)
	o.variables(&p, t.turns, t.prefilled())
	r.Prompts = []Prompt{p}
	a.Metadata = o.metadata()
	o.boolean("store") // a response says that it was not
	o.refuse("previous_response_id", "this server keeps no responses: want the whole conversation in input")
	o.refuse("conversation", "this server keeps no conversations: want the whole conversation in input")
	o.refuse("prompt", "this server keeps no prompts")
	o.refuse("background", "this server answers while its client waits")
	o.refuse("truncation", "this server does not shorten prompts", `"disabled"`)
	o.refuse("context_management", "this server does not shorten prompts")
	o.elsewhere([][2]string{{"max_tokens", "max_output_tokens"}, {"max_completion_tokens", "max_output_tokens"}, {"response_format", "text.format"}, {"logprobs", "include"}})
	r.asked = a
	return o.done(r)
}

// elsewhere refuses fields of chat that would say something here if they had another name, or that
// nothing here can say: "" as the name.
func (o *object) elsewhere(names [][2]string) {
	for _, n := range names {
		why := "this API has no such field"
		if n[1] != "" {
			why += ", want " + n[1]
		}
		o.refuse(n[0], why, "0", `{"type":"text"}`)
	}
	o.refuse("n", "this API has one answer", "1")
}

// An echoedTool is a tool as a response repeats it.
type echoedTool struct {
	Type        string          `json:"type"`
	Name        string          `json:"name"`
	Description *string         `json:"description"`
	Parameters  json.RawMessage `json:"parameters"`
	Strict      bool            `json:"strict"`
}

// tools notes what the response repeats of the tools.
func (a *asked) tools(o *object, t *Tools) {
	a.Tools, a.Parallel, a.ToolChoice = []echoedTool{}, true, json.RawMessage(`"auto"`)
	if t != nil {
		for i := range t.List {
			x := &t.List[i]
			e := echoedTool{Type: "function", Name: x.Name, Parameters: x.Parameters, Strict: x.Strict}
			if x.Description != "" {
				e.Description = &x.Description
			}
			a.Tools = append(a.Tools, e)
		}
	}
	if v, ok := o.has("tool_choice"); ok {
		a.ToolChoice = v
	}
	if p := o.optionalBoolean("parallel_tool_calls"); p != nil {
		a.Parallel = *p
	}
	if n, ok := o.integer("max_tool_calls", 1, math.MaxInt32); ok { // of tools that a server runs: there are none
		a.MaxTools = &n
	}
}

// steering reads the format of the answer, and how long it is to be and how much thought about.
func (o *object) steering(a *asked, p *Prompt, to *Request) {
	if t := o.object("text"); t != nil {
		if f := t.object("format"); f != nil {
			f.format(&to.Format, "schema")
			a.Format, _ = t.has("format")
			t.take(f)
		}
		a.Verbosity = t.text("verbosity")
		p.verbosity(t)
		o.take(t)
	}
	if r := o.object("reasoning"); r != nil {
		a.Effort = r.optional("effort")
		p.effort(r, "effort")
		o.take(r)
		to.Ignored = append(to.Ignored, r.unread()...) // such as its summary
	}
}

// optional is text, or nil if the field is absent.
func (o *object) optional(name string) *string {
	if _, ok := o.has(name); !ok {
		return nil
	}
	s := o.text(name)
	return &s
}

// metadata reads pairs of text, within the bounds of OpenAI's documentation.
func (o *object) metadata() map[string]string {
	out := map[string]string{}
	m := o.object("metadata")
	if m == nil {
		return out
	}
	if len(m.fields) > maxMetadata {
		o.fail("metadata", "has %d pairs, want at most %d", len(m.fields), maxMetadata)
	}
	for key := range m.fields {
		value := m.text(key)
		if utf8.RuneCountInString(key) > 64 || utf8.RuneCountInString(value) > 512 {
			o.fail("metadata", "has a key of more than 64 characters or a value of more than 512")
		}
		out[key] = value
	}
	o.take(m)
	return out
}

// input appends what the model is to answer: a text of the user, or a list of items.
func (o *object) input(t *talk) {
	v, ok := o.has("input")
	switch {
	case !ok:
		o.fail("input", "is missing, want a text or a list of messages")
		return
	case v[0] == '"':
		t.say("user", o.text("input"))
		return
	}
	items := o.list("input", maxMessages)
	if len(items) == 0 {
		o.fail("input", "is empty, want a text or a list of messages")
	}
	for i, item := range items {
		in := open(fmt.Sprintf("input[%d]", i), item)
		in.item(t)
		if o.take(in); o.err != nil {
			return
		}
	}
	if t.rest(""); o.err == nil && len(t.turns) == 0 {
		o.fail("input", "has no message, and no call")
	}
}

// item reads an item of "input".
func (o *object) item(t *talk) {
	switch kind := o.text("type"); kind {
	case "", "message":
		o.message(t)
	case "function_call":
		t.ask(o, o.callOf(o.need("call_id"), "arguments"))
	case "function_call_output":
		t.answer(o, "call_id", o.content("output"))
	case "reasoning": // what this server wrote itself; summaries and what is encrypted are others'
		t.think(o.thoughts())
	case "item_reference":
		o.unsupported("type", "is %q: this server keeps no items", kind)
	default:
		o.unsupported("type", "is %q: this server reads messages, and calls of functions", kind)
	}
}

// message reads a message of "input".
func (o *object) message(t *talk) {
	role := o.need("role")
	system := role == "system" || role == "developer"
	if !system && role != "user" && role != assistant {
		o.fail("role", "is %q, want user, assistant, system or developer", role)
	}
	text := o.said("content", role)
	// Instructions and the system's messages that follow them are one: many templates take a
	// single one, at the beginning.
	if system && len(t.turns) == 1 && (t.turns[0].role == "system" || t.turns[0].role == "developer") {
		t.join(t.turns[0].role, text)
	} else {
		t.say(role, text)
	}
}

// thoughts reads the texts of an item of reasoning.
func (o *object) thoughts() string {
	var b strings.Builder
	for i, v := range o.list("content", maxMessages) {
		in := open(fmt.Sprintf("%scontent[%d]", o.at, i), v)
		if kind := in.text("type"); in.err == nil && kind != reasoningText {
			in.fail("type", "is %q, want %q", kind, reasoningText)
		}
		b.WriteString(in.need("text"))
		o.take(in)
	}
	return b.String()
}

// said is content, which the assistant may have as null: it said nothing.
func (o *object) said(name, role string) string {
	if v, ok := o.fields[name]; ok && role == assistant && string(v) == "null" {
		return ""
	}
	return o.content(name)
}

// content reads a text, or the texts of a list of parts.
func (o *object) content(name string) string {
	v, ok := o.has(name)
	if ok && v[0] != '"' {
		s, err := o.parts(name)
		if err != nil && o.err == nil {
			o.err = err
		}
		return s
	}
	return o.need(name)
}
