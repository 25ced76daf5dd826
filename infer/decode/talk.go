package decode

import (
	"context"
	"errors"
	"fmt"

	"talf/infer"
	"talf/text/chat"
	"talf/text/tokenizer"
)

// A Talk is a dialogue of a user with a decoder, turn by turn.
type Talk struct {
	d          *Decoder
	empty, now chat.Dialogue
	seed       uint64
	answers    int // given so far, also before a reset
}

// NewTalk begins a talk with an empty dialogue. The seed of each answer is TurnSeed of seed and
// the number of answers before it; a reset does not begin again.
func NewTalk(d *Decoder, empty chat.Dialogue, seed uint64) *Talk {
	return &Talk{d: d, empty: empty, now: empty, seed: seed}
}

// Reset begins a new dialogue.
func (t *Talk) Reset() { t.now = t.empty }

// Say answers the user's text, and calls emit with parts of the answer as they arrive. For a
// turn that leaves no room for an answer it returns ErrLongPrompt, and the dialogue stays
// unchanged. If ctx ends, what there is of the answer is part of the dialogue.
func (t *Talk) Say(ctx context.Context, text string, emit func(string) error) (*infer.Sequence, error) {
	before := t.now
	t.now.Say(text)
	t.now.Ask()
	prompt, err := t.now.Prompt(ctx)
	if err != nil {
		return nil, fmt.Errorf("write the dialogue: %w", err)
	}
	seq, err := t.d.Answer(ctx, prompt, TurnSeed(t.seed, t.answers), emit)
	if errors.Is(err, ErrLongPrompt) {
		t.now = before
		return seq, err
	}
	if err != nil && (ctx.Err() == nil || seq == nil) {
		t.now = before
		return seq, fmt.Errorf("answer: %w", err)
	}
	t.answers++
	t.now.Answer(seq.Text())
	return seq, err
}

// Empty says why an answer that ended without a text did so, and what a user may try, with options as
// in package hint; nothing of other answers. templated says that a chat template wrote the prompt.
func Empty(seq *infer.Sequence, tok *tokenizer.Tokenizer, templated bool) (why, try string) {
	reason, _ := seq.Done()
	tokens := seq.Tokens()
	switch {
	case seq.Text() != "" || len(tokens) == 0:
		return "", ""
	case reason == infer.Stop:
		return "it begins with a stop string", "another {stop}"
	case reason != infer.EOS || len(tokens) > 1:
		return "", ""
	}
	why = fmt.Sprintf("the model's first token, %s, ends the text", tok.Decode(tokens, false))
	if templated {
		return why, "other words, {temperature} 0.7, or {raw} to continue the text"
	}
	return why, "a text that breaks off, {ignore-eos} or, with a model that is made to chat, no {raw}"
}
