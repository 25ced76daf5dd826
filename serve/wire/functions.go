package wire

import (
	"encoding/json"
	"fmt"
)

// functions reads what OpenAI's API had before there were tools: functions, of which an answer calls one at most,
// and function_call, which chooses among them. It returns nil if there are none.
func (o *object) functions() *Tools {
	_, given := o.has("functions")
	choice, chosen := o.has("function_call")
	if !given && !chosen {
		return nil
	}
	if _, ok := o.has("tools"); ok {
		o.fail("functions", "is given beside tools, want one of them")
	}
	t := o.offered("functions", func(in *object, _ json.RawMessage, before []Tool) Tool {
		t := in.function("parameters", before)
		t.JSON = t.template()
		return t
	})
	t.legacy, t.Single = true, true
	switch {
	case !chosen:
	case choice[0] == '"':
		c := o.text("function_call")
		if t.None = c == "none"; !t.None && c != "auto" {
			o.fail("function_call", "is %q, want none, auto or an object with a name", c)
		}
	default:
		if c := o.object("function_call"); c != nil {
			name := c.need("name")
			if o.take(c); o.err == nil {
				t.only(o, name)
			}
		}
	}
	return t
}

// functionCalls turns calls of functions and their results in a conversation into those of tools.
type functionCalls struct{ n int }

func (f *functionCalls) id() string { return fmt.Sprintf("call%05d", f.n) } // some templates want nine letters and digits

// read reads a message of a role, and reports whether it changed it.
func (f *functionCalls) read(o *object, role string) bool {
	if c := o.object("function_call"); c != nil {
		if _, ok := o.has("tool_calls"); ok {
			o.fail("function_call", "is given beside tool_calls, want one of them")
		}
		f.n++
		call := c.callOf(f.id(), "arguments")
		if o.take(c); o.err == nil {
			delete(o.fields, "function_call")
			o.fields["tool_calls"] = must([]turnCall{call})
		}
		return true
	}
	if role != "function" || o.err != nil {
		return false
	}
	if f.n == 0 {
		o.fail("role", "is \"function\" before any function_call")
		return false
	}
	o.fields["role"], o.fields["tool_call_id"] = must("tool"), must(f.id())
	if _, ok := o.has("content"); !ok { // OpenAI's API takes null
		o.fields["content"] = must("")
	}
	return true
}
