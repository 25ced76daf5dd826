// Package wire reads the requests of OpenAI's API, of Anthropic's and of llama.cpp's /infill, and writes their answers:
// what goes over the network, apart from any server.
//
// Requests are read field by field. A field out of its documented range, or one that asks for what the server cannot
// do, is refused with an error that names it; a field that is not known, or is advice that the model's template does
// not read, is ignored, and the answer names it. null is the same as no field. Where servers differ, vLLM's additions
// are understood: top_k, min_p, repetition_penalty, ignore_eos, stop_token_ids, chat_template_kwargs, priority.
package wire

import (
	"encoding/json"

	"talf/model/sample"
)

// A Request is what a client asks for, whatever the dialect.
type Request struct {
	Model   string
	Prompts []Prompt // answered one by one, N answers each
	N       int

	MaxTokens int // 0: as many as the context has room for
	Sample    sample.Params
	Seed      *uint64 // of the first answer; nil: the server draws one
	Stop      []string
	StopIDs   []int32 // tokens that end an answer besides the model's own
	IgnoreEOS bool
	Format    Format // of the answer

	// BestOf answers are made, of which those N are given that the model finds likeliest by token; 0: N.
	BestOf int

	Logprobs bool
	Top      int  // alternatives with each logprob
	Echo     bool // the answer begins with the prompt, and so do its logprobs
	NoAnswer bool // the prompt is all that is echoed

	// Prediction is what the client expects the answer to be; "": nothing. It is drafted, and does
	// not change the answer.
	Prediction string

	Stream bool
	Usage  bool // a stream ends with the usage

	// Ignored are the fields of the request that changed nothing, but for hints.
	Ignored []string

	Draft    Draft
	Priority int // smaller is served first

	asked *asked // of Responses: what the response repeats
}

// A Prompt is one of three: a conversation, a text or tokens.
type Prompt struct {
	// Conversation is an object for the chat template: messages, add_generation_prompt, and the
	// variables that the request adds.
	Conversation json.RawMessage
	Text         string
	Tokens       []int32 // not nil for tokens
	// Suffix is what follows the answer to a text or tokens; "": anything.
	Suffix string
	// Infill asks for what stands between Text and Suffix, even an empty one, with Files before them. A model that has
	// no tokens for it refuses.
	Infill bool
	Files  []File
	// Special says whether the tokenizer adds its special tokens. nil: to a text, and not to a
	// conversation whose template writes them.
	Special *bool
	// Tools are those that the conversation offers; nil: none.
	Tools *Tools
	// Hints are advice that its template may follow.
	Hints []Hint
}

// A Draft is the "talf" object of a request: how this request is to be drafted. The zero value
// leaves that to the server.
type Draft struct {
	Method string // specification, such as "salf:th=0.4"
	Nodes  int    // largest tree; 0: the server's
	Off    bool
	Trace  bool // the stream has a Round for each round
}

// Limits bound the parts of a request. They come on top of the limit on its size.
const (
	MaxChoices    = 128  // n
	maxPrompts    = 128  // of one completion request
	maxMessages   = 4096 // of one conversation
	maxStops      = 16
	maxStopBytes  = 256 // of one stop text
	maxStopIDs    = 64
	maxBiases     = 1024
	maxTop        = 20 // top_logprobs
	maxMetadata   = 16 // pairs that a response repeats
	maxPromptList = 1 << 20
)

// maxTemperature is the highest temperature of OpenAI's API.
const maxTemperature = 2
