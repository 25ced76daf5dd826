package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"

	"talf/internal/limits"
)

// Tools are what an answer may call.
type Tools struct {
	List []Tool
	// Param is the field that has them, for errors.
	Param string
	// Required: a tool has to be called. None: none may be.
	Required, None bool
	// Names are the tools that may be called; nil: all.
	Names []string
	// Single: one call at most.
	Single bool
	// legacy: they were asked for as functions, before there were tools.
	legacy bool
}

// A Tool is a function that a client offers.
type Tool struct {
	Name, Description string
	Parameters        json.RawMessage // JSON Schema; nil: there are none
	Param             string          // the field of the schema, for errors
	Strict            bool
	JSON              json.RawMessage // as chat templates take it
}

// A Call is a call of a tool, or with streaming a part of one.
type Call struct {
	Index     int
	ID, Name  string // of the first part
	Arguments string // a JSON object
}

// toolName is what names of tools are: nothing in them is special in any format. The length is what
// Anthropic's API takes.
var toolName = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,128}$`)

// toolName is the name of a function.
func (o *object) toolName() string {
	name := o.need("name")
	if o.err == nil && !toolName.MatchString(name) {
		o.fail("name", "is %q, want 1 to 128 letters, digits, _, . and -", name)
	}
	return name
}

// function reads a tool: its name, which none before has, its description, its schema and whether that
// is strict.
func (o *object) function(schema string, before []Tool) Tool {
	t := Tool{Name: o.toolName(), Description: o.text("description"), Strict: o.boolean("strict"), Param: o.at + schema}
	if slices.ContainsFunc(before, func(x Tool) bool { return x.Name == t.Name }) {
		o.fail("name", "%q occurs twice", t.Name)
	}
	if p := o.object(schema); p != nil {
		t.Parameters, _ = o.has(schema)
		o.take(p)
	}
	return t
}

// template is a tool as chat templates take it.
func (t *Tool) template() json.RawMessage {
	type function struct {
		Name        string          `json:"name"`
		Description string          `json:"description,omitempty"`
		Parameters  json.RawMessage `json:"parameters,omitempty"`
	}
	return must(struct {
		Type     string   `json:"type"`
		Function function `json:"function"`
	}{"function", function{t.Name, t.Description, t.Parameters}})
}

// offered reads the list of tools in a field. one reads a tool.
func (o *object) offered(param string, one func(in *object, raw json.RawMessage, before []Tool) Tool) *Tools {
	t := &Tools{Param: param}
	size := 0
	for i, raw := range o.list(t.Param, limits.Tools) {
		in := open(fmt.Sprintf("%s[%d]", t.Param, i), raw)
		tool := one(in, raw, t.List)
		if size += len(raw); size > limits.ToolBytes {
			in.fail("name", "%q ends beyond %d bytes of tools", tool.Name, limits.ToolBytes)
		}
		if o.take(in); o.err != nil {
			break
		}
		t.List = append(t.List, tool)
	}
	return t
}

// only says that one tool has to be called.
func (t *Tools) only(o *object, name string) {
	t.Required, t.Single = true, true
	t.may(o, name)
}

// choice is the field that chooses among them.
func (t *Tools) choice() string {
	if t.legacy {
		return "function_call"
	}
	return "tool_choice"
}

// may says that a tool may be called.
func (t *Tools) may(o *object, name string) {
	t.Names = append(t.Names, name)
	if !slices.ContainsFunc(t.List, func(x Tool) bool { return x.Name == name }) {
		o.fail(t.choice(), "names %q, which is not among the %s", name, t.Param)
	}
}

// allowed reads which tools may be called; chats have that in an object of its own.
func (o *object) allowed(t *Tools, c *object, named func(c *object) string) {
	in := c
	if _, ok := c.has("allowed_tools"); ok {
		if in = c.object("allowed_tools"); in == nil {
			return
		}
	}
	mode := in.text("mode")
	if t.Required = mode == "required"; !t.Required && mode != "auto" {
		in.fail("mode", "is %q, want auto or required", mode)
	}
	for i, raw := range in.list("tools", limits.Tools) {
		x := open(fmt.Sprintf("%stools[%d]", in.at, i), raw)
		x.functionsOnly()
		name := named(x)
		if in.take(x); in.err != nil {
			break
		}
		t.may(o, name)
	}
	if in.err == nil && len(t.Names) == 0 {
		in.fail("tools", "is empty, want at least one tool")
	}
	if in != c {
		c.take(in)
	}
}

// several says whether there may be several calls, nil if the request does not say. An answer that has to call ends
// with its call then: after it, another one is all that a weak model could write.
func (t *Tools) several(may *bool) {
	t.Single = t.Single || may != nil && !*may || may == nil && t.Required
}

// some are the tools if there are any. Without them nothing can be called.
func (t *Tools) some(o *object) *Tools {
	if t.Required && len(t.List) == 0 {
		o.fail(t.choice(), "asks for a call without %s", t.Param)
	}
	if o.err != nil || len(t.List) == 0 {
		return nil
	}
	return t
}

// functionsOnly refuses tools that are no functions.
func (o *object) functionsOnly() {
	if kind := o.text("type"); o.err == nil && kind != "function" {
		o.unsupported("type", "is %q, want \"function\"", kind)
	}
}

// toolChoice reads how OpenAI's API chooses tools. named reads the name of one that has to be called.
func (o *object) toolChoice(t *Tools, named func(c *object) string) *Tools {
	v, ok := o.has("tool_choice")
	switch {
	case !ok:
	case v[0] == '"':
		switch c := o.text("tool_choice"); c {
		case "none":
			t.None = true
		case "auto":
		case "required":
			t.Required = true
		default:
			o.fail("tool_choice", "is %q, want none, auto, required or an object that names a function", c)
		}
	default:
		if c := o.object("tool_choice"); c != nil && c.text("type") == "allowed_tools" {
			o.allowed(t, c, named)
			o.take(c)
		} else if c != nil {
			c.functionsOnly()
			name := named(c)
			if o.take(c); o.err == nil {
				t.only(o, name)
			}
		}
	}
	t.several(o.optionalBoolean("parallel_tool_calls"))
	return t.some(o)
}

// tools reads the tools of a chat, or its functions; nil if there are none.
func (o *object) tools() *Tools {
	if functions := o.functions(); functions != nil {
		return functions.some(o)
	}
	return o.toolChoice(o.offered("tools", func(in *object, raw json.RawMessage, before []Tool) (t Tool) {
		in.functionsOnly()
		if f := in.object("function"); f != nil {
			t = f.function("parameters", before)
			t.JSON = raw
			in.take(f)
		} else {
			in.fail("function", "is missing, want an object")
		}
		return t
	}), func(c *object) (name string) {
		if f := c.object("function"); f != nil {
			name = f.need("name")
			c.take(f)
		} else {
			c.fail("function", "is missing, want an object with a name")
		}
		return name
	})
}

// responseTools reads the tools of a response, which have no object of their own for the function.
func (o *object) responseTools() *Tools {
	return o.toolChoice(o.offered("tools", func(in *object, _ json.RawMessage, before []Tool) Tool {
		in.functionsOnly()
		t := in.function("parameters", before)
		t.JSON = t.template()
		return t
	}), func(c *object) string { return c.need("name") })
}

// messageTools reads the tools of a message, as Anthropic's API has them.
func (o *object) messageTools() *Tools {
	t := o.offered("tools", func(in *object, _ json.RawMessage, before []Tool) Tool {
		if kind := in.text("type"); in.err == nil && kind != "" && kind != "custom" {
			in.unsupported("type", "is %q: this server runs no tools, want \"custom\"", kind)
		}
		if _, ok := in.has("input_schema"); !ok {
			in.fail("input_schema", "is missing, want a JSON Schema")
		}
		t := in.function("input_schema", before)
		t.JSON = t.template()
		return t
	})
	c := o.object("tool_choice")
	if c == nil {
		return t.some(o)
	}
	switch kind := c.text("type"); kind {
	case "auto":
	case "none":
		t.None = true
	case "any":
		t.Required = true
	case "tool":
		name := c.need("name")
		if o.take(c); o.err == nil {
			t.only(o, name)
		}
	default:
		c.fail("type", "is %q, want auto, any, tool or none", kind)
	}
	p := c.optionalBoolean("disable_parallel_tool_use")
	if p != nil {
		*p = !*p
	}
	t.several(p)
	o.take(c)
	return t.some(o)
}

// Callable are the tools that the answer may call.
func (t *Tools) Callable() []Tool {
	return slices.DeleteFunc(slices.Clone(t.List), func(x Tool) bool { return t.Names != nil && !slices.Contains(t.Names, x.Name) })
}

// callOf reads a tool's name and its arguments: an object, or the text of one.
func (o *object) callOf(id, arguments string) turnCall {
	c := turnCall{Type: "function", ID: id, Function: turnFunction{Name: o.toolName()}}
	args, ok := o.has(arguments)
	if ok && args[0] == '"' {
		args = json.RawMessage(o.text(arguments))
	}
	if args = bytes.TrimSpace(args); !ok || len(args) == 0 {
		args = json.RawMessage("{}")
	}
	if o.err == nil && (args[0] != '{' || open("", args).err != nil) {
		o.fail(arguments, "is no JSON object")
	}
	c.Function.Arguments = args
	return c
}

// called puts the calls of a message of the assistant into the form that templates take, and
// reports whether it changed the message.
func (o *object) called() (changed bool) {
	raw, ok := o.fields["tool_calls"]
	if !ok {
		return false
	}
	var calls []turnCall
	for i, v := range o.list("tool_calls", limits.ToolCalls) {
		in := open(fmt.Sprintf("%stool_calls[%d]", o.at, i), v)
		if f := in.object("function"); f != nil {
			calls = append(calls, f.callOf(in.text("id"), "arguments"))
			in.take(f)
		} else {
			in.fail("function", "is missing, want an object")
		}
		if o.take(in); o.err != nil {
			return false
		}
	}
	if delete(o.fields, "tool_calls"); len(calls) == 0 {
		return string(raw) != ""
	}
	o.fields["tool_calls"], _ = json.Marshal(calls)
	return true
}
