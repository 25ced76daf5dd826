package chat

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"talf/text/chat/internal/jinja"
)

// ErrControl is returned if it cannot be told which control tokens of a rendered conversation
// its template wrote, and which stood in a message.
var ErrControl = errors.New("messages hold texts of special tokens, and the template does not write them as they stand")

// A Guard is a Tokenizer that keeps apart its special tokens and texts that look like them, as
// tokenizer.Tokenizer does.
type Guard interface {
	// Controls returns the places in a text, in order, that could begin a special token in a
	// larger text.
	Controls(text string) ([]int, error)
	// EncodeLiteral is Encode without special tokens at, or over, the places in literal.
	EncodeLiteral(text string, literal []int, addSpecial bool) ([]int32, error)
}

// WithControlTokens returns t for conversations whose messages may hold special tokens, as in
// transformers: the author of a message can then end it, or begin another one in the system's
// name.
func (t *Template) WithControlTokens() *Template {
	c := *t
	c.control = true
	return &c
}

// Literal returns the places in a text, in order, that no special token may begin at or reach
// over, because a message, a tool or a document of the conversation holds what looks like one.
// The text is what Render or RenderSpans has made of the conversation.
//
// A character that occurs nowhere marks each such place in the conversation, which is rendered
// once more; if the text without the marks is not the same, the error wraps ErrControl. Most
// conversations have no such place and are not rendered again.
func (t *Template) Literal(ctx context.Context, c *Conversation, text string, g Guard) ([]int, error) {
	if t.control {
		return nil, nil
	}
	m := marker{guard: g}
	if m.mark = unused(text); m.mark == "" {
		return nil, fmt.Errorf("chat template %s: %w", t.name, ErrControl)
	}
	marked, err := m.conversation(c)
	if err != nil || !m.found {
		return nil, err
	}
	if m.clash {
		return nil, fmt.Errorf("chat template %s: %w", t.name, ErrControl)
	}
	r, err := t.Render(ctx, marked)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrControl, err)
	}
	var at []int
	var clean strings.Builder
	for i, part := range strings.Split(r.Text, m.mark) {
		if i > 0 && (len(at) == 0 || at[len(at)-1] != clean.Len()) {
			at = append(at, clean.Len())
		}
		clean.WriteString(part)
	}
	if clean.String() != text {
		return nil, fmt.Errorf("chat template %s: %w", t.name, ErrControl)
	}
	return at, nil
}

// unused returns a noncharacter (Unicode, section 23.7) that is not in the text: they are for a
// program's own use, and no template treats them in any way.
func unused(text string) string {
	for r := rune(0xFDD0); r <= 0xFDEF; r++ {
		if !strings.ContainsRune(text, r) {
			return string(r)
		}
	}
	return ""
}

// A marker marks places in the texts of conversations.
type marker struct {
	guard Guard
	mark  string
	found bool // a place was marked
	clash bool // a text holds the mark already
}

// conversation returns c with marks, or c itself.
func (m *marker) conversation(c *Conversation) (*Conversation, error) {
	out := *c
	out.messages = slices.Clone(c.messages)
	for i, msg := range out.messages {
		v, err := m.value(msg)
		if err != nil {
			return nil, err
		}
		out.messages[i] = v
	}
	out.vars = c.vars.Clone()
	for _, name := range []string{"tools", "documents"} {
		v, ok := c.vars.GetString(name)
		if !ok {
			continue
		}
		v, err := m.value(v)
		if err != nil {
			return nil, err
		}
		out.vars.Set(name, v)
	}
	return &out, nil
}

// value returns a value of JSON with marks in its texts and keys.
func (m *marker) value(v jinja.Value) (jinja.Value, error) {
	switch v := v.(type) {
	case string:
		return m.text(v)
	case *jinja.List:
		out := jinja.NewList(slices.Clone(v.Items)...)
		for i, x := range out.Items {
			x, err := m.value(x)
			if err != nil {
				return nil, err
			}
			out.Items[i] = x
		}
		return out, nil
	case *jinja.Dict:
		out := jinja.NewDict()
		for k, x := range v.All() {
			k, err := m.value(k)
			if err != nil {
				return nil, err
			}
			if x, err = m.value(x); err != nil {
				return nil, err
			}
			out.Set(k, x)
		}
		return out, nil
	}
	return v, nil
}

func (m *marker) text(s string) (string, error) {
	m.clash = m.clash || strings.Contains(s, m.mark)
	at, err := m.guard.Controls(s)
	if err != nil || len(at) == 0 {
		return s, err
	}
	m.found = true
	var b strings.Builder
	done := 0
	for _, i := range at {
		b.WriteString(s[done:i])
		b.WriteString(m.mark)
		done = i
	}
	b.WriteString(s[done:])
	return b.String(), nil
}
