package wire

import (
	"fmt"
	"math"
	"net/http"
	"strings"
)

// ParseMessages reads the body of POST /v1/messages.
func ParseMessages(body []byte) (*Request, *Error) {
	o := open("", body)
	r := o.messages()
	if _, ok := o.has("max_tokens"); !ok {
		o.fail("max_tokens", "is missing, want the most tokens of the answer")
	}
	if n, ok := o.integer("max_tokens", 1, math.MaxInt32); ok {
		r.MaxTokens = int(n)
	}
	return r, o.err
}

// ParseCount reads the body of POST /v1/messages/count_tokens: a request for a message, of which the
// prompt matters.
func ParseCount(body []byte) (*Prompt, *Error) {
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
	var ts []turn
	if _, ok := o.has("system"); ok {
		if text := o.content("system"); text != "" {
			ts = append(ts, turn{"system", text})
		}
	}
	r.Prompts = []Prompt{{Conversation: o.variables(o.turns(ts))}}
	o.refuse("tools", "this server does not call tools")
	if c := o.object("tool_choice"); c != nil {
		c.refuse("type", "this server does not call tools", `"none"`, `"auto"`)
		o.take(c)
	}
	if t := o.object("thinking"); t != nil {
		t.refuse("type", "this server does not steer how a model thinks", `"disabled"`, `"adaptive"`)
		o.take(t)
	}
	if c := o.object("output_config"); c != nil {
		if f := c.object("format"); f != nil {
			f.format(&r.Format, "schema")
			c.take(f)
		}
		c.refuse("effort", "this server does not steer how a model thinks")
		o.take(c)
	}
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
func (o *object) turns(ts []turn) []turn {
	all := o.list("messages", MaxMessages)
	if o.err == nil && len(all) == 0 {
		o.fail("messages", "is empty, want at least one message")
	}
	for i, m := range all {
		in := open(fmt.Sprintf("messages[%d]", i), m)
		t := turn{Role: in.need("role")}
		switch {
		case t.Role != "user" && t.Role != "assistant" && t.Role != "system":
			in.fail("role", "is %q, want user or assistant", t.Role)
		case t.Role == "assistant" && i == len(all)-1:
			in.unsupported("role", "is \"assistant\" in the last message: this server starts a new message")
		}
		t.Content = in.content("content")
		if o.take(in); o.err != nil {
			return nil
		}
		ts = join(ts, t, "\n")
	}
	return ts
}

// A messageText is the one block of an answer.
type messageText struct {
	Type      string  `json:"type"`
	Citations *string `json:"citations"`
	Text      string  `json:"text"`
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
	ID      string        `json:"id"`
	Type    string        `json:"type"`
	Role    string        `json:"role"`
	Model   string        `json:"model"`
	Content []messageText `json:"content"`
	ending
	Usage    messageUsage `json:"usage"`
	Drafting *Drafting    `json:"talf,omitempty"`
}

// messages writes Anthropic's messages, whole or as named events.
type messages struct {
	*Head
	most int // max_tokens
	last Choice
}

func newMessages(h *Head, r *Request) Writer { return &messages{Head: h, most: r.MaxTokens} }

func (w *messages) message(content ...messageText) *anthropicMessage {
	return &anthropicMessage{ID: w.ID, Type: "message", Role: "assistant", Model: w.Model, Content: list(content)}
}

func (w *messages) ending(u Usage) (e ending) {
	reason := "end_turn"
	switch {
	case w.last.Stopped != "":
		reason, e.Sequence = "stop_sequence", &w.last.Stopped
	case w.last.Finish == Length && u.Answer < w.most:
		reason = "model_context_window_exceeded"
	case w.last.Finish == Length:
		reason = "max_tokens"
	}
	e.Reason = &reason
	return e
}

func (w *messages) Whole(cs []Choice, u Usage) []byte {
	w.last = cs[0]
	m := w.message(messageText{Type: "text", Text: cs[0].Text})
	m.ending, m.Usage, m.Drafting = w.ending(u), messageUsageOf(u), w.last.Drafting
	return must(m)
}

// A messageEvent is the kind of an event and, of the rest, what the kind has.
type messageEvent struct {
	Type     string            `json:"type"`
	Message  *anthropicMessage `json:"message,omitempty"`
	Index    *int              `json:"index,omitempty"`
	Block    *messageText      `json:"content_block,omitempty"`
	Delta    any               `json:"delta,omitempty"`
	Usage    *messageUsage     `json:"usage,omitempty"`
	Drafting *Drafting         `json:"talf,omitempty"`
}

func (e messageEvent) event() []byte { return NamedEvent(e.Type, must(e)) }

func (w *messages) Begin(_ []Choice, u Usage) []byte {
	m := w.message()
	m.Usage = messageUsageOf(u)
	b := messageEvent{Type: "message_start", Message: m}.event()
	b = append(b, messageEvent{Type: "content_block_start", Index: new(int), Block: &messageText{Type: "text"}}.event()...)
	return append(b, w.Ping()...)
}

func (w *messages) Part(c Choice) []byte {
	if w.last = c; c.Text == "" {
		return nil
	}
	return messageEvent{Type: "content_block_delta", Index: new(int), Delta: struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}{"text_delta", c.Text}}.event()
}

func (w *messages) End(u Usage) []byte {
	usage := messageUsageOf(u)
	b := messageEvent{Type: "content_block_stop", Index: new(int)}.event()
	b = append(b, messageEvent{Type: "message_delta", Delta: w.ending(u), Usage: &usage, Drafting: w.last.Drafting}.event()...)
	return append(b, messageEvent{Type: "message_stop"}.event()...)
}

func (w *messages) Fail(e *Error) []byte { return NamedEvent("error", MessagesError(e, "")) }

func (w *messages) Ping() []byte { return messageEvent{Type: "ping"}.event() }

// MessageTokens writes the response to POST /v1/messages/count_tokens.
func MessageTokens(n int) []byte {
	return must(struct {
		Input int `json:"input_tokens"`
	}{n})
}

// MessagesError writes an error in Anthropic's shape. id is the request's, or "".
func MessagesError(e *Error, id string) []byte {
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
