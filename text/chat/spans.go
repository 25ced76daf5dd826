package chat

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"talf/text/chat/internal/jinja"
)

// RenderSpans renders a conversation and finds the parts that the assistant says, even
// if the template marks no generations. Without marks, the span of an assistant's
// message is the text that the template adds to the messages before it and their
// generation prompt: usually the answer and the token that ends it. Text after the
// end-of-text token is not part of a span, because no model generates it.
//
// Some templates render an earlier message differently once more messages follow; many
// drop reasoning from the history. For these, the message is rendered again with other
// words in its place (or, if it only calls tools, with another function name), which
// shows where its text is. If that fails as well, RenderSpans returns an error that
// names the message: a template with {% generation %} marks is then needed.
func (t *Template) RenderSpans(ctx context.Context, c *Conversation) (*Rendered, error) {
	t = t.stopped()
	full, err := t.Render(ctx, c)
	if err != nil || full.Marked {
		return full, err
	}
	p := &prober{ctx: ctx, t: t, c: c, full: full.Text}
	eos, _ := c.variables(t.vars, nil, false).GetString("eos_token")
	p.eos, _ = eos.(string)
	end := 0
	for i := range c.messages {
		if c.Role(i) != "assistant" {
			continue
		}
		s, err := p.span(i)
		if err != nil {
			return nil, fmt.Errorf("chat template %s: %w", t.name, err)
		}
		if s.Start < end {
			return nil, fmt.Errorf("chat template %s: messages[%d]: its text does not follow the previous answer: want a template with {%% generation %%} marks", t.name, i)
		}
		if s.End > s.Start {
			full.Spans = append(full.Spans, s)
			end = s.End
		}
	}
	return full, nil
}

// A prober finds messages in a rendered text.
type prober struct {
	ctx  context.Context
	t    *Template
	c    *Conversation
	full string
	eos  string
	// epilogue is true if the template ends a text without a generation prompt with the
	// end-of-text token, which then belongs to no turn.
	epilogue, probed bool
}

// render renders other messages with the conversation's variables. ok is false if the
// template refuses them.
func (p *prober) render(messages []jinja.Value, generate bool) (text string, ok bool, err error) {
	r, err := p.t.render(p.ctx, p.c, messages, generate)
	if err == nil {
		return r.Text, true, nil
	}
	var raised *RaisedError
	var eval *EvalError
	if errors.As(err, &raised) || errors.As(err, &eval) {
		return "", false, nil
	}
	return "", false, err
}

// span finds message i.
func (p *prober) span(i int) (Span, error) {
	messages := p.c.messages
	before, okBefore, err := p.render(messages[:i:i], true)
	if err != nil {
		return Span{}, err
	}
	// With no messages at all there is nothing to answer.
	prompted := i > 0 && okBefore && strings.HasPrefix(p.full, before)
	after, okAfter, err := p.render(messages[:i+1:i+1], false)
	if err != nil {
		return Span{}, err
	}
	if okAfter && !p.probed && p.eos != "" && strings.HasSuffix(after, p.eos) {
		p.probed = true
		prompt, ok, err := p.render(messages[:i+1:i+1], true)
		if err != nil {
			return Span{}, err
		}
		p.epilogue = ok && !strings.HasPrefix(prompt, after) && strings.HasPrefix(prompt, strings.TrimSuffix(after, p.eos))
	}
	if p.epilogue {
		after = strings.TrimSuffix(after, p.eos)
	}
	if prompted && okAfter && strings.HasPrefix(p.full, after) && strings.HasPrefix(after, before) {
		return p.upToEOS(len(before), len(after)), nil
	}

	// The turn is written differently in the whole text, or its prefix is refused.
	pre, post, ok, err := p.around(messages, i, p.c.generate, withContent)
	if err != nil {
		return Span{}, err
	}
	start, end := len(pre), len(p.full)-len(post)
	known := ok && strings.HasSuffix(p.full, post)
	switch {
	case prompted:
		start = len(before)
	case !strings.HasPrefix(p.full, pre):
		known = false
	}
	if !known || start > end {
		if prompted {
			if end, ok, err := p.callEnd(i); err != nil || ok && end > len(before) {
				return p.upToEOS(len(before), end), err
			}
		}
		return Span{}, fmt.Errorf("messages[%d]: the template renders it differently within the conversation than at its end, and its text was not found: want a template with {%% generation %%} marks", i)
	}
	// The rest of the turn follows the words.
	_, tail, ok, err := p.around(messages[:i+1:i+1], i, false, withContent)
	if err != nil {
		return Span{}, err
	}
	if p.epilogue {
		tail = strings.TrimSuffix(tail, p.eos)
	}
	if ok && strings.HasPrefix(post, tail) {
		end += len(tail)
	} else if p.eos != "" && strings.HasPrefix(post, p.eos) {
		end += len(p.eos)
	}
	return p.upToEOS(start, end), nil
}

// callEnd finds the end of message i, of which only tool calls are written, by the name
// of the first function. ok is false if the end is not certain.
func (p *prober) callEnd(i int) (end int, ok bool, err error) {
	messages := p.c.messages
	pre, post, ok, err := p.around(messages, i, p.c.generate, withFunction)
	if err != nil || !ok || !strings.HasPrefix(p.full, pre) || !strings.HasSuffix(p.full, post) {
		return 0, false, err
	}
	_, tail, ok, err := p.around(messages[:i+1:i+1], i, false, withFunction)
	if p.epilogue {
		tail = strings.TrimSuffix(tail, p.eos)
	}
	return len(p.full) - len(post) + len(tail), ok && strings.HasPrefix(post, tail), err
}

// withContent returns a text message with other words, or nil if the message has no
// text.
func withContent(m *jinja.Dict, word string) *jinja.Dict {
	content, _ := m.GetString("content")
	if _, isText := content.(string); !isText {
		return nil
	}
	d := m.Clone()
	d.SetString("content", word)
	return d
}

// withFunction returns a message whose first call names another function, or nil if it
// calls none.
func withFunction(m *jinja.Dict, word string) *jinja.Dict {
	v, _ := m.GetString("tool_calls")
	calls, _ := v.(*jinja.List)
	if calls == nil || len(calls.Items) == 0 {
		return nil
	}
	call, _ := calls.Items[0].(*jinja.Dict)
	if call == nil {
		return nil
	}
	v, _ = call.GetString("function")
	function, _ := v.(*jinja.Dict)
	if function == nil {
		return nil
	}
	function, call, d := function.Clone(), call.Clone(), m.Clone()
	function.SetString("name", word)
	call.Set("function", function)
	d.Set("tool_calls", jinja.NewList(append([]jinja.Value{call}, calls.Items[1:]...)...))
	return d
}

// around returns the text that the template writes before and after a part of message
// i. It renders two different words in place of the part.
func (p *prober) around(messages []jinja.Value, i int, generate bool, with func(m *jinja.Dict, word string) *jinja.Dict) (pre, post string, ok bool, err error) {
	m := messages[i].(*jinja.Dict)
	// Words that begin and end differently from each other.
	words := [2]string{"One", "two"}
	var texts [2]string
	for k, w := range words {
		d := with(m, w)
		if d == nil {
			return "", "", false, nil
		}
		changed := append([]jinja.Value(nil), messages...)
		changed[i] = d
		if texts[k], ok, err = p.render(changed, generate); !ok {
			return "", "", false, err
		}
	}
	a, b := texts[0], texts[1]
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	rest := strings.TrimPrefix(a[n:], words[0])
	if len(rest) == len(a[n:]) || b[n:] != words[1]+rest {
		return "", "", false, nil // not written exactly once, unchanged
	}
	return a[:n], rest, true, nil
}

// upToEOS ends a span at the end-of-text token if only white space follows it.
func (p *prober) upToEOS(start, end int) Span {
	if p.eos != "" {
		if k := strings.LastIndex(p.full[start:end], p.eos); k >= 0 {
			k += start + len(p.eos)
			if strings.TrimSpace(p.full[k:end]) == "" {
				end = k
			}
		}
	}
	return Span{start, end}
}
