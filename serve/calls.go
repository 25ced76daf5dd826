package serve

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"talf/infer"
	"talf/infer/constrain"
	"talf/serve/wire"
	"talf/serve/wire/refuse"
	"talf/text/chat"
	"talf/text/grammar"
	"talf/text/tokenizer"
	"talf/text/toolcall"
)

// A Calling answer may call tools: its text is to be read by a parser.
type Calling interface {
	// Parser is nil if the answer is text as it stands.
	Parser() *toolcall.Parser
}

// offered are the tools of a request in the form of package toolcall.
func offered(tools []wire.Tool) []toolcall.Tool {
	var out []toolcall.Tool
	for _, t := range tools {
		out = append(out, toolcall.Tool{Name: t.Name, Description: t.Description, Parameters: t.Parameters, Strict: t.Strict, JSON: t.JSON})
	}
	return out
}

// tooled writes a conversation that offers tools or has calls: in the form that the template
// takes, or as text of the messages.
func (e *Engine) tooled(ctx context.Context, p *wire.Prompt) (chat.Prompt, error) {
	text, err := e.tell(ctx, p, false)
	if err == nil || p.Tools == nil || e.style.Told || ctx.Err() != nil {
		return text, err
	}
	if other, err := e.tell(ctx, p, true); err == nil { // there are templates without a system
		return other, nil
	}
	return chat.Prompt{}, err
}

// tell is tooled; inline as for toolcall.Style.Rewrite.
func (e *Engine) tell(ctx context.Context, p *wire.Prompt, inline bool) (chat.Prompt, error) {
	var c map[string]json.RawMessage
	if err := json.Unmarshal(p.Conversation, &c); err != nil {
		return chat.Prompt{}, err
	}
	var messages []json.RawMessage
	if err := json.Unmarshal(c["messages"], &messages); err != nil {
		return chat.Prompt{}, err
	}
	var tools []toolcall.Tool
	if p.Tools != nil && !p.Tools.None {
		tools = offered(p.Tools.List)
	}
	style := e.style
	messages, err := style.Rewrite(messages, tools, inline)
	if err != nil {
		return chat.Prompt{}, err
	}
	if c["messages"], err = json.Marshal(messages); err != nil {
		return chat.Prompt{}, err
	}
	if style.Format.Plain() {
		b, _ := json.Marshal(c) // it was read from JSON
		return chat.Write(ctx, e.c.Template, b)
	}
	if len(tools) > 0 {
		var list []json.RawMessage
		for i := range tools {
			list = append(list, tools[i].JSON)
		}
		c["tools"], _ = json.Marshal(list)
	}
	b, _ := json.Marshal(map[string]json.RawMessage{"messages": c["messages"]})
	talk, err := chat.ParseTranscript(b)
	if err != nil {
		return chat.Prompt{}, err
	}
	var first error
	for form := range chat.Forms(talk.Messages) {
		in := make([]json.RawMessage, len(form))
		for i := range form {
			in[i] = form[i].JSON
		}
		c["messages"], _ = json.Marshal(in)
		b, _ := json.Marshal(c)
		text, err := chat.Write(ctx, e.c.Template, b)
		if err == nil && hasAll(text.Text, form) {
			return text, nil
		}
		if ctx.Err() != nil {
			return chat.Prompt{}, ctx.Err()
		}
		if err == nil {
			err = chat.ErrCalls
		}
		if first == nil {
			first = err
		}
	}
	return chat.Prompt{}, first
}

// hasAll reports whether a text has the names of all calls of messages in their order. It reads the
// text once, however many calls there are.
func hasAll(text string, messages []chat.Message) bool {
	for i := range messages {
		for _, name := range messages[i].Calls {
			_, rest, ok := strings.Cut(text, name)
			if !ok {
				return false
			}
			text = rest
		}
	}
	return true
}

// hasCalls reports whether messages may have calls of tools, or their results.
func hasCalls(conversation []byte) bool {
	return bytes.Contains(conversation, []byte(`"tool_calls"`)) || bytes.Contains(conversation, []byte(`"tool"`))
}

// ask is what a request asks of an answer to a prompt; nil if it may call no tool.
func (e *Engine) ask(j *Job) *toolcall.Ask {
	t := j.Request.Prompts[0].Tools
	if t == nil || t.None {
		return nil
	}
	a := &toolcall.Ask{Tools: offered(t.Callable()), Required: t.Required, Single: t.Single}
	tail := strings.TrimSpace(e.c.Tokenizer.Decode(j.Prompt[max(0, len(j.Prompt)-8):], false))
	switch {
	case strings.HasSuffix(tail, "<think>"):
		a.Thinking = toolcall.Thinks
	case e.style.Thinks && !strings.HasSuffix(tail, "</think>"):
		a.Thinking = toolcall.MayThink
	}
	if f := j.Request.Format; f.Kind != "" {
		a.Content = constrained(f).Add
	}
	return a
}

// lexicon is what the formats of calls need to know of the tokenizer.
func (e *Engine) lexicon() toolcall.Lexicon {
	return toolcall.Lexicon{Ends: e.c.Shape.EOS, Mark: func(text string) (int32, bool) {
		id, ok := e.c.Tokenizer.TokenID(text)
		if _, plain := e.c.Tokenizer.Text(id); !ok || plain || int(id) >= e.c.Shape.Vocab {
			return 0, false
		}
		return id, true
	}}
}

// calls compiles the grammar of an answer that may call tools.
func (e *Engine) calls(j *Job, a *toolcall.Ask) (*constrain.Constraint, *refuse.Error) {
	t := j.Request.Prompts[0].Tools
	var key strings.Builder // of what the grammar depends on
	fmt.Fprintf(&key, "%v %v %d %q", a.Required, a.Single, a.Thinking, fmt.Sprint(constrained(j.Request.Format)))
	for i := range a.Tools {
		x := &a.Tools[i]
		fmt.Fprintf(&key, "\n%s %v %d %s", x.Name, x.Strict, len(x.Parameters), x.Parameters)
	}
	c, err := e.formats.keep(j.Tenant, constrain.Format{Kind: "tools", Text: key.String()}, func(v *grammar.Vocabulary) (*constrain.Constraint, error) {
		g, err := e.style.Format.Grammar(*a, e.lexicon())
		if err != nil {
			return nil, err
		}
		c, err := constrain.NewGrammar(g, v, e.c.Shape.EOS)
		if c != nil {
			c.Encode = constrain.Encoder(e.c.Tokenizer)
		}
		return c, err
	})
	var wrong *toolcall.ToolError
	switch {
	case errors.As(err, &wrong):
		name := a.Tools[wrong.Tool].Name
		at := slices.IndexFunc(t.List, func(x wire.Tool) bool { return x.Name == name })
		return nil, refuse.Invalid(t.List[at].Param, "%v", wrong.Err)
	case err != nil && j.Request.Format.Kind != "":
		return nil, refuse.Invalid(j.Request.Format.Param, "%v", err)
	case err != nil:
		return nil, refuse.Invalid(t.Param, "%v", err)
	}
	return c, nil
}

// marked is a detokenizer that shows the marks of calls, and no other special token.
type marked struct {
	*tokenizer.Stream
	t     *tokenizer.Tokenizer
	shown []int32
}

func (e *Engine) marked() infer.Detokenizer {
	m := &marked{Stream: e.c.Tokenizer.NewStream(false), t: e.c.Tokenizer}
	x := e.lexicon()
	for _, text := range e.style.Format.Marks() {
		if id, ok := x.Mark(text); ok {
			m.shown = append(m.shown, id)
		}
	}
	return m
}

// Push takes a token.
func (m *marked) Push(id int32) string {
	if m.t.Special(id) && !slices.Contains(m.shown, id) {
		return ""
	}
	return m.Stream.Push(id)
}

// read divides more of an answer's text into what the client gets.
func (a *running) read(text string, end bool) (out []wire.Choice) {
	if a.parser == nil {
		if text != "" {
			out = append(out, wire.Choice{Text: text})
		}
		return out
	}
	events := a.parser.Push(text)
	if end {
		events = append(events, a.parser.End()...)
	}
	for _, e := range events {
		switch e.Kind {
		case toolcall.Content:
			out = append(out, wire.Choice{Text: e.Text})
		case toolcall.Reasoning:
			out = append(out, wire.Choice{Reasoning: e.Text})
		case toolcall.Begin:
			out = append(out, wire.Choice{Calls: []wire.Call{{Index: a.called, ID: callID(), Name: e.Text}}})
			a.called++
		case toolcall.Arguments:
			out = append(out, wire.Choice{Calls: []wire.Call{{Index: a.called - 1, Arguments: e.Text}}})
		}
	}
	return out
}

// add adds a part to a choice that is not streamed.
func add(c *wire.Choice, part *wire.Choice) {
	c.Reasoning += part.Reasoning
	for _, k := range part.Calls {
		if k.Name != "" {
			c.Calls = append(c.Calls, k)
		} else {
			c.Calls[len(c.Calls)-1].Arguments += k.Arguments
		}
	}
}

// callID returns nine letters and digits: some templates take no other ids.
func callID() string { return rand.Text()[:9] }
