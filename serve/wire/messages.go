package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"talf/serve/wire/refuse"
)

// ParseMessages reads the body of POST /v1/messages.
func ParseMessages(body []byte) (*Request, *refuse.Error) {
	o := open("", body)
	r := o.messages()
	if _, ok := o.has("max_tokens"); !ok {
		o.fail("max_tokens", "is missing, want the most tokens of the answer")
	}
	o.length("max_tokens", &r.MaxTokens)
	return o.done(r)
}

// ParseCount reads the body of POST /v1/messages/count_tokens: a request for a message, of which the
// prompt matters.
func ParseCount(body []byte) (*Prompt, *refuse.Error) {
	o := open("", body)
	r := o.messages()
	return &r.Prompts[0], o.err
}

// messages reads what both have in common.
func (o *object) messages() *Request {
	r := o.shared(1)
	if r.Model == "" {
		o.fail("model", "is missing, want the name of a model")
	}
	r.Stop = o.stops("stop_sequences")
	o.untraced(r)
	var t talk
	if _, ok := o.has("system"); ok {
		if text := o.content("system"); text != "" {
			t.say("system", text)
		}
	}
	o.turns(&t)
	p := Prompt{Tools: o.messageTools()}
	if t := o.object("thinking"); t != nil {
		if kind := t.word("type", []string{"enabled", "disabled", "adaptive"}); kind != "adaptive" && kind != "" {
			p.hint("thinking.type", map[string]any{"enable_thinking": kind == "enabled"})
		}
		o.take(t)
		r.Ignored = append(r.Ignored, t.unread()...)
	}
	if c := o.object("output_config"); c != nil {
		if f := c.object("format"); f != nil {
			f.format(&r.Format, "schema")
			c.take(f)
		}
		p.effort(c, "effort")
		o.take(c)
	}
	o.variables(&p, t.turns, t.prefilled())
	r.Prompts = []Prompt{p}
	o.elsewhere([][2]string{{"stop", "stop_sequences"}, {"response_format", ""}, {"logprobs", ""}, {"top_logprobs", ""}})
	if f := o.object("output_format"); f != nil { // the older name
		f.format(&r.Format, "schema")
		o.take(f)
	}
	o.refuse("mcp_servers", "this server does not call tools")
	o.refuse("container", "this server runs no code")
	o.refuse("context_management", "this server does not shorten prompts")
	o.refuse("inference_geo", "this server does not choose where it runs")
	return r
}

// turns appends the messages. Those that follow one of the same role continue it, as Anthropic
// documents: many templates take none.
func (o *object) turns(t *talk) {
	all := o.list("messages", maxMessages)
	if o.err == nil && len(all) == 0 {
		o.fail("messages", "is empty, want at least one message")
	}
	for i, m := range all {
		in := open(fmt.Sprintf("messages[%d]", i), m)
		role := in.need("role")
		if role != "user" && role != assistant && role != "system" {
			in.fail("role", "is %q, want user or assistant", role)
		}
		if v, ok := in.has("content"); ok && v[0] == '[' {
			in.blocks(t, role)
		} else {
			t.join(role, in.said("content", role))
		}
		if i == len(all)-1 && role == assistant && !t.prefilled() {
			in.fail("role", "is \"assistant\" in the last message, which calls tools: want their results after it")
		}
		if o.take(in); o.err != nil {
			return
		}
	}
}

// blocks appends the blocks of a message.
func (o *object) blocks(t *talk, role string) {
	all := o.list("content", maxMessages)
	if len(all) == 0 {
		t.join(role, "")
	}
	for i, v := range all {
		in := open(fmt.Sprintf("%scontent[%d]", o.at, i), v)
		switch kind := in.text("type"); {
		case in.err != nil:
		case kind == "text":
			t.join(role, in.need("text"))
		case kind == "tool_result" && role == "user":
			text := ""
			if _, ok := in.has("content"); ok {
				text = in.content("content")
			}
			t.answer(in, "tool_use_id", text)
		case kind == "tool_use" && role == assistant:
			t.ask(in, in.callOf(in.need("id"), "input"))
		case kind == "thinking" && role == assistant:
			t.think(in.need("thinking"))
		case kind == "redacted_thinking" && role == assistant: // another server's
		case kind == "":
			in.fail("type", "is missing, want \"text\"")
		default:
			in.unsupported("type", "is %q: in messages of the role %s this server reads texts, tool_use of the assistant and tool_result of the user, and fetches nothing", kind, role)
		}
		if o.take(in); o.err != nil {
			return
		}
	}
}

// A messageText is a text of an answer.
type messageText struct {
	Type      string  `json:"type"`
	Citations *string `json:"citations"`
	Text      string  `json:"text"`
}

// A messageThought is what was thought before one. Nothing signs it.
type messageThought struct {
	Type      string `json:"type"`
	Thinking  string `json:"thinking"`
	Signature string `json:"signature"`
}

// A messageCall is a call of a tool.
type messageCall struct {
	Type   string `json:"type"`
	ID     string `json:"id"`
	Caller struct {
		Type string `json:"type"`
	} `json:"caller"` // the model itself, and no program that it wrote
	Name  string          `json:"name"`
	Input json.RawMessage `json:"input"`
}

// A block is a part of an answer as far as it is known.
type block struct {
	kind partKind
	text strings.Builder // or the arguments
	call Call
}

// wire is the block. One that begins has no text.
func (b *block) wire(begins bool) any {
	text := b.text.String()
	if begins {
		text = ""
	}
	switch b.kind {
	case callPart:
		c := messageCall{Type: "tool_use", ID: b.call.ID, Name: b.call.Name, Input: members(text)}
		c.Caller.Type = "direct"
		return c
	case thoughtPart:
		return messageThought{Type: "thinking", Thinking: text}
	}
	return messageText{Type: "text", Text: text}
}

// members is an object of arguments. Of one that was cut off it has the members that are whole.
func members(text string) json.RawMessage {
	if json.Valid([]byte(text)) {
		return json.RawMessage(text)
	}
	var b bytes.Buffer
	b.WriteByte('{')
	d := json.NewDecoder(strings.NewReader(text))
	_, err := d.Token()
	for err == nil && d.More() {
		var key json.Token
		var value json.RawMessage
		if key, err = d.Token(); err == nil {
			err = d.Decode(&value)
		}
		// A number may have gone on.
		if rest := strings.TrimSpace(text[d.InputOffset():]); err != nil || rest == "" {
			break
		}
		if b.Len() > 1 {
			b.WriteByte(',')
		}
		b.Write(must(key))
		b.WriteByte(':')
		b.Write(value)
	}
	b.WriteByte('}')
	return b.Bytes()
}

type messageUsage struct {
	Creation  *struct{} `json:"cache_creation"`
	Created   int       `json:"cache_creation_input_tokens"`
	Read      int       `json:"cache_read_input_tokens"`
	Geography *string   `json:"inference_geo"`
	Input     int       `json:"input_tokens"`
	Output    int       `json:"output_tokens"`
	Details   *struct{} `json:"output_tokens_details"`
	Tools     *struct{} `json:"server_tool_use"`
	Tier      *string   `json:"service_tier"`
}

// messageUsageOf counts tokens as Anthropic does: those read from the cache are not among the input.
func messageUsageOf(u Usage) messageUsage {
	tier := "standard"
	return messageUsage{Read: u.Cached, Input: u.Prompt - u.Cached, Output: u.Answer, Tier: &tier}
}

// An ending says why an answer ended.
type ending struct {
	Container *struct{} `json:"container"`
	Details   *struct{} `json:"stop_details"`
	Reason    *string   `json:"stop_reason"`
	Sequence  *string   `json:"stop_sequence"`
}

type anthropicMessage struct {
	ID      string `json:"id"`
	Type    string `json:"type"`
	Role    string `json:"role"`
	Model   string `json:"model"`
	Content []any  `json:"content"`
	ending
	Usage    messageUsage `json:"usage"`
	Drafting *Drafting    `json:"talf,omitempty"`
}

// messages writes Anthropic's messages, whole or as named events.
type messages struct {
	*Head
	most   int  // max_tokens
	calls  bool // the answer may call tools: it is not known which blocks it has
	blocks []*block
	last   Choice
}

func newMessages(h *Head, r *Request) Writer {
	return &messages{Head: h, most: r.MaxTokens, calls: r.Prompts[0].Tools != nil}
}

func (w *messages) message() *anthropicMessage {
	return &anthropicMessage{ID: w.ID, Type: "message", Role: assistant, Model: w.Model, Content: []any{}}
}

func (w *messages) ending(u Usage) (e ending) {
	reason := "end_turn"
	switch {
	case w.last.Stopped != "":
		reason, e.Sequence = "stop_sequence", &w.last.Stopped
	case w.last.Finish == Length && (w.most == 0 || u.Answer < w.most):
		reason = "model_context_window_exceeded"
	case w.last.Finish == Length:
		reason = "max_tokens"
	case w.last.Finish == Called:
		reason = "tool_use"
	}
	e.Reason = &reason
	return e
}

func (w *messages) Whole(cs []Choice, u Usage) []byte {
	if !w.calls {
		w.open(saidPart, nil)
	}
	for _, c := range cs[0].parts() {
		w.take(c)
	}
	w.last = cs[0]
	m := w.message()
	for _, b := range w.blocks {
		m.Content = append(m.Content, b.wire(false))
	}
	m.ending, m.Usage, m.Drafting = w.ending(u), messageUsageOf(u), w.last.Drafting
	return must(m)
}

// A messageEvent is the kind of an event and, of the rest, what the kind has.
type messageEvent struct {
	Type     string            `json:"type"`
	Message  *anthropicMessage `json:"message,omitempty"`
	Index    *int              `json:"index,omitempty"`
	Block    any               `json:"content_block,omitempty"`
	Delta    any               `json:"delta,omitempty"`
	Usage    *messageUsage     `json:"usage,omitempty"`
	Drafting *Drafting         `json:"talf,omitempty"`
}

func (e messageEvent) event() []byte { return namedEvent(e.Type, must(e)) }

// A messageDelta is more of a block.
type messageDelta struct {
	Type     string  `json:"type"`
	Text     *string `json:"text,omitempty"`
	Thinking *string `json:"thinking,omitempty"`
	JSON     *string `json:"partial_json,omitempty"`
}

// open begins a block with a part of the answer.
func (w *messages) open(kind partKind, c *Choice) []byte {
	b, at := &block{kind: kind}, len(w.blocks)
	if kind == callPart {
		b.call = c.Calls[0]
	}
	w.blocks = append(w.blocks, b)
	return messageEvent{Type: "content_block_start", Index: &at, Block: b.wire(true)}.event()
}

// close ends the block that is being written.
func (w *messages) close() []byte {
	at := len(w.blocks) - 1
	if at < 0 {
		return nil
	}
	return messageEvent{Type: "content_block_stop", Index: &at}.event()
}

func (w *messages) Begin(_ []Choice, u Usage) []byte {
	m := w.message()
	m.Usage = messageUsageOf(u)
	b := messageEvent{Type: "message_start", Message: m}.event()
	if !w.calls {
		b = append(b, w.open(saidPart, nil)...)
	}
	return append(b, w.Ping()...)
}

func (w *messages) Part(c Choice) []byte { return w.take(c) }

// take takes a part of the answer and returns its events.
func (w *messages) take(c Choice) (b []byte) {
	w.last = c
	kind, text := c.part()
	if kind == noPart {
		return nil
	}
	if now := last(w.blocks); now == nil || now.kind != kind || c.begins() {
		b = append(w.close(), w.open(kind, &c)...)
	}
	last(w.blocks).text.WriteString(text)
	delta := messageDelta{Type: "text_delta", Text: &text}
	switch kind {
	case callPart:
		delta = messageDelta{Type: "input_json_delta", JSON: &text}
	case thoughtPart:
		delta = messageDelta{Type: "thinking_delta", Thinking: &text}
	}
	at := len(w.blocks) - 1
	return append(b, messageEvent{Type: "content_block_delta", Index: &at, Delta: delta}.event()...)
}

func (w *messages) End(u Usage) []byte {
	usage := messageUsageOf(u)
	b := w.close()
	b = append(b, messageEvent{Type: "message_delta", Delta: w.ending(u), Usage: &usage, Drafting: w.last.Drafting}.event()...)
	return append(b, messageEvent{Type: "message_stop"}.event()...)
}

func (w *messages) Fail(e *refuse.Error) []byte { return namedEvent("error", MessagesError(e, "")) }

func (w *messages) Ping() []byte { return messageEvent{Type: "ping"}.event() }

// MessageTokens writes the response to POST /v1/messages/count_tokens.
func MessageTokens(n int) []byte {
	return must(struct {
		Input int `json:"input_tokens"`
	}{n})
}

// MessagesError writes an error in Anthropic's shape. id is the request's, or "".
func MessagesError(e *refuse.Error, id string) []byte {
	kinds := map[int]string{
		http.StatusUnauthorized: "authentication_error", http.StatusForbidden: "permission_error", http.StatusNotFound: "not_found_error",
		http.StatusRequestEntityTooLarge: "request_too_large", http.StatusTooManyRequests: "rate_limit_error",
		http.StatusServiceUnavailable: "overloaded_error", http.StatusGatewayTimeout: "timeout_error",
	}
	kind := kinds[e.Status]
	switch {
	case kind != "":
	case e.Status < http.StatusInternalServerError:
		kind = "invalid_request_error"
	default:
		kind = "api_error"
	}
	type body struct {
		Type    string `json:"type"`
		Message string `json:"message"`
	}
	var request *string
	if id = strings.TrimSpace(id); id != "" {
		request = &id
	}
	return must(struct {
		Type    string  `json:"type"`
		Error   body    `json:"error"`
		Request *string `json:"request_id"`
	}{"error", body{kind, e.Error()}, request})
}
