package chat

import (
	"fmt"
	"slices"

	"talf/internal/ijson"
	"talf/text/chat/internal/jinja"
)

// A Conversation is the input of a template: messages, tools and any other variables.
// JSON objects keep the order of their keys, and numbers keep their spelling.
type Conversation struct {
	messages []jinja.Value
	generate bool
	// continues: the text ends with the last message, which goes on.
	continues bool
	vars      *jinja.Dict // every other variable, including tools
}

// ParseConversation reads a JSON object with a list "messages" of objects; "tools" (a
// list of objects), "add_generation_prompt" and all other fields become variables of
// the template. With "continue_final_message" the text ends where the content of the last
// message ends, which has to be text.
func ParseConversation(line []byte) (*Conversation, error) {
	v, err := parseJSON(line)
	if err != nil {
		return nil, fmt.Errorf("conversation: %w", err)
	}
	object, ok := v.(*jinja.Dict)
	if !ok {
		return nil, fmt.Errorf("conversation: %s, want an object with messages", jinja.JSONType(v))
	}
	c := &Conversation{vars: jinja.NewDict()}
	found := false
	for key, v := range object.All() {
		name, _ := key.(string)
		switch name {
		case "messages":
			found = true
			list, ok := v.(*jinja.List)
			if !ok {
				return nil, fmt.Errorf("conversation: messages: %s, want a list of objects", jinja.JSONType(v))
			}
			for i, m := range list.Items {
				d, ok := m.(*jinja.Dict)
				if !ok {
					return nil, fmt.Errorf("conversation: messages[%d]: %s, want an object", i, jinja.JSONType(m))
				}
				c.messages = append(c.messages, aliasReasoning(d))
			}
		case "add_generation_prompt":
			b, ok := v.(bool)
			if !ok && v != nil {
				return nil, fmt.Errorf("conversation: add_generation_prompt: %s, want true or false", jinja.JSONType(v))
			}
			c.generate = b
		case "continue_final_message":
			b, ok := v.(bool)
			if !ok && v != nil {
				return nil, fmt.Errorf("conversation: continue_final_message: %s, want true or false", jinja.JSONType(v))
			}
			c.continues = b
		case "tools", "documents":
			if err := objects(name, v); err != nil {
				return nil, err
			}
			fallthrough
		default:
			c.vars.Set(name, v)
		}
	}
	if !found {
		return nil, fmt.Errorf("conversation: messages: missing")
	}
	if c.continues && c.generate {
		return nil, fmt.Errorf("conversation: continue_final_message: true beside add_generation_prompt, want one of them")
	}
	return c, nil
}

// parseJSON reads a value for a template.
func parseJSON(b []byte) (jinja.Value, error) {
	v, err := jinja.ParseJSON(b)
	if err == nil {
		err = ijson.Check(b) // for keys that occur twice
	}
	return v, err
}

// objects checks that a field is null or a list of objects.
func objects(name string, v jinja.Value) error {
	if v == nil {
		return nil
	}
	list, ok := v.(*jinja.List)
	if !ok {
		return fmt.Errorf("conversation: %s: %s, want a list of objects", name, jinja.JSONType(v))
	}
	for i, x := range list.Items {
		if _, ok := x.(*jinja.Dict); !ok {
			return fmt.Errorf("conversation: %s[%d]: %s, want an object", name, i, jinja.JSONType(x))
		}
	}
	return nil
}

// reasoningFields are the names under which a message may carry its reasoning.
var reasoningFields = []string{"reasoning_content", "thinking", "reasoning"}

// aliasReasoning adds a message's reasoning under all names that templates use, as
// transformers does.
func aliasReasoning(m *jinja.Dict) *jinja.Dict {
	for _, name := range reasoningFields {
		reasoning, ok := m.GetString(name)
		if !ok || reasoning == nil {
			continue
		}
		out := jinja.NewDict()
		out.Set("thinking", reasoning)
		for k, v := range m.All() {
			out.Set(k, v)
		}
		out.Set("reasoning_content", reasoning)
		return out
	}
	return m
}

// Len returns the number of messages.
func (c *Conversation) Len() int { return len(c.messages) }

// Role returns the role of message i, or "" if it is not a string.
func (c *Conversation) Role(i int) string {
	role, _ := c.messages[i].(*jinja.Dict).GetString("role")
	s, _ := role.(string)
	return s
}

// Head returns c with its first n messages only. They are shared with c.
func (c *Conversation) Head(n int) *Conversation {
	h := *c
	h.messages = slices.Clip(c.messages[:n])
	return &h
}

// WithGenerationPrompt returns c with add_generation_prompt set, which says whether the
// text ends where the assistant begins to speak. Everything else is shared with c.
func (c *Conversation) WithGenerationPrompt(on bool) *Conversation {
	g := *c
	g.generate = on
	return &g
}

// WithVariable returns c with a variable of the template set to a JSON value.
// Everything else is shared with c. The name must not be messages or
// add_generation_prompt.
func (c *Conversation) WithVariable(name string, value []byte) (*Conversation, error) {
	if name == "messages" || name == "add_generation_prompt" {
		return nil, fmt.Errorf("conversation: %s is not a variable that can be set", name)
	}
	v, err := parseJSON(value)
	if err != nil {
		return nil, fmt.Errorf("conversation: %s: %w", name, err)
	}
	if name == "tools" || name == "documents" {
		if err := objects(name, v); err != nil {
			return nil, err
		}
	}
	w := *c
	w.vars = c.vars.Clone()
	w.vars.Set(name, v)
	return &w, nil
}

func (c *Conversation) hasTools() bool {
	v, _ := c.vars.GetString("tools")
	return v != nil
}

// variables returns the variables that the template sees.
func (c *Conversation) variables(tokens *jinja.Dict, messages []jinja.Value, generate bool) *jinja.Dict {
	d := tokens.Clone()
	// transformers always passes these, as None if they are not given.
	d.Set("tools", nil)
	d.Set("documents", nil)
	for k, v := range c.vars.All() {
		d.Set(k, v)
	}
	d.Set("messages", jinja.NewList(messages...))
	d.Set("add_generation_prompt", generate)
	return d
}
