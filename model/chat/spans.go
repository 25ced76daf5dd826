package chat

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"talf/model/chat/internal/jinja"
)

// RenderSpans renders a conversation and finds what the assistant says in it,
// also where the template marks no generations. Without marks the span of an
// assistant's message is what the template adds to the messages before it and
// their generation prompt: usually the answer and the token that ends it. What
// follows the end-of-text token is not part of a span, for no model generates
// it.
//
// A template that renders an earlier message otherwise once more messages
// follow (reasoning is dropped from the history by many) is asked with other
// words in place of that message's (or, where it only calls tools, with the name of
// another function), which shows where its text stands. An error
// that names the message is returned where that fails as well: a template with
// {% generation %} marks is needed then.
func (t *Template) RenderSpans(ctx context.Context, c *Conversation) (*Rendered, error) {
	// One moment for all renderings.
	at := t.now()
	fixed := *t
	fixed.now = func() time.Time { return at }
	full, err := fixed.Render(ctx, c)
	if err != nil || full.Marked {
		return full, err
	}
	p := &prober{ctx: ctx, t: &fixed, c: c, full: full.Text}
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
			return nil, fmt.Errorf("chat template %s: messages[%d]: its text is not behind the answer before it: want a template with {%% generation %%} marks", t.name, i)
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
	// epilogue says whether the template ends a text without generation prompt
	// with the end-of-text token, which belongs to no turn then.
	epilogue, probed bool
}

// render renders other messages with the conversation's variables. ok is false
// where the template refuses them.
func (p *prober) render(messages []jinja.Value, generate bool) (text string, ok bool, err error) {
	r, err := p.t.render(p.ctx, p.c.variables(p.t.vars, messages, generate), p.c.hasTools())
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
	// With no message at all there is nothing to answer.
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

	// The turn reads otherwise in the whole text, or its prefix is refused.
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
		return Span{}, fmt.Errorf("messages[%d]: the template renders it otherwise within the conversation than at its end, and its text was not found: want a template with {%% generation %%} marks", i)
	}
	// What ends the turn follows the words.
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

// callEnd finds where message i ends, of which only calls of tools are written, by
// the name of the first function. ok is false where that is not certain.
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

// withContent returns a message of text with other words; nil if it is none.
func withContent(m *jinja.Dict, word string) *jinja.Dict {
	content, _ := m.GetString("content")
	if _, isText := content.(string); !isText {
		return nil
	}
	d := m.Clone()
	d.SetString("content", word)
	return d
}

// withFunction returns a message whose first call is of another function; nil if it
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

// around returns what the template writes before and after a part of message i,
// found by rendering two other words in its place.
func (p *prober) around(messages []jinja.Value, i int, generate bool, with func(m *jinja.Dict, word string) *jinja.Dict) (pre, post string, ok bool, err error) {
	m := messages[i].(*jinja.Dict)
	// Words that begin and end unlike each other.
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
		return "", "", false, nil // not written once, as it is
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
