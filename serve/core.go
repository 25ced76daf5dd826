package serve

import (
	"context"

	"talf/infer"
	"talf/infer/draft/predict"
	"talf/infer/loop"
	"talf/infer/trace"
	"talf/serve/wire"
	"talf/serve/wire/refuse"
)

// A Core decodes. Its methods may be called from any goroutine.
type Core interface {
	// Context is the most tokens of a prompt and its answer together.
	Context() int
	// Encode returns the tokens of a prompt. A prompt that cannot be encoded is the client's fault,
	// and the error says why.
	Encode(ctx context.Context, p *wire.Prompt) ([]int32, *refuse.Error)
	// Predict reads what a client expects an answer to be.
	Predict(text string) (*predict.Text, *refuse.Error)
	// Submit queues a request. The answer ends with ctx.
	Submit(ctx context.Context, j Job) (Answer, *refuse.Error)
	// Decode returns the text of tokens.
	Decode(tokens []int32) (string, *refuse.Error)
	// Spell returns the bytes of a token.
	Spell(id int32) []byte
	// Piece returns a token as the vocabulary has it.
	Piece(id int32) string
	// Version says what decodes: with the seed, it determines the answers.
	Version() string
}

// A Job is one answer to be decoded.
type Job struct {
	Prompt  []int32
	Request *wire.Request
	Seed    uint64
	Tenant  string // whose prompts are kept apart from others'
	// Prediction is drafted from; nil: there is none.
	Prediction *predict.Text
}

// An Answer is the progress of a Job.
type Answer interface {
	// Next waits for more of the answer. The last part has a reason. A part that has an error ends
	// the answer, too.
	Next(ctx context.Context) (infer.Delta, error)
	// Stats are complete once the answer has ended.
	Stats() *infer.Stats
	// Predicted counts the tokens of the job's prediction once the answer has ended.
	Predicted() wire.Predicted
	// Drafting says what was done, once the answer has ended.
	Drafting() *wire.Drafting
	// Close frees what the answer holds, and ends it if it runs.
	Close()
}

// A Traced answer hands out the rounds of a request that asks for them.
type Traced interface {
	// Rounds returns the rounds since the last call. Those of a part of the answer are there when
	// Next returns it, if not before. It may be called while another goroutine waits in Next.
	Rounds() []trace.Numbered
}

// A Reading answer knows how many tokens of its prompt have been read.
type Reading interface{ PromptRead() int }

// A Timed answer knows when it was queued, admitted, and put out its first token and its last.
type Timed interface{ Times() loop.Times }

// A Measured core knows the state and the counts of its loop.
type Measured interface{ Stats() loop.Stats }
