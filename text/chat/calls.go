package chat

import "talf/text/chat/internal/jinja"

// WithObjectArguments returns c with the arguments of tool calls as objects where they are texts
// of JSON objects, as in OpenAI's API: most templates want objects.
func (c *Conversation) WithObjectArguments() *Conversation {
	out := *c
	out.messages = make([]jinja.Value, len(c.messages))
	for i, m := range c.messages {
		out.messages[i] = m
		m := m.(*jinja.Dict) // ParseConversation takes nothing else
		calls, _ := m.GetString("tool_calls")
		list, ok := calls.(*jinja.List)
		if !ok {
			continue
		}
		changed := jinja.NewList()
		for _, call := range list.Items {
			changed.Items = append(changed.Items, objectArguments(call))
		}
		m = m.Clone()
		m.Set("tool_calls", changed)
		out.messages[i] = m
	}
	return &out
}

// objectArguments returns a call, or its function, with arguments that are an object.
func objectArguments(call jinja.Value) jinja.Value {
	d, ok := call.(*jinja.Dict)
	if !ok {
		return call
	}
	d = d.Clone()
	if function, ok := d.GetString("function"); ok {
		d.Set("function", objectArguments(function))
	}
	args, _ := d.GetString("arguments")
	if text, ok := args.(string); ok {
		if v, err := parseJSON([]byte(text)); err == nil {
			if _, ok := v.(*jinja.Dict); ok {
				d.Set("arguments", v)
			}
		}
	}
	return d
}
