package chat

import (
	"context"
	"fmt"
	"strings"

	"talf/text/chat/internal/jinja"
)

// developer is the newer name of the role system. Templates that do not know it leave such
// messages out, or write a role that the model has never seen.
const developer = "developer"

// known returns messages with roles that the template knows.
func (t *Template) known(messages []jinja.Value) []jinja.Value {
	if t.Mentions(developer) {
		return messages
	}
	out := make([]jinja.Value, len(messages))
	for i, m := range messages {
		out[i] = m
		if d, ok := m.(*jinja.Dict); ok {
			if role, _ := d.GetString("role"); role == developer {
				d = d.Clone()
				d.SetString("role", "system")
				out[i] = d
			}
		}
	}
	return out
}

// contentEnd marks where the content of a message ends: a noncharacter, which no template treats in any way.
const contentEnd = "\U0001FFFE"

// unended renders a conversation up to the end of the content of its last message, so that
// whoever continues the text continues that message.
func (t *Template) unended(ctx context.Context, c *Conversation) (*Rendered, error) {
	n := len(c.messages)
	if n == 0 {
		return nil, fmt.Errorf("chat template %s: continue_final_message: there is no message", t.name)
	}
	last := c.messages[n-1].(*jinja.Dict).Clone() // ParseConversation takes nothing else
	content, _ := last.GetString("content")
	text, ok := content.(string)
	if !ok {
		return nil, fmt.Errorf("chat template %s: messages[%d]: its content is %s, want a text to continue", t.name, n-1, jinja.JSONType(content))
	}
	last.SetString("content", text+contentEnd)
	r, err := t.render(ctx, c, append(c.messages[:n-1:n-1], last), false)
	if err != nil {
		return nil, err
	}
	head, tail, ok := strings.Cut(r.Text, contentEnd)
	if !ok || strings.Contains(tail, contentEnd) {
		return nil, fmt.Errorf("chat template %s: messages[%d]: the template does not write its content once, as it stands: it cannot be continued", t.name, n-1)
	}
	out := &Rendered{Text: head, Marked: r.Marked}
	for _, s := range r.Spans {
		if s.End = min(s.End, len(head)); s.Start < s.End {
			out.Spans = append(out.Spans, s)
		}
	}
	return out, nil
}
