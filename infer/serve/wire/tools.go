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
	// Name is the one tool that has to be called; "": any.
	Name string
	// Single: one call at most.
	Single bool
}

// A Tool is a function that a client offers.
type Tool struct {
	Name, Description string
	Parameters        json.RawMessage // JSON Schema; nil: there are none
	Strict            bool
	JSON              json.RawMessage // as the client wrote it
}

// A Call is a call of a tool, or with streaming a part of one.
type Call struct {
	Index     int
	ID, Name  string // of the first part
	Arguments string // a JSON object
}

// toolName is what names of tools are: nothing in them is special in any format.
var toolName = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}$`)

// tools reads the tools of a chat; nil if there are none.
func (o *object) tools() *Tools {
	t := &Tools{Param: "tools"}
	size := 0
	for i, raw := range o.list("tools", limits.Tools) {
		in := open(fmt.Sprintf("tools[%d]", i), raw)
		if kind := in.text("type"); in.err == nil && kind != "function" {
			in.unsupported("type", "is %q, want \"function\"", kind)
		}
		f := in.object("function")
		if f == nil {
			in.fail("function", "is missing, want an object")
		} else {
			tool := Tool{Name: f.need("name"), Description: f.text("description"), Strict: f.boolean("strict"), JSON: raw}
			if f.err == nil && !toolName.MatchString(tool.Name) {
				f.fail("name", "is %q, want 1 to 64 letters, digits, _, . and -", tool.Name)
			}
			if slices.ContainsFunc(t.List, func(x Tool) bool { return x.Name == tool.Name }) {
				f.fail("name", "%q occurs twice", tool.Name)
			}
			if p := f.object("parameters"); p != nil {
				tool.Parameters, _ = f.has("parameters")
				f.take(p)
			}
			in.take(f)
			t.List = append(t.List, tool)
		}
		if size += len(raw); size > limits.ToolBytes {
			in.fail("function", "ends beyond %d bytes of tools", limits.ToolBytes)
		}
		if o.take(in); o.err != nil {
			return nil
		}
	}
	if p := o.optionalBoolean("parallel_tool_calls"); p != nil {
		t.Single = !*p
	}
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
		if c := o.object("tool_choice"); c != nil {
			if kind := c.text("type"); c.err == nil && kind != "function" {
				c.unsupported("type", "is %q, want \"function\"", kind)
			}
			if f := c.object("function"); f != nil {
				t.Name, t.Required, t.Single = f.need("name"), true, true
				c.take(f)
			} else {
				c.fail("function", "is missing, want an object with a name")
			}
			if o.take(c); o.err == nil && !slices.ContainsFunc(t.List, func(x Tool) bool { return x.Name == t.Name }) {
				o.fail("tool_choice", "names %q, which is not among the tools", t.Name)
			}
		}
	}
	if len(t.List) == 0 {
		if t.Required {
			o.fail("tool_choice", "asks for a call without tools")
		}
		return nil
	}
	return t
}

// Callable are the tools that the answer may call.
func (t *Tools) Callable() []Tool {
	if t.Name == "" {
		return t.List
	}
	i := slices.IndexFunc(t.List, func(x Tool) bool { return x.Name == t.Name })
	return t.List[i : i+1]
}

// called puts the calls of a message of the assistant into the form that templates take, and
// reports whether it changed the message.
func (o *object) called() (changed bool) {
	raw, ok := o.fields["tool_calls"]
	if !ok {
		return false
	}
	type function struct {
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
	}
	type call struct {
		Type     string   `json:"type"`
		ID       string   `json:"id,omitempty"`
		Function function `json:"function"`
	}
	var calls []call
	for i, v := range o.list("tool_calls", limits.ToolCalls) {
		in := open(fmt.Sprintf("%stool_calls[%d]", o.at, i), v)
		c := call{Type: "function", ID: in.text("id")}
		f := in.object("function")
		if f == nil {
			in.fail("function", "is missing, want an object")
		} else {
			c.Function.Name = f.need("name")
			if f.err == nil && !toolName.MatchString(c.Function.Name) {
				f.fail("name", "is %q, want 1 to 64 letters, digits, _, . and -", c.Function.Name)
			}
			args, ok := f.has("arguments")
			if ok && args[0] == '"' {
				args = json.RawMessage(f.text("arguments"))
			}
			if args = bytes.TrimSpace(args); !ok || len(args) == 0 {
				args = json.RawMessage("{}")
			}
			if f.err == nil && (args[0] != '{' || open("", args).err != nil) {
				f.fail("arguments", "is no JSON object")
			}
			c.Function.Arguments = args
			in.take(f)
		}
		if o.take(in); o.err != nil {
			return false
		}
		calls = append(calls, c)
	}
	if delete(o.fields, "tool_calls"); len(calls) == 0 {
		return string(raw) != ""
	}
	o.fields["tool_calls"], _ = json.Marshal(calls)
	return true
}
