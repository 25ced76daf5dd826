// Package chat renders conversations through the chat templates of Hugging
// Face models, byte for byte as transformers does, but for the role developer: a template
// that does not know it gets system in its place.
//
// A chat template is a Jinja program that turns messages into the text a model was
// trained on. It comes with the model and is untrusted, so it runs in a sandbox: it can
// reach only the conversation. The length of its source, its work, the values that it makes,
// its output and its nesting are bounded by the constants of package limits, and a rendering
// ends soon after its context.
package chat

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"talf/internal/ijson"
	"talf/internal/limits"
	"talf/model/gguf"
	"talf/text/chat/internal/jinja"
)

// A Template is a compiled chat template together with the special tokens of
// its model. It is safe for concurrent use.
type Template struct {
	name  string
	code  *jinja.Template
	text  string      // its source
	tools *Template   // replaces this one for conversations with tools; nil: none
	vars  *jinja.Dict // the special tokens
	now   func() time.Time
	// control: messages may hold special tokens.
	control bool
}

// A Span is a range of bytes in a rendered text.
type Span struct{ Start, End int }

// Rendered is a conversation as a template wrote it.
type Rendered struct {
	Text string
	// Spans are the parts that the assistant says, in order: the {% generation %}
	// blocks for Render, or the spans that RenderSpans found.
	Spans []Span
	// Marked is true if the template has {% generation %} blocks.
	Marked bool
}

// A RaisedError is a template's refusal of a conversation with raise_exception.
type RaisedError struct {
	Message string // the template's message
	Line    int    // line of the template
}

// Error returns the exception that transformers reports.
func (e *RaisedError) Error() string { return "TemplateError: " + e.Message }

// An EvalError is a fault in a template or in how it uses a conversation: an unknown
// filter, a missing variable, a limit exceeded.
type EvalError struct {
	Kind    string // the class of the exception in Python, such as UndefinedError
	Message string
	Line    int // line of the template; 0 if unknown
}

// Error returns the exception that transformers reports.
func (e *EvalError) Error() string { return e.Kind + ": " + e.Message }

// Parse compiles a template. Errors refer to it by name.
func Parse(name, source string) (*Template, error) {
	code, err := jinja.Parse(source)
	if err != nil {
		return nil, located(name, err)
	}
	return &Template{name: name, code: code, text: source, vars: jinja.NewDict(), now: time.Now}, nil
}

// LoadFile compiles a template file, such as chat_template.jinja.
func LoadFile(path string) (*Template, error) {
	b, err := limits.ReadFile(path, limits.TemplateBytes)
	if err != nil {
		return nil, fmt.Errorf("chat template: %w", err)
	}
	return Parse(path, string(b))
}

// Load compiles the chat template of a model directory: chat_template.jinja, with
// additional_chat_templates/tool_use.jinja for conversations with tools, or else
// chat_template of tokenizer_config.json, which is a string or a list of {"name",
// "template"}: "default", and "tool_use" for conversations with tools. The special
// tokens of tokenizer_config.json and special_tokens_map.json become variables. For a
// directory without a template, the error wraps fs.ErrNotExist.
func Load(dir string) (*Template, error) {
	config, configPath, err := readConfig(dir, "tokenizer_config.json")
	if err != nil {
		return nil, err
	}
	var t *Template
	path := filepath.Join(dir, "chat_template.jinja")
	source, err := gguf.ReadFile(dir, "chat_template.jinja", limits.TemplateBytes)
	switch {
	case err == nil:
		t, err = fromFiles(dir, path, string(source))
	case !errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("chat template: %w", err)
	default:
		t, err = fromConfig(dir, configPath, config["chat_template"])
	}
	if err != nil {
		return nil, err
	}
	return t.WithTokens(dir)
}

// fromFiles compiles chat_template.jinja and the template for tools in the same
// directory.
func fromFiles(dir, path, source string) (*Template, error) {
	t, err := Parse(path, source)
	if err != nil {
		return nil, err
	}
	tools, err := LoadFile(filepath.Join(dir, "additional_chat_templates", "tool_use.jinja"))
	if errors.Is(err, fs.ErrNotExist) {
		return t, nil
	}
	if err != nil {
		return nil, err
	}
	t.tools = tools
	return t, nil
}

// fromConfig compiles the field chat_template of a tokenizer_config.json.
func fromConfig(dir, path string, field json.RawMessage) (*Template, error) {
	if len(field) == 0 || string(field) == "null" {
		return nil, fmt.Errorf("%s has no chat template: want chat_template.jinja, or chat_template in tokenizer_config.json: %w", dir, fs.ErrNotExist)
	}
	var source string
	if json.Unmarshal(field, &source) == nil {
		return Parse(path, source)
	}
	var named []struct {
		Name     string `json:"name"`
		Template string `json:"template"`
	}
	if err := ijson.Unmarshal(field, &named); err != nil {
		return nil, fmt.Errorf(`%s: chat_template: want a text or a list of {"name", "template"}`, path)
	}
	var t, tools *Template
	for _, n := range named {
		var err error
		switch n.Name {
		case "default":
			t, err = Parse(path+" (default)", n.Template)
		case "tool_use":
			tools, err = Parse(path+" (tool_use)", n.Template)
		}
		if err != nil {
			return nil, err
		}
	}
	if t == nil {
		return nil, fmt.Errorf(`%s: chat_template: no template is named "default"`, path)
	}
	t.tools = tools
	return t, nil
}

// readConfig reads a JSON object; a missing file is an empty one.
func readConfig(dir, name string) (map[string]json.RawMessage, string, error) {
	path := gguf.Path(dir, name)
	b, err := gguf.ReadFile(dir, name, limits.ConfigBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, path, nil
	}
	if err != nil {
		return nil, path, fmt.Errorf("chat template: %w", err)
	}
	var m map[string]json.RawMessage
	if err := ijson.Unmarshal(b, &m); err != nil {
		return nil, path, fmt.Errorf("%s: %w", path, err)
	}
	return m, path, nil
}

// tokenNames are the special tokens that transformers passes to a template.
var tokenNames = []string{"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"}

// WithTokens returns t with the special tokens that a model directory names in
// tokenizer_config.json and special_tokens_map.json as variables. They replace t's own.
func (t *Template) WithTokens(dir string) (*Template, error) {
	vars := jinja.NewDict()
	// The configuration overrides the older map.
	for _, file := range []string{"special_tokens_map.json", "tokenizer_config.json"} {
		m, path, err := readConfig(dir, file)
		if err != nil {
			return nil, err
		}
		for _, name := range tokenNames {
			raw := m[name]
			if len(raw) == 0 || string(raw) == "null" {
				continue
			}
			var text string
			if json.Unmarshal(raw, &text) != nil {
				var token struct {
					Content *string `json:"content"`
				}
				if err := ijson.Unmarshal(raw, &token); err != nil || token.Content == nil {
					return nil, fmt.Errorf(`%s: %s: want a text or {"content": text}`, path, name)
				}
				text = *token.Content
			}
			vars.SetString(name, text)
		}
	}
	c := *t
	c.vars = vars
	return &c, nil
}

// Mentions reports whether the source of the template has a text.
func (t *Template) Mentions(text string) bool {
	return strings.Contains(t.text, text) || t.tools != nil && strings.Contains(t.tools.text, text)
}

// WithClock returns t with another clock for strftime_now; the default is
// time.Now.
func (t *Template) WithClock(now func() time.Time) *Template {
	c := *t
	c.now = now
	return &c
}

// stopped returns t with a clock that stands still, for renderings that are compared.
func (t *Template) stopped() *Template {
	at := t.now()
	return t.WithClock(func() time.Time { return at })
}

// Render renders a conversation. Variables of c override special tokens of the model.
// If the template refuses c with raise_exception, the error is a *RaisedError; any
// other fault is an *EvalError. Both are wrapped with the template's name and line.
func (t *Template) Render(ctx context.Context, c *Conversation) (*Rendered, error) {
	if c.continues {
		return t.unended(ctx, c)
	}
	return t.render(ctx, c, c.messages, c.generate)
}

// render renders messages with the variables of c.
func (t *Template) render(ctx context.Context, c *Conversation, messages []jinja.Value, generate bool) (*Rendered, error) {
	name, code := t.name, t.code
	if c.hasTools() && t.tools != nil {
		name, code = t.tools.name, t.tools.code
	}
	out, err := code.Render(ctx, c.variables(t.vars, t.known(messages), generate), jinja.Options{Now: t.now})
	if err != nil {
		return nil, located(name, err)
	}
	r := &Rendered{Text: out.Text, Marked: code.Marked()}
	for _, s := range out.Spans {
		r.Spans = append(r.Spans, Span{s.Start, s.End})
	}
	return r, nil
}

// A PlacedError says where in a template an error is.
type PlacedError struct {
	File string // name of the template: mostly a path
	Line int    // 0 if unknown
	Err  error
}

func (e *PlacedError) Unwrap() error { return e.Err }

func (e *PlacedError) Error() string { return "chat template " + e.File + e.line() }

// Private returns the error for those who need not know the file.
func (e *PlacedError) Private() string { return "chat template" + e.line() }

func (e *PlacedError) line() string {
	if e.Line == 0 {
		return ": " + e.Err.Error()
	}
	return fmt.Sprintf(", line %d: %v", e.Line, e.Err)
}

// located turns an error of the engine into one of this package, with its position.
func located(name string, err error) error {
	var e *jinja.Error
	if !errors.As(err, &e) {
		return &PlacedError{name, 0, err}
	}
	if e.Raised {
		return &PlacedError{name, e.Line, &RaisedError{Message: e.Message, Line: e.Line}}
	}
	return &PlacedError{name, e.Line, &EvalError{Kind: e.Kind, Message: e.Message, Line: e.Line}}
}
