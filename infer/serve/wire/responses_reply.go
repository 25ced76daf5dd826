package wire

import (
	"encoding/json"
	"strings"

	"talf/model/sample"
)

// responses writes OpenAI's responses, whole or as named events with numbers.
type responses struct {
	*Head
	a       *asked
	sample  sample.Params
	top     int
	number  int // of the next event
	text    strings.Builder
	tokens  []token
	last    Choice // with the reason for the end
	message string // id of the one item
}

func newResponses(h *Head, r *Request) Writer {
	w := &responses{Head: h, a: r.asked, sample: r.Sample, top: r.Top, tokens: []token{}}
	w.message = messageID + strings.TrimPrefix(h.ID, responseID)
	return w
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
	Output       []item            `json:"output"`
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
	ToolChoice   string            `json:"tool_choice"`
	Tools        []struct{}        `json:"tools"`
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

// An item is a message of the model's.
type item struct {
	ID      string `json:"id"`
	Type    string `json:"type"`
	Status  string `json:"status"`
	Role    string `json:"role"`
	Content []part `json:"content"`
}

// A part is a text of a message.
type part struct {
	Type        string     `json:"type"`
	Annotations []struct{} `json:"annotations"`
	Logprobs    []token    `json:"logprobs"`
	Text        string     `json:"text"`
}

// response is the object in a state.
func (w *responses) response(status string) *response {
	r := &response{
		ID: w.ID, Object: "response", Created: w.Created, Status: status, Model: w.Model, Output: []item{}, Tier: "default", Truncation: "disabled", Tools: []struct{}{},
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
	r.Output = []item{w.item(r.Status, w.part())}
	r.Usage = &responseUsage{Input: u.Prompt, Output: u.Answer, Total: u.Prompt + u.Answer}
	r.Usage.Details.Cached = u.Cached
	r.Drafting = w.last.Drafting
	return r
}

func (w *responses) item(status string, parts ...part) item {
	return item{ID: w.message, Type: "message", Status: status, Role: "assistant", Content: list(parts)}
}

// part is what is known of the text.
func (w *responses) part() part {
	return part{Type: "output_text", Annotations: []struct{}{}, Logprobs: w.tokens, Text: w.text.String()}
}

func (w *responses) take(c Choice) {
	w.text.WriteString(c.Text)
	w.tokens = append(w.tokens, spelled(c.Tokens)...)
	w.last = c
}

func (w *responses) Whole(cs []Choice, u Usage) []byte {
	w.take(cs[0])
	return must(w.ended(u))
}

// An event is what all events have and, of the rest, what its kind has.
type event struct {
	Type     string    `json:"type"`
	Number   int       `json:"sequence_number"`
	Response *response `json:"response,omitempty"`
	ID       string    `json:"item_id,omitempty"`
	Output   *int      `json:"output_index,omitempty"`
	Message  *item     `json:"item,omitempty"`
	Content  *int      `json:"content_index,omitempty"`
	Part     *part     `json:"part,omitempty"`
	Delta    *string   `json:"delta,omitempty"`
	Text     *string   `json:"text,omitempty"`
	Logprobs *[]token  `json:"logprobs,omitempty"`
}

func (w *responses) event(e event) []byte {
	e.Number = w.number
	w.number++
	return NamedEvent(e.Type, must(e))
}

// ofItem is an event of the message, ofPart one of its text.
func (w *responses) ofItem(kind string, m item) []byte {
	return w.event(event{Type: kind, Output: new(int), Message: &m})
}

func (w *responses) ofPart(e event) []byte {
	e.ID, e.Output, e.Content = w.message, new(int), new(int)
	return w.event(e)
}

func (w *responses) Begin([]Choice, Usage) []byte {
	p := w.part()
	b := w.event(event{Type: "response.created", Response: w.response(inProgress)})
	b = append(b, w.event(event{Type: "response.in_progress", Response: w.response(inProgress)})...)
	b = append(b, w.ofItem("response.output_item.added", w.item(inProgress))...)
	return append(b, w.ofPart(event{Type: "response.content_part.added", Part: &p})...)
}

func (w *responses) Part(c Choice) []byte {
	w.take(c)
	if c.Text == "" {
		return nil
	}
	logprobs := spelled(c.Tokens)
	return w.ofPart(event{Type: "response.output_text.delta", Delta: &c.Text, Logprobs: &logprobs})
}

func (w *responses) End(u Usage) []byte {
	p, r := w.part(), w.ended(u)
	b := w.ofPart(event{Type: "response.output_text.done", Text: &p.Text, Logprobs: &p.Logprobs})
	b = append(b, w.ofPart(event{Type: "response.content_part.done", Part: &p})...)
	b = append(b, w.ofItem("response.output_item.done", r.Output[0])...)
	return append(b, w.event(event{Type: "response." + r.Status, Response: r})...)
}

// Fail repeats the text so far in a response that failed.
func (w *responses) Fail(e *Error) []byte {
	r := w.response(failed)
	r.Error = &responseError{Code: "server_error", Message: e.Error()}
	if e.Code != "" {
		r.Error.Code = e.Code
	}
	if w.text.Len() > 0 {
		r.Output = []item{w.item(incomplete, w.part())}
	}
	return w.event(event{Type: "response.failed", Response: r})
}

func (w *responses) Ping() []byte { return []byte(Ping) }
