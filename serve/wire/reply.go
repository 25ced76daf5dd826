package wire

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"talf/serve/wire/refuse"
)

// Finish says why an answer ended.
type Finish string

// The reasons of OpenAI's API.
const (
	Stop   Finish = "stop"   // an end-of-sequence token or a stop text
	Length Finish = "length" // as many tokens as were asked for, or the end of the context
	Called Finish = "tool_calls"
	// functionCalled is Called of a request that has functions in place of tools.
	functionCalled Finish = "function_call"
)

// A Head is what all parts of one response have in common.
type Head struct {
	ID      string
	Created int64 // seconds since 1970
	Model   string
	System  string // what computed the answer: with the seed, it determines the text
	// Clock is the time in seconds since 1970, for the end of a response that has one.
	Clock func() int64

	usage  bool // every chunk has a usage, null in all but the last
	legacy bool // calls are of functions, of which there is one at most
}

// A Token is a token of an answer with its log probability, and the likeliest tokens at its place.
type Token struct {
	Bytes   []byte
	LogProb float64 // of the model, before temperature and truncation
	Top     []Alternative
	First   bool // of a prompt: it follows nothing and has no log probability
	Skew    int  // characters that the text has less than the token
}

// An Alternative is a token that could have been.
type Alternative struct {
	Bytes   []byte
	LogProb float64
}

// A Choice is one answer, or with streaming a part of one.
type Choice struct {
	Index    int
	Text     string
	Tokens   []Token // if logprobs were asked for; not nil even if empty
	Finish   Finish  // "" in all parts but the last
	Stopped  string  // the stop text of the request that ended the answer
	First    bool    // the first part of a streamed answer
	Offset   int     // of Text in the answer, in characters, for completions' logprobs
	Drafting *Drafting
	Round    *Round // in place of Drafting
	// Calls are those of the answer, or with streaming a part of one.
	Calls []Call
	// Reasoning is what was thought before the answer, where that is separate.
	Reasoning string
	// Parts are a whole answer's in their order, if it may have calls: each a text, what was thought
	// or a part of a call.
	Parts []Choice
}

// A partKind is what a part of an answer is.
type partKind int

const (
	noPart partKind = iota // its end
	saidPart
	thoughtPart
	callPart
)

// part returns what a part is, and its text.
func (c *Choice) part() (partKind, string) {
	switch {
	case len(c.Calls) > 0:
		return callPart, c.Calls[0].Arguments
	case c.Reasoning != "":
		return thoughtPart, c.Reasoning
	case c.Text != "":
		return saidPart, c.Text
	}
	return noPart, ""
}

// begins reports whether a part is the first of a call.
func (c *Choice) begins() bool { return len(c.Calls) > 0 && c.Calls[0].Name != "" }

// parts are those of a whole answer.
func (c *Choice) parts() []Choice {
	if c.Parts == nil {
		return []Choice{*c}
	}
	return c.Parts
}

// A Usage counts tokens.
type Usage struct {
	Prompt, Answer int
	Cached         int // of the prompt, taken from the prefix cache
	Predicted      *Predicted
}

// Predicted counts the tokens of a prediction: those that the answer has, and those that were
// drafted and rejected, which count as tokens of the answer too, as OpenAI's API has it.
type Predicted struct {
	Accepted int `json:"accepted_prediction_tokens"`
	Rejected int `json:"rejected_prediction_tokens"`
}

// Drafting says what was done to speed an answer up. It is the "talf" object of a choice.
type Drafting struct {
	Method   string  `json:"method"`             // "ar" is plain decoding
	Rounds   int     `json:"rounds"`             // passes of the model that wrote the answer
	Drafted  int     `json:"drafted"`            // tokens
	Accepted int     `json:"accepted"`           // of these
	Tau      float64 `json:"tau"`                // tokens of the answer per round
	Fallback string  `json:"fallback,omitempty"` // why a method that was asked for was not used, the last reason
	Cause    error   `json:"-"`                  // of Fallback, which may name files: for the log alone
	// Fallbacks counts the rounds without a draft by a word for the reason.
	Fallbacks map[string]int `json:"fallbacks,omitempty"`
	// Ignored are the fields of the request that changed nothing: unknown ones, and advice that the
	// model's chat template does not read.
	Ignored []string `json:"ignored,omitempty"`
	// Dropped counts the rounds that a trace left out because the client read too slowly.
	Dropped int `json:"trace_dropped,omitempty"`
}

// A Round is one round of a traced answer. It is the "talf" object of a part that has nothing
// else.
type Round struct {
	Number  int             `json:"number"`  // from 1; those that are missing were left out
	Seconds float64         `json:"seconds"` // from when the request was queued to the round's verdict
	Round   json.RawMessage `json:"round"`   // as a line of a trace file
}

// list is [] rather than null.
func list[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}

// last is the last element, or nil.
func last[T any](s []*T) *T {
	if len(s) == 0 {
		return nil
	}
	return s[len(s)-1]
}

type usage struct {
	Prompt  int `json:"prompt_tokens"`
	Answer  int `json:"completion_tokens"`
	Total   int `json:"total_tokens"`
	Details struct {
		Cached int `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
	Predicted *Predicted `json:"completion_tokens_details,omitempty"`
}

func (u *Usage) wire() *usage {
	w := &usage{Prompt: u.Prompt, Answer: u.Answer, Predicted: u.Predicted}
	if u.Predicted != nil {
		w.Answer += u.Predicted.Rejected
	}
	w.Total = w.Prompt + w.Answer
	w.Details.Cached = u.Cached
	return w
}

type message struct {
	Role    string  `json:"role,omitempty"`
	Content *string `json:"content,omitempty"`
	Refusal *string `json:"refusal,omitempty"`
	called
}

// called is what a message has beside its content.
type called struct {
	Calls    []call    `json:"tool_calls,omitempty"`
	Function *function `json:"function_call,omitempty"`
	Thought  string    `json:"reasoning_content,omitempty"`
}

// called is that of an answer, or with streaming of a part of one.
func (h *Head) called(c *Choice, stream bool) (w called) {
	w.Thought = c.Reasoning
	for k := range c.Calls {
		part := c.Calls[k].wire()
		if h.legacy {
			w.Function = &part.Function
			continue
		}
		if stream {
			part.Index = &c.Calls[k].Index
		}
		w.Calls = append(w.Calls, part)
	}
	return w
}

// A call is a call of a tool in a message. Those of streams have an index.
type call struct {
	Index    *int     `json:"index,omitempty"`
	ID       string   `json:"id,omitempty"`
	Type     string   `json:"type,omitempty"`
	Function function `json:"function"`
}

type function struct {
	Name      string `json:"name,omitempty"`
	Arguments string `json:"arguments"`
}

func (c *Call) wire() call {
	w := call{ID: c.ID, Function: function{c.Name, c.Arguments}}
	if c.Name != "" {
		w.Type = "function"
	}
	return w
}

// whole is a message of a response that is not streamed: clients expect its refusal, null, and its
// annotations, of which there are none.
type whole struct {
	Role        string     `json:"role"`
	Content     *string    `json:"content"` // null if there are calls alone
	Refusal     *string    `json:"refusal"`
	Annotations []struct{} `json:"annotations"`
	called
}

type choice struct {
	Index    int      `json:"index"`
	Message  *whole   `json:"message,omitempty"`
	Delta    *message `json:"delta,omitempty"`
	Text     *string  `json:"text,omitempty"`
	Logprobs any      `json:"logprobs"`
	Finish   *Finish  `json:"finish_reason"`
	Drafting any      `json:"talf,omitempty"`
}

type reply struct {
	ID      string   `json:"id"`
	Object  string   `json:"object"`
	Created int64    `json:"created"`
	Model   string   `json:"model"`
	System  string   `json:"system_fingerprint,omitempty"`
	Choices []choice `json:"choices"`
	Usage   any      `json:"usage,omitempty"`
}

// Reply writes a whole response.
func (h *Head) Reply(d Dialect, cs []Choice, u Usage) []byte {
	r := h.reply(d, "chat.completion")
	for i := range cs {
		w := h.choice(&cs[i], d)
		if d == Chat {
			w.Message = &whole{Role: "assistant", Content: &cs[i].Text, Annotations: []struct{}{}, called: h.called(&cs[i], false)}
			if len(cs[i].Calls) > 0 && cs[i].Text == "" {
				w.Message.Content = nil
			}
		}
		r.Choices = append(r.Choices, w)
	}
	r.Usage = u.wire()
	return must(r)
}

// Chunk writes a part of a streamed response.
func (h *Head) Chunk(d Dialect, c Choice) []byte {
	r, w := h.reply(d, chatChunk), h.choice(&c, d)
	if h.usage {
		r.Usage = json.RawMessage("null")
	}
	if d == Chat {
		w.Delta = &message{called: h.called(&c, true)}
		if c.First {
			w.Delta.Role = "assistant"
		}
		if c.First || c.Text != "" {
			w.Delta.Content = &c.Text
		}
	}
	r.Choices = append(r.Choices, w)
	return must(r)
}

// LastChunk writes the part that ends a streamed response whose usage was asked for.
func (h *Head) LastChunk(d Dialect, u Usage) []byte {
	r := h.reply(d, chatChunk)
	r.Usage = u.wire()
	return must(r)
}

const chatChunk = "chat.completion.chunk"

// reply begins a response. Completions have one kind of object, whole and streamed.
func (h *Head) reply(d Dialect, object string) *reply {
	if d == Completion {
		object = "text_completion"
	}
	return &reply{ID: h.ID, Object: object, Created: h.Created, Model: h.Model, System: h.System, Choices: []choice{}}
}

func (h *Head) choice(c *Choice, d Dialect) choice {
	w := choice{Index: c.Index}
	if d == Completion {
		w.Text = &c.Text
	}
	switch {
	case c.Round != nil:
		w.Drafting = c.Round
	case c.Drafting != nil:
		w.Drafting = c.Drafting
	}
	if finish := c.Finish; finish != "" {
		if finish == Called && h.legacy {
			finish = functionCalled
		}
		w.Finish = &finish
	}
	if c.Tokens != nil {
		if d == Chat {
			w.Logprobs = chatLogprobs(c.Tokens)
		} else {
			w.Logprobs = textLogprobs(c.Tokens, c.Offset)
		}
	}
	return w
}

type alternative struct {
	Token   string  `json:"token"`
	LogProb float64 `json:"logprob"`
	Bytes   []int   `json:"bytes"`
}

// finite keeps a log probability within what JSON can say, with vLLM's value for tokens that
// cannot occur.
func finite(logprob float64) float64 { return max(logprob, -9999) }

func spell(b []byte, logprob float64) alternative {
	a := alternative{Token: strings.ToValidUTF8(string(b), "\uFFFD"), LogProb: finite(logprob), Bytes: make([]int, len(b))}
	for i, x := range b {
		a.Bytes[i] = int(x)
	}
	return a
}

// A token of an answer as chat and responses write it.
type token struct {
	alternative
	Top []alternative `json:"top_logprobs"`
}

func spelled(ts []Token) []token {
	out := make([]token, len(ts))
	for i, t := range ts {
		out[i] = token{alternative: spell(t.Bytes, t.LogProb), Top: []alternative{}}
		for _, a := range t.Top {
			out[i].Top = append(out[i].Top, spell(a.Bytes, a.LogProb))
		}
	}
	return out
}

func chatLogprobs(ts []Token) any {
	return struct {
		Content []token `json:"content"`
		Refusal *string `json:"refusal"`
	}{Content: spelled(ts)}
}

// textLogprobs is the older shape. Alternatives are keyed by their text; of several with the same
// replacement characters the likeliest is kept.
func textLogprobs(ts []Token, offset int) any {
	type logprobs struct {
		Tokens  []string             `json:"tokens"`
		Values  []*float64           `json:"token_logprobs"` // null for the first token of a prompt
		Top     []map[string]float64 `json:"top_logprobs"`
		Offsets []int                `json:"text_offset"`
	}
	l := logprobs{Tokens: []string{}, Values: []*float64{}, Top: []map[string]float64{}, Offsets: []int{}}
	for _, t := range ts {
		text := spell(t.Bytes, 0).Token
		l.Tokens, l.Offsets = append(l.Tokens, text), append(l.Offsets, offset)
		offset += utf8.RuneCountInString(text) - t.Skew
		if t.First {
			l.Values, l.Top = append(l.Values, nil), append(l.Top, nil)
			continue
		}
		value := finite(t.LogProb)
		l.Values = append(l.Values, &value)
		top := map[string]float64{}
		for _, a := range t.Top {
			s := spell(a.Bytes, 0).Token
			if v, ok := top[s]; !ok || v < a.LogProb {
				top[s] = finite(a.LogProb)
			}
		}
		l.Top = append(l.Top, top)
	}
	return l
}

// A Model is one entry of GET /v1/models.
type Model struct {
	ID      string `json:"id"`
	Object  string `json:"object"` // "model"
	Created int64  `json:"created"`
	Owner   string `json:"owned_by"`
	Root    string `json:"root,omitempty"`          // of an alias: the model's own name
	Context int    `json:"max_model_len,omitempty"` // tokens of prompt and answer, as vLLM names it
	Offers  *Offer `json:"talf,omitempty"`
}

// An Offer is what requests may choose in their "talf" object.
type Offer struct {
	Methods []string `json:"methods"` // the first is the default
}

// Models writes the response to GET /v1/models.
func Models(ms []Model) []byte {
	return must(struct {
		Object string  `json:"object"`
		Data   []Model `json:"data"`
	}{"list", list(ms)})
}

// must marshals what cannot fail: structs of strings and finite numbers.
func must(v any) []byte {
	b, err := marshal(v)
	if err != nil {
		panic("wire: " + err.Error())
	}
	return b
}

// done ends every stream of OpenAI's API.
const done = "data: [DONE]\n\n"

// ping is a comment that keeps a silent stream open.
const ping = ": ping\n\n"

// Comment is a line of a stream that clients skip.
func Comment(format string, args ...any) []byte { return fmt.Appendf(nil, ": "+format+"\n\n", args...) }

// Event returns a chunk as a server-sent event. JSON has no raw line breaks.
func Event(chunk []byte) []byte {
	return append(append([]byte("data: "), chunk...), '\n', '\n')
}

// namedEvent is Event of a dialect whose events have names.
func namedEvent(name string, data []byte) []byte {
	return append([]byte("event: "+name+"\n"), Event(data)...)
}

// ErrorEvent returns an error as an event, for a response that has begun.
func ErrorEvent(e *refuse.Error) []byte { return Event(must(json.Marshaler(e))) }
