package preprocess

import (
	"context"
	"iter"

	"talf/data/corpus"
	"talf/model/chat"
)

// A Sample is a sequence of the input as it will be trained on, before the target
// has seen it.
type Sample struct {
	File   string
	Line   int
	Item   int // as in corpus.Doc
	ID     string
	Chat   bool
	Turns  int // messages of a conversation that are in it
	Cut    int // messages behind them
	Tokens []int32
	Loss   []bool // of each token
	Drop   string // why it becomes no row; "" if it does
}

// A Reader is what cutting text into sequences needs to know of a model.
type Reader struct {
	Tokenizer Tokenizer
	Chat      *chat.Template // nil: conversations are an error, ErrNoTemplate
	Vocab     int            // ids are below it
	Positions int            // that it has; 0: not known
	EOS       int32          // end token of texts; −1: none
}

// Samples yields the sequences that Run would make of c's files, with the answers
// of the text. Of c only Files, Load, MaxLen, Depth and EOS count. What could not be used
// is passed to bad, if it is not nil.
func Samples(ctx context.Context, c Config, r Reader, bad func(corpus.BadLine)) iter.Seq2[Sample, error] {
	return func(yield func(Sample, error) bool) {
		maxLen, err := c.MaxLen, error(nil)
		if r.Positions > 0 {
			maxLen, err = c.length(r.Positions)
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
