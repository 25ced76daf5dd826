package wire

import (
	"encoding/json"
	"fmt"
	"strings"

	"talf/model/sample"
	"talf/serve/wire/refuse"
)

// responses writes OpenAI's responses, whole or as named events with numbers.
type responses struct {
	*Head
	a       *asked
	sample  sample.Params
	top     int
	number  int  // of the next event
	calls   bool // the answer may call tools: it is not known which items it has
	outputs []*output
	last    Choice // with the reason for the end
}

func newResponses(h *Head, r *Request) Writer {
	return &responses{Head: h, a: r.asked, sample: r.Sample, top: r.Top, calls: r.Prompts[0].Tools != nil}
}

// The states of a response and of its message.
const (
	inProgress = "in_progress"
	completed  = "completed"
	incomplete = "incomplete"
	failed     = "failed"
)

// A response is the object of the same name. All its fields are always there.
type response struct {
	ID           string            `json:"id"`
	Object       string            `json:"object"`
	Created      int64             `json:"created_at"`
	Completed    *int64            `json:"completed_at"`
	Status       string            `json:"status"`
	Background   bool              `json:"background"`
	Error        *responseError    `json:"error"`
	Incomplete   *reason           `json:"incomplete_details"`
	Instructions *string           `json:"instructions"`
	MaxOutput    *int              `json:"max_output_tokens"`
	MaxTools     *int64            `json:"max_tool_calls"`
	Model        string            `json:"model"`
	Output       []any             `json:"output"`
	Parallel     bool              `json:"parallel_tool_calls"`
	Presence     float64           `json:"presence_penalty"`
	Frequency    float64           `json:"frequency_penalty"`
	Previous     *string           `json:"previous_response_id"`
	CacheKey     *string           `json:"prompt_cache_key"`
	Reasoning    reasoning         `json:"reasoning"`
	Safety       *string           `json:"safety_identifier"`
	Tier         string            `json:"service_tier"`
	Store        bool              `json:"store"`
	Temperature  float64           `json:"temperature"`
	Text         textOptions       `json:"text"`
	ToolChoice   json.RawMessage   `json:"tool_choice"`
	Tools        []echoedTool      `json:"tools"`
	Top          int               `json:"top_logprobs"`
	TopP         float64           `json:"top_p"`
	Truncation   string            `json:"truncation"`
	Usage        *responseUsage    `json:"usage"`
	User         *string           `json:"user"`
	Metadata     map[string]string `json:"metadata"`
	Drafting     *Drafting         `json:"talf,omitempty"`
}

type responseError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

type reason struct {
	Reason string `json:"reason"`
}

type reasoning struct {
	Effort  *string `json:"effort"`
	Summary *string `json:"summary"`
}

type textOptions struct {
	Format    json.RawMessage `json:"format"`
	Verbosity string          `json:"verbosity,omitempty"`
}

type responseUsage struct {
	Input   int `json:"input_tokens"`
	Details struct {
		Written int `json:"cache_write_tokens"` // that are paid for: none
		Cached  int `json:"cached_tokens"`
	} `json:"input_tokens_details"`
	Output        int `json:"output_tokens"`
	OutputDetails struct {
		Reasoning int `json:"reasoning_tokens"`
	} `json:"output_tokens_details"`
	Total int `json:"total_tokens"`
}

// A messageItem is a message of the model's.
type messageItem struct {
	ID      string `json:"id"`
	Type    string `json:"type"`
	Status  string `json:"status"`
	Role    string `json:"role"`
	Content []any  `json:"content"`
}

// A textPart is a text of a message.
type textPart struct {
	Type        string     `json:"type"`
	Annotations []struct{} `json:"annotations"`
	Logprobs    []token    `json:"logprobs"`
	Text        string     `json:"text"`
}

// A reasoningItem is what the model thought.
type reasoningItem struct {
	ID      string     `json:"id"`
	Type    string     `json:"type"`
	Status  string     `json:"status"`
	Summary []struct{} `json:"summary"`
	Content []any      `json:"content"`
}

type reasoningPart struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

const reasoningText = "reasoning_text"

// A callItem is a call of a function.
type callItem struct {
	ID        string `json:"id"`
	Type      string `json:"type"`
	Status    string `json:"status"`
	CallID    string `json:"call_id"`
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

// An output is an item as far as it is known.
type output struct {
	kind   partKind
	id     string
	at     int
	status string
	text   strings.Builder // or the arguments
	tokens []token
	call   Call
}

// item is the output as responses have it. One that begins has no parts yet.
func (o *output) item(begins bool) any {
	content := []any{}
	if !begins {
		content = append(content, o.part())
	}
	switch o.kind {
	case callPart:
		return callItem{o.id, "function_call", o.status, o.call.ID, o.call.Name, o.text.String()}
	case thoughtPart:
		return reasoningItem{o.id, "reasoning", o.status, []struct{}{}, content}
	}
	return messageItem{o.id, "message", o.status, assistant, content}
}

// part is the one part of the output.
func (o *output) part() any {
	if o.kind == thoughtPart {
		return reasoningPart{reasoningText, o.text.String()}
	}
	return textPart{"output_text", []struct{}{}, list(o.tokens), o.text.String()}
}

// response is the object in a state.
func (w *responses) response(status string) *response {
	r := &response{
		ID: w.ID, Object: "response", Created: w.Created, Status: status, Model: w.Model, Output: []any{}, Tier: "default", Truncation: "disabled", Tools: w.a.Tools,
		Instructions: w.a.Instructions, MaxOutput: w.a.MaxOutput, MaxTools: w.a.MaxTools, Parallel: w.a.Parallel, CacheKey: w.a.CacheKey, Safety: w.a.Safety,
		ToolChoice: w.a.ToolChoice, User: w.a.User, Metadata: w.a.Metadata, Reasoning: reasoning{Effort: w.a.Effort},
		Presence: w.sample.PresencePenalty, Frequency: w.sample.FrequencyPenalty, Temperature: w.sample.Temperature, TopP: w.sample.TopP, Top: w.top,
	}
	if r.Text.Verbosity, r.Text.Format = w.a.Verbosity, w.a.Format; r.Text.Format == nil {
		r.Text.Format = json.RawMessage(`{"type":"text"}`)
	}
	return r
}

// ended is the object once the answer has ended.
func (w *responses) ended(u Usage) *response {
	r := w.response(completed)
	now := w.Clock()
	r.Completed = &now
	if w.last.Finish == Length {
		r.Status, r.Completed, r.Incomplete = incomplete, nil, &reason{"max_output_tokens"}
	}
	for _, o := range w.outputs {
		r.Output = append(r.Output, o.item(false))
	}
	r.Usage = &responseUsage{Input: u.Prompt, Output: u.Answer, Total: u.Prompt + u.Answer}
	r.Usage.Details.Cached = u.Cached
	r.Drafting = w.last.Drafting
	return r
}

func (w *responses) Whole(cs []Choice, u Usage) []byte {
	if !w.calls {
		w.open(saidPart, nil)
	}
	for _, c := range cs[0].parts() {
		w.take(c)
	}
	w.last = cs[0]
	w.close(true)
	return must(w.ended(u))
}

// An event is what all events have and, of the rest, what its kind has.
type event struct {
	Type      string    `json:"type"`
	Number    int       `json:"sequence_number"`
	Response  *response `json:"response,omitempty"`
	ID        string    `json:"item_id,omitempty"`
	Output    *int      `json:"output_index,omitempty"`
	Item      any       `json:"item,omitempty"`
	Content   *int      `json:"content_index,omitempty"`
	Part      any       `json:"part,omitempty"`
	Delta     *string   `json:"delta,omitempty"`
	Text      *string   `json:"text,omitempty"`
	Arguments *string   `json:"arguments,omitempty"`
	Logprobs  *[]token  `json:"logprobs,omitempty"`
}

func (w *responses) event(e event) []byte {
	e.Number = w.number
	w.number++
	return namedEvent(e.Type, must(e))
}

// of is an event of an output, and ofPart one of its part.
func (w *responses) of(o *output, e event) []byte {
	e.ID, e.Output = o.id, &o.at
	return w.event(e)
}

func (w *responses) ofPart(o *output, e event) []byte {
	e.Content = new(int)
	return w.of(o, e)
}

// open begins an output with a part of the answer.
func (w *responses) open(kind partKind, c *Choice) []byte {
	o := &output{kind: kind, at: len(w.outputs), status: inProgress}
	o.id = [...]string{saidPart: messageID, thoughtPart: "rs_", callPart: "fc_"}[kind] + strings.TrimPrefix(w.ID, responseID)
	if o.at > 0 {
		o.id += fmt.Sprintf("_%d", o.at)
	}
	if kind == callPart {
		o.call = c.Calls[0]
	}
	w.outputs = append(w.outputs, o)
	b := w.event(event{Type: "response.output_item.added", Output: &o.at, Item: o.item(true)})
	if kind != callPart {
		b = append(b, w.ofPart(o, event{Type: "response.content_part.added", Part: o.part()})...)
	}
	return b
}

// close ends the output that is being written; ends says that the answer does so, too.
func (w *responses) close(ends bool) (b []byte) {
	o := last(w.outputs)
	if o == nil || o.status != inProgress {
		return nil
	}
	o.status = completed
	if ends && (w.last.Finish == Length || o.kind == callPart && w.last.Finish != Called) {
		o.status = incomplete
	}
	text := o.text.String()
	switch o.kind {
	case callPart:
		b = w.of(o, event{Type: "response.function_call_arguments.done", Arguments: &text})
	case thoughtPart:
		b = w.ofPart(o, event{Type: "response.reasoning_text.done", Text: &text})
	default:
		tokens := list(o.tokens)
		b = w.ofPart(o, event{Type: "response.output_text.done", Text: &text, Logprobs: &tokens})
	}
	if o.kind != callPart {
		b = append(b, w.ofPart(o, event{Type: "response.content_part.done", Part: o.part()})...)
	}
	return append(b, w.event(event{Type: "response.output_item.done", Output: &o.at, Item: o.item(false)})...)
}

func (w *responses) Begin([]Choice, Usage) []byte {
	b := w.event(event{Type: "response.created", Response: w.response(inProgress)})
	b = append(b, w.event(event{Type: "response.in_progress", Response: w.response(inProgress)})...)
	if !w.calls {
		b = append(b, w.open(saidPart, nil)...)
	}
	return b
}

func (w *responses) Part(c Choice) []byte { return w.take(c) }

// take takes a part of the answer and returns its events. Only texts have log probabilities.
func (w *responses) take(c Choice) (b []byte) {
	w.last = c
	o := last(w.outputs)
	kind, text := c.part()
	if kind == noPart {
		if o != nil && o.kind == saidPart {
			o.tokens = append(o.tokens, spelled(c.Tokens)...)
		}
		return nil
	}
	if o == nil || o.kind != kind || c.begins() {
		b = append(w.close(false), w.open(kind, &c)...)
		o = last(w.outputs)
	}
	o.text.WriteString(text)
	switch {
	case kind == saidPart:
		logprobs := spelled(c.Tokens)
		o.tokens = append(o.tokens, logprobs...)
		return append(b, w.ofPart(o, event{Type: "response.output_text.delta", Delta: &text, Logprobs: &logprobs})...)
	case kind == thoughtPart:
		return append(b, w.ofPart(o, event{Type: "response.reasoning_text.delta", Delta: &text})...)
	case text != "":
		return append(b, w.of(o, event{Type: "response.function_call_arguments.delta", Delta: &text})...)
	}
	return b
}

func (w *responses) End(u Usage) []byte {
	b := w.close(true)
	r := w.ended(u)
	return append(b, w.event(event{Type: "response." + r.Status, Response: r})...)
}

// Fail repeats what there is in a response that failed.
func (w *responses) Fail(e *refuse.Error) []byte {
	r := w.response(failed)
	r.Error = &responseError{Code: "server_error", Message: e.Error()}
	if e.Code != "" {
		r.Error.Code = e.Code
	}
	for _, o := range w.outputs {
		if o.status == inProgress {
			o.status = incomplete
		}
		if o.text.Len() > 0 || o.kind == callPart {
			r.Output = append(r.Output, o.item(false))
		}
	}
	return w.event(event{Type: "response.failed", Response: r})
}

func (w *responses) Ping() []byte { return []byte(ping) }
