package chat

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Without a chat template, a dialogue is written with these marks.
const (
	userMark   = "User: "
	answerMark = "\nAssistant:"
)

// PlainStops returns the texts at which an answer in a plain-text dialogue ends: the model has begun the next turn, whoever's
// it is.
func PlainStops() []string { return []string{"\nUser:", answerMark} }

// The error of a dialogue that the chat template refuses wraps ErrRefused.
var ErrRefused = errors.New("the chat template refuses it")

// ErrCalls is returned if a template does not write tool calls.
var ErrCalls = errors.New("the template does not write the calls of tools")

// A Dialogue goes through a conversation turn by turn, with a model's own answers in
// place of those in the conversation. Messages that call tools stay, because the
// results that follow belong to them.
//
//	for d.Ask() {
//		p, err := d.Prompt(ctx)
//		… answer p …
//		d.Answer(text)
//	}
//
// The zero value is an empty dialogue in plain text. It is not safe for concurrent use.
// A copy continues independently of the original as long as only one of the two is
// used.
type Dialogue struct {
	template *Template   // nil: plain text
	source   *Transcript // the template's other input: tools and variables
	bare     bool        // plain text without marks
	said     []Message
	next     []Message
	text     string // everything said so far, in plain text
}

// A Prompt is a text for a model to answer.
type Prompt struct {
	Text string
	// Special is true if the tokenizer must add its special tokens to the text.
	// Templates write their own.
	Special bool
	// Stop are the texts at which the answer ends, beside those that are asked for: PlainStops in plain text with marks.
	Stop []string

	// What a template made the text of; nil for other texts.
	template *Template
	source   *Conversation
}

// NewDialogue returns a dialogue written by a template. Its messages are those of a
// transcript.
func NewDialogue(t *Template, c *Transcript) *Dialogue {
	return &Dialogue{template: t, source: c, next: slices.Clip(c.Messages)}
}

// NewPlainDialogue returns a dialogue in plain text, as "User: …" and "Assistant: …".
// The turns are the user's.
func NewPlainDialogue(turns ...string) *Dialogue {
	d := &Dialogue{}
	for _, t := range turns {
		d.Say(t)
	}
	return d
}

// Begin returns a dialogue written by t that contains only the system message, if that
// is not empty. Without a template the dialogue is in plain text.
func Begin(t *Template, system string) Dialogue {
	if t == nil {
		return Dialogue{}
	}
	c := &Transcript{}
	if system != "" {
		c.Messages = append(c.Messages, NewMessage("system", system))
	}
	return *NewDialogue(t, c)
}

// begin writes the messages of a transcript that are neither the user's nor the assistant's, such as the system's, which in
// plain text come before the rest.
func begin(c *Transcript) *Dialogue {
	d := &Dialogue{}
	for _, m := range c.Messages {
		if m.Role != "user" && m.Role != Assistant {
			d.text += m.Text + "\n"
		}
	}
	return d
}

// NewPlainTranscript is NewDialogue in plain text, for a model without a template: PlainPrompt is what it writes of the whole.
func NewPlainTranscript(c *Transcript) *Dialogue {
	d := begin(c)
	for _, m := range c.Messages {
		if m.Role == "user" {
			d.next = append(d.next, m)
		}
	}
	return d
}

// PlainPrompt writes a transcript in plain text, up to where the next answer begins.
func PlainPrompt(c *Transcript) Prompt {
	d := begin(c)
	for _, m := range c.Messages {
		switch m.Role {
		case "user":
			d.Say(m.Text)
			d.Ask()
		case Assistant:
			d.Answer(m.Text)
		}
	}
	return Prompt{Text: d.text, Special: true, Stop: PlainStops()}
}

// Write writes a conversation in JSON as t does, or without a template in plain text.
func Write(ctx context.Context, t *Template, conversation []byte) (Prompt, error) {
	c, err := ParseConversation(conversation)
	if err != nil {
		return Prompt{}, err
	}
	if t != nil {
		return t.Prompt(ctx, c)
	}
	plain, err := ParseTranscript(conversation)
	if err != nil {
		return Prompt{}, err
	}
	return PlainPrompt(plain), nil
}

// NewText returns a dialogue whose turns are parts of one text, which the answers
// continue.
func NewText(turns ...string) *Dialogue {
	d := NewPlainDialogue(turns...)
	d.bare = true
	return d
}

// Say adds a user's turn, which a later Ask reaches.
func (d *Dialogue) Say(text string) { d.next = append(d.next, NewMessage("user", text)) }

// Ask moves to the next turn that needs an answer and reports whether there is one.
func (d *Dialogue) Ask() bool {
	if d.template == nil {
		if len(d.next) == 0 {
			return false
		}
		m := d.next[0]
		d.said, d.next = append(d.said, m), d.next[1:]
		switch {
		case d.bare:
			d.text += m.Text
		case d.text == "":
			d.text = userMark + m.Text + answerMark
		default:
			d.text += "\n" + userMark + m.Text + answerMark
		}
		return true
	}
	for {
		last := ""
		if n := len(d.said); n > 0 {
			last = d.said[n-1].Role
		}
		spoken := last != "" && last != "system" && last != "developer" && last != Assistant
		if len(d.next) == 0 {
			return spoken
		}
		m := &d.next[0]
		given := m.Role != Assistant || len(m.Calls) > 0
		switch {
		case m.Role == "user" && last == "user":
			return true
		case !given && spoken:
			d.next = d.next[1:]
			return true
		case !given && last == Assistant: // continues an answer that was replaced
		default:
			d.said = append(d.said, *m)
		}
		d.next = d.next[1:]
	}
}

// Asked returns the text of the turn that Ask moved to.
func (d *Dialogue) Asked() string { return d.said[len(d.said)-1].Text }

// Answer adds the model's answer unchanged: as in transformers, it is up to the
// template whether white space around an answer is trimmed.
func (d *Dialogue) Answer(text string) { d.AnswerMessage(NewMessage(Assistant, text)) }

// AnswerMessage is Answer for an answer that is more than a text.
func (d *Dialogue) AnswerMessage(m Message) {
	d.said = append(d.said, m)
	d.text += m.Text
}

// Transcript returns the transcript that the dialogue was made from, or nil for plain
// text.
func (d *Dialogue) Transcript() *Transcript { return d.source }

// Said returns the messages so far.
func (d *Dialogue) Said() []Message { return d.said }

// Left returns the number of messages that Ask has not reached.
func (d *Dialogue) Left() int { return len(d.next) }

// Prompt writes everything said so far, up to where the answer begins. It returns an
// error that wraps ErrRefused if the template refuses the conversation or does not
// write its tool calls in any form.
func (d *Dialogue) Prompt(ctx context.Context) (Prompt, error) {
	if d.template == nil {
		p := Prompt{Text: d.text, Special: true}
		if !d.bare {
			p.Stop = PlainStops()
		}
		return p, nil
	}
	var first error
	t := d.template.stopped()
	for form := range Forms(d.said) {
		talk, err := ParseConversation(d.source.JSON(form))
		if err == nil {
			talk = talk.WithGenerationPrompt(true)
			var r *Rendered
			if r, err = t.RenderCalls(ctx, talk, d.said); err == nil {
				return Prompt{Text: r.Text, template: t, source: talk}, nil
			}
		}
		if ctx.Err() != nil {
			return Prompt{}, ctx.Err()
		}
		if first == nil {
			first = err
		}
	}
	return Prompt{}, fmt.Errorf("%w: %w", ErrRefused, first)
}

// Prompt writes a conversation as a prompt. It returns an error that wraps ErrRefused if the
// template refuses it.
func (t *Template) Prompt(ctx context.Context, c *Conversation) (Prompt, error) {
	t = t.stopped()
	r, err := t.Render(ctx, c)
	if err != nil {
		if ctx.Err() != nil {
			return Prompt{}, ctx.Err()
		}
		return Prompt{}, fmt.Errorf("%w: %w", ErrRefused, err)
	}
	return Prompt{Text: r.Text, template: t, source: c}, nil
}

// RenderCalls renders a conversation. It returns ErrCalls if a tool that one of its
// messages calls is missing from the text.
func (t *Template) RenderCalls(ctx context.Context, c *Conversation, messages []Message) (*Rendered, error) {
	r, err := t.Render(ctx, c)
	if err != nil {
		return nil, err
	}
	for i := range messages {
		for _, name := range messages[i].Calls {
			if !strings.Contains(r.Text, name) {
				return nil, ErrCalls
			}
		}
	}
	return r, nil
}
