package decode

import (
	"context"
	"errors"
	"fmt"

	"talf/infer"
	"talf/model/chat"
)

// A Talk is a dialogue that a user has with a decoder, a turn at a time.
type Talk struct {
	d          *Decoder
	empty, now chat.Dialogue
	seed       uint64 // of the next answer
}

// NewTalk begins a talk with an empty dialogue. Each answer has a seed of its own, from
// seed on.
func NewTalk(d *Decoder, empty chat.Dialogue, seed uint64) *Talk {
	return &Talk{d: d, empty: empty, now: empty, seed: seed}
}

// Reset begins a new dialogue.
func (t *Talk) Reset() { t.now = t.empty }

// Say answers what the user says, and calls emit with parts of the answer as they come.
// A turn that leaves no room for an answer is ErrLongPrompt, and the dialogue stays as it
// was.
func (t *Talk) Say(ctx context.Context, text string, emit func(string) error) (*infer.Sequence, error) {
	before := t.now
	t.now.Say(text)
	t.now.Ask()
	prompt, err := t.now.Prompt(ctx)
	if err != nil {
		return nil, fmt.Errorf("write the dialogue: %w", err)
	}
	seq, err := t.d.Answer(ctx, prompt, t.seed, emit)
	if errors.Is(err, ErrLongPrompt) {
		t.now = before
		return seq, err
	}
	if err != nil {
		return seq, fmt.Errorf("answer: %w", err)
	}
	t.seed++
	t.now.Answer(seq.Text())
	return seq, nil
}
