package wire

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"unicode/utf8"
)

// A turn is a message as chat templates expect it.
type turn struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// join appends a turn. One whose role is that of the turn before continues it.
func join(ts []turn, t turn, sep string) []turn {
	if n := len(ts); n > 0 && ts[n-1].Role == t.Role {
		ts[n-1].Content += sep + t.Content
		return ts
	}
	return append(ts, t)
}

// An asked is what a response repeats of its request.
type asked struct {
	Instructions *string
	MaxOutput    *int
	MaxTools     *int64
	Parallel     bool
	ToolChoice   string
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
func ParseResponses(body []byte) (*Request, *Error) {
	o := open("", body)
	r := o.shared(MaxTemperature)
	if r.Model == "" {
		o.fail("model", "is missing, want the name of a model")
	}
	r.Stop = o.stops("stop")
	o.untraced(r)
	a := &asked{Instructions: o.optional("instructions"), Safety: o.optional("safety_identifier"), CacheKey: o.optional("prompt_cache_key"), User: o.optional("user")}
	var ts []turn
	if a.Instructions != nil && *a.Instructions != "" {
		ts = append(ts, turn{"system", *a.Instructions})
	}
	r.Prompts = []Prompt{{Conversation: o.variables(o.input(ts))}}
	if n, ok := o.integer("max_output_tokens", 1, math.MaxInt32); ok {
		r.MaxTokens = int(n)
		a.MaxOutput = &r.MaxTokens
	}
	for i, what := range o.texts("include", 16) {
		if what == logprobsIncluded {
			r.Logprobs = true
		} else if !slices.Contains(included, what) {
			o.unsupported(fmt.Sprintf("include[%d]", i), "is %q: this server can include %s", what, logprobsIncluded)
		}
	}
	if n, ok := o.integer("top_logprobs", 0, MaxTop); ok {
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
	o.responseTools(a)
	o.responseText(a, &r.Format)
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
	return r, o.err
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

// responseTools refuses tools.
func (o *object) responseTools(a *asked) {
	o.refuse("tools", "this server does not call tools")
	o.refuse("tool_choice", "this server does not call tools", `"none"`, `"auto"`)
	a.ToolChoice, a.Parallel = "auto", true
	if _, ok := o.has("tool_choice"); ok {
		a.ToolChoice = o.text("tool_choice")
	}
	if _, ok := o.has("parallel_tool_calls"); ok {
		a.Parallel = o.boolean("parallel_tool_calls")
	}
	if n, ok := o.integer("max_tool_calls", 1, math.MaxInt32); ok {
		a.MaxTools = &n
	}
}

// responseText reads the format of the answer, and refuses what this server cannot steer: lengths,
// reasoning.
func (o *object) responseText(a *asked, to *Format) {
	if t := o.object("text"); t != nil {
		if f := t.object("format"); f != nil {
			f.format(to, "schema")
			a.Format, _ = t.has("format")
			t.take(f)
		}
		a.Verbosity = t.text("verbosity")
		t.refuse("verbosity", "this server does not steer the length of answers", `"medium"`)
		o.take(t)
	}
	if r := o.object("reasoning"); r != nil {
		a.Effort = r.optional("effort")
		r.refuse("effort", "this server does not steer how a model reasons", `"none"`)
		r.refuse("summary", "this server does not sum up reasoning")
		r.refuse("generate_summary", "this server does not sum up reasoning")
		o.take(r)
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
	if len(m.fields) > MaxMetadata {
		o.fail("metadata", "has %d pairs, want at most %d", len(m.fields), MaxMetadata)
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

// input appends what the model is to answer: a text of the user, or a list of messages.
func (o *object) input(ts []turn) []turn {
	v, ok := o.has("input")
	switch {
	case !ok:
		o.fail("input", "is missing, want a text or a list of messages")
		return nil
	case v[0] == '"':
		return append(ts, turn{"user", o.text("input")})
	}
	items := o.list("input", MaxMessages)
	if len(items) == 0 {
		o.fail("input", "is empty, want a text or a list of messages")
	}
	for i, item := range items {
		in := open(fmt.Sprintf("input[%d]", i), item)
		t := in.item()
		if o.take(in); o.err != nil {
			return nil
		}
		// Instructions and the system's messages that follow them are one: many templates take a
		// single one, at the beginning.
		if t.Role == "system" && len(ts) == 1 {
			ts = join(ts, t, "\n")
		} else {
			ts = append(ts, t)
		}
	}
	return ts
}

// item reads a message of "input".
func (o *object) item() turn {
	switch t := o.text("type"); t {
	case "", "message":
	case "item_reference":
		o.unsupported("type", "is %q: this server keeps no items", t)
	default:
		o.unsupported("type", "is %q: this server reads messages only", t)
	}
	t := turn{Role: o.need("role")}
	switch t.Role {
	case "user", "assistant", "system":
	case "developer": // the newer name
		t.Role = "system"
	default:
		o.fail("role", "is %q, want user, assistant, system or developer", t.Role)
	}
	t.Content = o.content("content")
	return t
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
