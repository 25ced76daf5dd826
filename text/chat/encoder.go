package chat

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// A Tokenizer turns text into ids, for example that of text/tokenizer. addSpecial adds
// the special tokens that belong around a text.
type Tokenizer interface {
	Encode(text string, addSpecial bool) ([]int32, error)
}

// An Encoder turns texts that a model continues into ids, with the special tokens that
// the tokenizer puts before a text and without those that it puts after it. It is as
// safe for concurrent use as its tokenizer.
type Encoder struct {
	tok    Tokenizer
	before []int32
	after  int32 // −1: none
}

// NewEncoder finds out which tokens tok puts around texts.
func NewEncoder(tok Tokenizer) (*Encoder, error) {
	empty, err := tok.Encode("", true)
	if err != nil {
		return nil, fmt.Errorf("chat: encode an empty text: %w", err)
	}
	some, err := tok.Encode("0", true)
	if err != nil {
		return nil, fmt.Errorf("chat: encode %q: %w", "0", err)
	}
	n := 0
	for n < min(len(empty), len(some)) && empty[n] == some[n] {
		n++
	}
	e := &Encoder{tok: tok, before: slices.Clip(empty[:n]), after: -1}
	if len(empty) > n {
		e.after = empty[len(empty)-1]
	}
	return e, nil
}

// Before returns the ids that precede every text.
func (e *Encoder) Before() []int32 { return e.before }

// Prompt returns the ids of a prompt. Messages of a conversation have no special tokens, whatever
// they look like, unless its template was made WithControlTokens: that takes a tokenizer that is a
// Guard. In any other text, special tokens are recognised. A prompt for which it cannot be told
// wraps ErrRefused and ErrControl.
func (e *Encoder) Prompt(ctx context.Context, p Prompt) ([]int32, error) {
	if p.Special {
		return e.Encode(p.Text)
	}
	g, ok := e.tok.(Guard)
	if !ok || p.source == nil {
		return e.tok.Encode(p.Text, false)
	}
	at, err := p.template.Literal(ctx, p.source, p.Text, g)
	if errors.Is(err, ErrControl) {
		return nil, fmt.Errorf("%w: %w", ErrRefused, err)
	}
	if err != nil {
		return nil, err
	}
	return g.EncodeLiteral(p.Text, at, false)
}

// Encode returns the ids of a text. If the text already begins with the special tokens
// that precede a text, as a template's output does, they are not added again.
func (e *Encoder) Encode(text string) ([]int32, error) {
	ids, err := e.tok.Encode(text, true)
	if err != nil {
		return nil, err
	}
	if n := len(e.before); n > 0 && len(ids) >= 2*n && slices.Equal(ids[:n], e.before) && slices.Equal(ids[n:2*n], e.before) {
		ids = ids[n:]
	}
	if n := len(ids); e.after >= 0 && n > 0 && ids[n-1] == e.after {
		ids = ids[:n-1]
	}
	return ids, nil
}
