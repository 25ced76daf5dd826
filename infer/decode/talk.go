package decode

import (
	"context"
	"errors"
	"fmt"

	"talf/infer"
	"talf/model/chat"
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
// unchanged.
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
	if err != nil {
		return seq, fmt.Errorf("answer: %w", err)
	}
	t.answers++
	t.now.Answer(seq.Text())
	return seq, nil
}
