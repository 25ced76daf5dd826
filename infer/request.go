package infer

// A Request says what to decode and how.
type Request struct {
	Prompt    []int32
	MaxTokens int     // most tokens to emit
	EOS       []int32 // tokens that end the output; nil means the target's
	NoEOS     bool    // let no token end the output
	Seed      uint64
	Tenant    string // whose kept prefixes it may start from; "" is a tenant too

	Method string // names the drafter, so that what is counted of its rounds is counted apart

	// Drafter, Verifier and Processor belong to the sequence until it is closed.
	// A nil Drafter is plain decoding. A Source may serve any number of sequences. It is
	// nil if the drafter asks none.
	Drafter   Drafter
	Source    Source
	Verifier  Verifier
	Processor Processor

	// MaxNodes, if not 0, bounds this sequence's trees below the engine's own bound.
	MaxNodes int

	// Detok returns a new converter of this sequence's tokens into text. Stop and
	// Delta.Text need it.
	Detok func() Detokenizer
	Stop  []string // the output ends before the first of these

	// LogProbs asks for the log probability of every token of the output, and of the Top likeliest
	// at its place.
	LogProbs bool
	Top      int
	// PromptLogProbs asks for the same of the prompt's tokens but the first, which follows nothing.
	// The whole prompt then runs, whatever is kept of it.
	PromptLogProbs bool

	// Trace is called within each round once its verdict is known, because the target's rows
	// are gone afterwards: all sequences of the pass wait for it. It is for instruments, not
	// for readers of the output. An error ends the sequence.
	Trace func(Round) error
}

// A Reason says why a sequence ended.
type Reason string

// The reasons. A sequence that is not done has none.
const (
	EOS       Reason = "eos"
	Complete  Reason = "complete" // the request's Processor is an Ender, and says so
	Length    Reason = "length"
	Stop      Reason = "stop"
	Failed    Reason = "error"
	Cancelled Reason = "cancelled" // by Cancel, or closed before its end
)
