package wire

import "talf/serve/wire/refuse"

// A Dialect is an API in which requests are read and answers written.
type Dialect int

// The dialects.
const (
	Chat       Dialect = iota // OpenAI's chat completions
	Completion                // OpenAI's completions
	Responses                 // OpenAI's responses
	Messages                  // Anthropic's messages
	Infill                    // llama.cpp's /infill
)

// What ids begin with.
const (
	responseID = "resp_"
	messageID  = "msg_"
)

var dialects = [...]struct {
	id     string // that ids of responses begin with
	prompt string // the field that has the prompt
	parse  func([]byte) (*Request, *refuse.Error)
	writer func(*Head, *Request) Writer
}{
	Chat:       {"chatcmpl-", "messages", ParseChat, newChunks(Chat)},
	Completion: {"cmpl-", "prompt", ParseCompletion, newChunks(Completion)},
	Responses:  {responseID, "input", ParseResponses, newResponses},
	Messages:   {messageID, "messages", ParseMessages, newMessages},
	Infill:     {"infill-", "input_prefix", parseInfill, newInfills},
}

// Parse reads the body of a request.
func (d Dialect) Parse(body []byte) (*Request, *refuse.Error) { return dialects[d].parse(body) }

// ID is what the ids of responses begin with.
func (d Dialect) ID() string { return dialects[d].id }

// Prompt is the name of the field that has the prompt.
func (d Dialect) Prompt() string { return dialects[d].prompt }

// Writer returns what writes the answers to a request.
func (d Dialect) Writer(h *Head, r *Request) Writer { return dialects[d].writer(h, r) }

// A Writer writes the answers to one request: Whole alone, or as a stream Begin, Part for each part
// of an answer, and End or Fail. What it returns is sent as it is; nothing is nothing.
type Writer interface {
	// Whole is the response that is not streamed.
	Whole(cs []Choice, u Usage) []byte
	// Begin has what comes before any text of the answers, which are all listed. u is of the prompts.
	Begin(cs []Choice, u Usage) []byte
	// Part has text, or the reason for an answer's end, or a round.
	Part(c Choice) []byte
	// End comes once all answers have ended.
	End(u Usage) []byte
	// Fail ends a stream whose answers are not whole.
	Fail(e *refuse.Error) []byte
	// ping keeps a silent stream open.
	Ping() []byte
}

// chunks writes the streams of OpenAI's older two kinds of request: events without names.
type chunks struct {
	*Head
	d Dialect
}

func newChunks(d Dialect) func(*Head, *Request) Writer {
	return func(h *Head, r *Request) Writer {
		tools := r.Prompts[0].Tools
		h.usage, h.legacy = r.Usage, tools != nil && tools.legacy
		return &chunks{h, d}
	}
}

func (w *chunks) Whole(cs []Choice, u Usage) []byte { return w.Reply(w.d, cs, u) }

// Begin writes the role of each answer, or what it echoes.
func (w *chunks) Begin(cs []Choice, _ Usage) (b []byte) {
	for _, c := range cs {
		if c.First = true; w.d == Chat || c.Text != "" {
			b = append(b, w.Part(c)...)
		}
	}
	return b
}

func (w *chunks) Part(c Choice) []byte { return Event(w.Chunk(w.d, c)) }

func (w *chunks) End(u Usage) (b []byte) {
	if w.Head.usage {
		b = Event(w.LastChunk(w.d, u))
	}
	return append(b, done...)
}

// Fail ends without [DONE].
func (w *chunks) Fail(e *refuse.Error) []byte { return ErrorEvent(e) }

func (w *chunks) Ping() []byte { return []byte(ping) }
