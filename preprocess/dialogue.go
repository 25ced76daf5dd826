package preprocess

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"talf/data"
	"talf/model/chat"
)

// A Dialogue is a conversation whose answers a model gives anew. What calls tools
// stays as it is, since the results that follow belong to it.
type Dialogue struct {
	chat *data.Chat
	said []data.Message
	next []data.Message
}

// NewDialogue begins with a document's conversation, or with what its user asks.
func NewDialogue(d *data.Doc) *Dialogue {
	if d.Chat != nil {
		return &Dialogue{chat: d.Chat, next: d.Chat.Messages}
	}
	t := &Dialogue{chat: &data.Chat{}}
	for _, sp := range d.Spans {
		t.next = append(t.next, data.NewMessage("user", sp.Text))
	}
	return t
}

// Ask takes messages that are given into what was said and reports whether an
// answer is wanted then.
func (d *Dialogue) Ask() bool {
	for {
		last := ""
		if n := len(d.said); n > 0 {
			last = d.said[n-1].Role
		}
		spoken := last != "" && last != "system" && last != "developer" && last != data.Assistant
		if len(d.next) == 0 {
			return spoken
		}
		m := &d.next[0]
		given := m.Role != data.Assistant || len(m.Calls) > 0
		switch {
		case m.Role == "user" && last == "user":
			return true
		case !given && spoken:
			d.next = d.next[1:]
			return true
		case !given && last == data.Assistant: // it goes on with an answer that is no more
		default:
			d.said = append(d.said, *m)
		}
		d.next = d.next[1:]
	}
}

// Asked returns the text that the answer is to.
func (d *Dialogue) Asked() string { return d.said[len(d.said)-1].Text }

// Answer adds the model's answer to what was said.
func (d *Dialogue) Answer(text string) {
	d.said = append(d.said, data.NewMessage(data.Assistant, text))
}

// Prompt writes what was said by a chat template, up to where the answer begins.
// Templates write the special tokens themselves. A template that writes the calls of
// tools in no form that they can be given it is an error, as one that refuses is.
func (d *Dialogue) Prompt(ctx context.Context, t *chat.Template) (string, error) {
	var first error
	for form := range forms(d.said) {
		talk, err := chat.ParseConversation(d.chat.JSON(form))
		if err != nil {
			return "", err
		}
		r, err := write(ctx, t, talk.WithGenerationPrompt(true), d.said)
		if err == nil {
			return r.Text, nil
		}
		if ctx.Err() != nil {
			return "", ctx.Err()
		}
		if first == nil {
			first = err
		}
	}
	return "", first
}

// forms yields the forms that messages can be given a template in, the usual one
// first; there is one alone where no tool is called.
func forms(messages []data.Message) iter.Seq[[]data.Message] {
	return func(yield func([]data.Message) bool) {
		for _, f := range data.Forms {
			form := messages
			if f != (data.Form{}) {
				form = data.Recast(messages, f)
			}
			calls := slices.ContainsFunc(messages, func(m data.Message) bool { return len(m.Calls) > 0 })
			if !yield(form) || !calls {
				return
			}
		}
	}
}

// errCalls says that a template leaves out the calls of tools.
var errCalls = errors.New(dropCalls)

// write renders a conversation, whose messages are given to look for their calls.
func write(ctx context.Context, t *chat.Template, c *chat.Conversation, messages []data.Message) (*chat.Rendered, error) {
	r, err := t.Render(ctx, c)
	if err != nil {
		return nil, err
	}
	for i := range messages {
		for _, name := range messages[i].Calls {
			if !strings.Contains(r.Text, name) {
				return nil, errCalls
			}
		}
	}
	return r, nil
}

// An Encoder turns texts that go on into ids, with what the tokenizer puts before a
// text and without what it puts behind one.
type Encoder struct {
	tok    Tokenizer
	before []int32
	behind int32 // −1: nothing
}

// NewEncoder looks at what tok puts around texts.
func NewEncoder(tok Tokenizer) (*Encoder, error) {
	empty, err := tok.Encode("", true)
	if err != nil {
		return nil, fmt.Errorf("preprocess: tokenise an empty text: %w", err)
	}
	some, err := tok.Encode("0", true)
	if err != nil {
		return nil, fmt.Errorf("preprocess: tokenise %q: %w", "0", err)
	}
	e := &Encoder{tok: tok, before: empty[:common(empty, some)], behind: -1}
	if len(empty) > len(e.before) {
		e.behind = empty[len(empty)-1]
	}
	return e, nil
}

// Encode returns the ids of a text. One that brings what belongs before it, as a chat
// template makes it, does not get it twice.
func (e *Encoder) Encode(text string) ([]int32, error) {
	ids, err := e.tok.Encode(text, true)
	if err != nil {
		return nil, err
	}
	if n := len(e.before); n > 0 && len(ids) >= 2*n && slices.Equal(ids[:n], e.before) && slices.Equal(ids[n:2*n], e.before) {
		ids = ids[n:]
	}
	if n := len(ids); e.behind >= 0 && n > 0 && ids[n-1] == e.behind {
		ids = ids[:n-1]
	}
	return ids, nil
}
