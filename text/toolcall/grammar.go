package toolcall

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"talf/internal/ijson"
	"talf/internal/limits"
	"talf/text/grammar"
	"talf/text/grammar/schema"
)

// Thinking says what a model may think aloud before it answers.
type Thinking int

// The kinds of thinking.
const (
	Silent   Thinking = iota // nothing
	MayThink                 // the answer may begin with <think>
	Thinks                   // the prompt has ended with <think>
)

// An Ask is what a request asks of an answer.
type Ask struct {
	Tools    []Tool // that may be called
	Required bool   // one has to be called; otherwise the answer may be a text
	Single   bool   // one at most
	Thinking Thinking
	// Content adds the grammar of a text that is no call; nil: any text.
	Content func(b *grammar.Builder) (grammar.Expr, error)
}

// A ToolError says which tool cannot be used.
type ToolError struct {
	Tool int
	Err  error
}

func (e *ToolError) Error() string { return fmt.Sprintf("tool %d: %v", e.Tool, e.Err) }
func (e *ToolError) Unwrap() error { return e.Err }

// A Lexicon is what has to be known of a tokenizer.
type Lexicon struct {
	// Mark returns the token that is nothing but a mark, if the tokenizer has one.
	Mark func(text string) (id int32, ok bool)
	Ends []int32 // tokens that end an answer
}

// thinks returns what may be thought in a format, as a parser can tell it from the rest.
func (f *Format) thinks(t Thinking) Thinking {
	if f.anchored || f.channels {
		return Silent
	}
	return t
}

// A writer writes the grammar of answers.
type writer struct {
	b     *grammar.Builder
	f     *Format
	x     Lexicon
	marks []string // that are tokens
}

// Grammar returns the grammar of answers. Tokens of marks are tokens in it. The error wraps a
// ToolError if a tool is the reason.
func (f *Format) Grammar(a Ask, x Lexicon) (*grammar.Grammar, error) {
	w := &writer{b: grammar.NewBuilder(), f: f, x: x}
	for _, m := range f.Marks() {
		if _, ok := x.Mark(m); ok {
			w.marks = append(w.marks, m)
		}
	}
	args, err := w.arguments(a.Tools)
	if err != nil {
		return nil, err
	}
	e, err := w.answer(&a, args)
	if err != nil {
		return nil, err
	}
	return w.b.Compile(e)
}

// arguments adds the arguments of each tool.
func (w *writer) arguments(tools []Tool) ([]grammar.Expr, error) {
	out := make([]grammar.Expr, len(tools))
	set := schema.Config{}.NewSet(w.b)
	for i := range tools {
		e, err := parameters(set, &tools[i])
		if err != nil && (tools[i].Strict || w.b.Err() != nil || errors.Is(err, limits.ErrTooLarge)) {
			return nil, &ToolError{i, err}
		}
		if err != nil {
			e = set.Object()
		}
		out[i] = e
	}
	return out, nil
}

// parameters adds the arguments of a tool. Arguments are an object, whether the schema says so or
// not.
func parameters(set *schema.Set, t *Tool) (grammar.Expr, error) {
	text := bytes.TrimSpace(t.Parameters)
	if len(text) == 0 {
		text = []byte(`{"additionalProperties":false}`)
	}
	if text[0] == '{' {
		if err := mayBeObject(text); err != nil {
			return 0, err
		}
	}
	return set.CompileObject(text)
}

// text adds a text in which marks are tokens.
func (w *writer) text(s string) grammar.Expr {
	var parts []grammar.Expr
	for s != "" {
		at, mark := len(s), ""
		for _, m := range w.marks {
			if i := strings.Index(s, m); i >= 0 && i < at {
				at, mark = i, m
			}
		}
		if at > 0 {
			parts = append(parts, w.b.Text(s[:at]))
		}
		if mark != "" {
			id, _ := w.x.Mark(mark)
			parts = append(parts, w.b.Token(id))
		}
		s = s[at+len(mark):]
	}
	return w.b.Seq(parts...)
}

// spelled is text, or the same letter by letter: a model may write a mark so, too, and a reader does
// not see the difference.
func (w *writer) spelled(s string) grammar.Expr { return w.b.Alt(w.text(s), w.b.Text(s)) }

// free is any text and any tokens, without the words and the marks that are equal to them, also
// where a token that a reader does not see stands within a word; it begins with none of start.
func (w *writer) free(without, start []string) (grammar.Expr, error) {
	except := slices.Clone(w.x.Ends)
	for _, s := range slices.Concat(without, start) {
		if id, ok := w.x.Mark(s); ok {
			except = append(except, id)
		}
	}
	return w.b.Run(without, start, except)
}

// answer adds all of an answer.
func (w *writer) answer(a *Ask, args []grammar.Expr) (grammar.Expr, error) {
	if w.f.channels {
		return w.harmony(a, args)
	}
	b, f := w.b, w.f
	// What follows the trigger is the same however that is written.
	rest := strings.TrimPrefix(f.lead+f.before, f.trigger)
	calls := w.calls(a, args, rest)
	begun := b.Seq(w.text(f.trigger), calls)
	if f.optional != "" {
		begun = b.Seq(b.Optional(w.spelled(f.optional)), begun)
	}
	thinking := f.thinks(a.Thinking)
	thought, err := w.free([]string{thinkClose}, nil)
	if err != nil {
		return 0, err
	}
	thought = b.Seq(thought, w.spelled(thinkClose))
	ends := b.Repeat(b.Text("\n"), 0, 2)
	if a.Required {
		switch thinking {
		case Thinks:
			return b.Seq(thought, ends, begun), nil
		case MayThink:
			return b.Alt(begun, b.Seq(w.spelled(thinkOpen), thought, ends, begun)), nil
		}
		return begun, nil
	}
	// Of a text: with a start, it does not begin to think.
	text := func(start ...string) (grammar.Expr, error) {
		if a.Content != nil {
			e, err := a.Content(b)
			return b.Alt(e, begun), err
		}
		if f.anchored {
			e, err := w.free(nil, append(start, f.trigger, f.optional))
			return b.Alt(e, begun), err
		}
		e, err := w.free([]string{f.trigger}, start)
		return b.Seq(e, b.Optional(b.Seq(w.spelled(f.trigger), calls))), err
	}
	after, err := text()
	if err != nil || thinking == Silent {
		return after, err
	}
	if a.Content != nil {
		after = b.Seq(ends, after)
	}
	after = b.Seq(thought, after)
	if thinking == Thinks {
		return after, nil
	}
	plain, err := text(thinkOpen)
	return b.Alt(plain, b.Seq(w.spelled(thinkOpen), after)), err
}

// calls adds what follows the trigger: the rest of what comes before a name, and all calls.
func (w *writer) calls(a *Ask, args []grammar.Expr, rest string) grammar.Expr {
	b, f := w.b, w.f
	id := b.Empty()
	if f.id != "" {
		letter := b.Runes([]grammar.Range{{Lo: '0', Hi: '9'}, {Lo: 'A', Hi: 'Z'}, {Lo: 'a', Hi: 'z'}})
		id = b.Optional(b.Seq(w.text(f.id), b.Repeat(letter, idBytes, idBytes)))
	}
	var one []grammar.Expr
	for i := range a.Tools {
		one = append(one, b.Seq(w.text(a.Tools[i].Name), id, w.text(f.middle), args[i], w.text(f.after)))
	}
	call := b.Alt(one...)
	parts := []grammar.Expr{w.text(rest), call}
	if !a.Single && !f.single {
		parts = append(parts, b.Repeat(b.Seq(w.text(f.between+f.before), call), 0, limits.ToolCalls-1))
	}
	return b.Seq(append(parts, w.text(f.end))...)
}

// The channels of harmony.
const (
	analysis   = "analysis"
	commentary = "commentary"
	final      = "final"
	recipient  = "to=functions."
)

// harmony adds an answer in channels: messages of analysis and commentary, then a call or the final
// message.
func (w *writer) harmony(a *Ask, args []grammar.Expr) (grammar.Expr, error) {
	b := w.b
	body, err := w.free(w.f.marks, nil)
	if err != nil {
		return 0, err
	}
	aside := b.Seq(w.text(channelMark), b.Alt(b.Text(analysis), b.Text(commentary)), w.text(messageMark), body, w.text(endMark+startMark+"assistant"))
	kind := b.Alt(w.text(" "+constrainMark+"json"+messageMark), w.text(" json"+messageMark))
	var calls []grammar.Expr
	for i := range a.Tools {
		to := " " + recipient + a.Tools[i].Name
		head := b.Alt(b.Seq(w.text(channelMark+commentary+to)), b.Seq(w.text(to+channelMark+commentary)))
		calls = append(calls, b.Seq(head, kind, args[i]))
	}
	last := b.Alt(calls...)
	if !a.Required {
		text := body
		if a.Content != nil {
			if text, err = a.Content(b); err != nil {
				return 0, err
			}
		}
		last = b.Alt(last, b.Seq(w.text(channelMark+final+messageMark), text))
	}
	return b.Seq(b.Repeat(aside, 0, grammar.Unbounded), last), nil
}

// mayBeObject fails if a schema says that its values are no objects.
func mayBeObject(text []byte) error {
	members, err := ijson.Members(text)
	if err != nil {
		return err
	}
	for i := range members {
		if m := &members[i]; m.Key == "type" {
			var name string
			if err := m.Decode(&name); err != nil || name != "object" {
				return fmt.Errorf("#/type: is %.100s, want \"object\"", m.Value)
			}
		}
	}
	return nil
}
