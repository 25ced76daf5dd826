package preprocess

import (
	"context"
	"iter"

	"talf/data/corpus"
	"talf/text/chat"
)

// A Sample is a sequence of the input as it will be trained on, before it is run
// through the target.
type Sample struct {
	File   string
	Line   int
	Item   int // as in corpus.Doc
	ID     string
	Chat   bool
	Turns  int // messages of the conversation in it
	Cut    int // messages after these
	Tokens []int32
	Loss   []bool // by token
	Drop   string // why it does not become a row; "" if it does
}

// A Reader is the part of a model that is needed to divide text into sequences.
type Reader struct {
	Tokenizer Tokenizer
	Chat      *chat.Template // nil: conversations are an error, ErrNoTemplate
	Vocab     int            // ids are less than this
	Positions int            // number of positions; 0: unknown
	Switch    int            // tokens of a text beyond which longrope turns all positions otherwise; 0: none
	EOS       int32          // end token of texts; −1: none
}

// Samples yields the sequences that Run would make from c's files, with the answers of
// the text. Only Files, Load, MaxLen, Depth and EOS of c matter. Unusable input is
// passed to bad, if bad is not nil.
func Samples(ctx context.Context, c Config, r Reader, bad func(corpus.BadLine)) iter.Seq2[Sample, error] {
	return func(yield func(Sample, error) bool) {
		maxLen, err := c.MaxLen, error(nil)
		if r.Positions > 0 {
			maxLen, err = c.length(r.Positions, r.Switch)
		}
		var u *cutter
		if err == nil {
			u, err = newCutter(r, c.EOS, maxLen, false)
		}
		if err != nil {
			yield(Sample{}, err)
			return
		}
		u.bad = bad
		for s, err := range u.sequences(ctx, corpus.Load(c.Files, c.Load, bad)) {
			if err != nil {
				yield(Sample{}, err)
				return
			}
			if !yield(Sample{
				File: s.file, Line: s.line, Item: s.item, ID: s.id, Chat: s.chat, Turns: s.messages, Cut: s.cut,
				Tokens: s.tokens, Loss: s.answer, Drop: s.drop,
			}, nil) {
				return
			}
		}
	}
}
