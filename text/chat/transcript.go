package chat

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"

	"talf/internal/ijson"
)

// A Transcript is a conversation in the form of OpenAI's messages, regardless of the
// form of its source.
type Transcript struct {
	Messages []Message
	// extra contains the keys that accompany the messages, in their order: "tools" and
	// those of "chat_template_kwargs".
	extra []keyValue
}

// A Message is one turn of a conversation.
type Message struct {
	Role  string
	Text  string          // the content; empty if there is none
	Calls []string        // names of the tools that the message calls
	Muted bool            // not to be trained on: the message's "weight" is 0
	JSON  json.RawMessage // the whole message; keys keep their order
}

// Assistant is the role of the messages that a model writes.
const Assistant = "assistant"

// Questions returns the texts of the user's messages.
func (c *Transcript) Questions() []string {
	var out []string
	for i := range c.Messages {
		if c.Messages[i].Role == "user" {
			out = append(out, c.Messages[i].Text)
		}
	}
	return out
}

// JSON returns an object with the given messages and everything else in c that a chat
// template sees: {"messages":[…],"tools":[…],…}.
func (c *Transcript) JSON(messages []Message) []byte {
	var b bytes.Buffer
	b.WriteString(`{"messages":[`)
	for i := range messages {
		if i > 0 {
			b.WriteByte(',')
		}
		b.Write(messages[i].JSON)
	}
	b.WriteByte(']')
	for _, e := range c.extra {
		b.WriteByte(',')
		e.write(&b)
	}
	b.WriteByte('}')
	return b.Bytes()
}

// NewMessage returns a message of plain text.
func NewMessage(role, text string) Message {
	return Message{Role: role, Text: text, JSON: object(keyValue{"role", quote(role)}, keyValue{"content", quote(text)})}
}

// NewAnswer returns an assistant's message with what was thought before it, which is in
// "reasoning_content", where templates look for it. Without a thought there is no such key.
func NewAnswer(text, reasoning string) Message {
	m := NewMessage(Assistant, text)
	if reasoning != "" {
		m.JSON = object(keyValue{"role", quote(Assistant)}, keyValue{"reasoning_content", quote(reasoning)}, keyValue{"content", quote(text)})
	}
	return m
}

type keyValue struct {
	key string
	raw json.RawMessage
}

func (e keyValue) write(b *bytes.Buffer) {
	b.Write(quote(e.key))
	b.WriteByte(':')
	b.Write(e.raw)
}

// object writes keys in the given order.
func object(keys ...keyValue) json.RawMessage {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, e := range keys {
		if i > 0 {
			b.WriteByte(',')
		}
		e.write(&b)
	}
	b.WriteByte('}')
	return b.Bytes()
}

func quote(s string) json.RawMessage {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(s); err != nil {
		panic("chat: " + err.Error()) // strings always marshal
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// keys reads an object's keys in their order.
func keys(raw json.RawMessage) ([]keyValue, error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return nil, errors.New("not an object")
	}
	var out []keyValue
	for dec.More() {
		t, err := dec.Token()
		if err != nil {
			return nil, err
		}
		e := keyValue{key: t.(string)} // the decoder accepts nothing else as a key
		if err := dec.Decode(&e.raw); err != nil {
			return nil, err
		}
		out = append(out, e)
	}
	return out, nil
}

func find(list []keyValue, key string) json.RawMessage {
	for i := len(list) - 1; i >= 0; i-- { // the last one counts, as in a map
		if list[i].key == key && string(list[i].raw) != "null" {
			return list[i].raw
		}
	}
	return nil
}

// elements returns a list's elements, or false if raw is not a list.
func elements(raw json.RawMessage) ([]json.RawMessage, bool) {
	if len(raw) == 0 || raw[0] != '[' {
		return nil, false
	}
	var out []json.RawMessage
	err := json.Unmarshal(raw, &out)
	return out, err == nil
}

func asString(raw json.RawMessage) (string, bool) {
	if len(raw) == 0 || raw[0] != '"' {
		return "", false
	}
	var s string
	err := json.Unmarshal(raw, &s)
	return s, err == nil
}

// ParseTranscript reads a JSON object with "messages" in the form of OpenAI's API, or
// with "conversations" in ShareGPT's form. It returns nil if the object has neither.
// Contents in parts become one text, and the arguments of tool calls become objects.
func ParseTranscript(record []byte) (*Transcript, error) {
	if err := ijson.Check(record); err != nil {
		return nil, err
	}
	rec, err := keys(record)
	if err != nil {
		return nil, err
	}
	var list []json.RawMessage
	name, wrong := "", error(nil)
	for _, key := range []string{"messages", "conversations", "conversation"} {
		raw := find(rec, key)
		if raw == nil {
			continue
		}
		var ok bool
		if list, ok = elements(raw); ok && len(list) > 0 {
			name = key
			break
		}
		wrong = fmt.Errorf("field %q: want a list of messages", key)
	}
	if name == "" {
		for _, key := range []string{"text", "prompt", "turns"} {
			if find(rec, key) != nil {
				wrong = nil // then the other field is something else
			}
		}
		return nil, wrong
	}
	c := &Transcript{}
	var pending callIDs
	for i, raw := range list {
		m, err := message(raw, &pending)
		if err != nil {
			return nil, fmt.Errorf("field %q: %w", fmt.Sprintf("%s[%d]", name, i), err)
		}
		c.Messages = append(c.Messages, m)
	}
	if s, ok := asString(find(rec, "system")); ok && strings.TrimSpace(s) != "" && c.Messages[0].Role != "system" {
		c.Messages = slices.Insert(c.Messages, 0, NewMessage("system", s))
	}
	tools := find(rec, "tools")
	if s, ok := asString(tools); ok { // some data sets store JSON in a string
		if tools = nil; strings.TrimSpace(s) != "" {
			tools = json.RawMessage(s)
			if err := ijson.Check(tools); err != nil {
				return nil, fmt.Errorf(`field "tools": text that is not JSON, want a list of tools: %w`, err)
			}
		}
	}
	if tools != nil {
		tools = bytes.TrimSpace(tools)
		list, ok := elements(tools)
		if !ok {
			return nil, errors.New(`field "tools": want a list of tools`)
		}
		if len(list) > 0 {
			c.extra = append(c.extra, keyValue{"tools", tools})
		}
	}
	if kw := find(rec, "chat_template_kwargs"); kw != nil {
		list, err := keys(kw)
		if err != nil {
			return nil, fmt.Errorf(`field "chat_template_kwargs": %w`, err)
		}
		for _, e := range list {
			switch e.key {
			case "messages", "tools", "add_generation_prompt":
				return nil, fmt.Errorf(`field "chat_template_kwargs.%s": this variable is set from the conversation`, e.key)
			}
			c.extra = append(c.extra, e)
		}
	}
	return c, nil
}

// message reads {"role", "content", …} or {"from", "value"}.
func message(raw json.RawMessage, pending *callIDs) (Message, error) {
	list, err := keys(raw)
	if err != nil {
		return Message{}, err
	}
	if find(list, "role") == nil && find(list, "from") != nil {
		return shared(list, pending)
	}
	role, ok := asString(find(list, "role"))
	if !ok || role == "" {
		return Message{}, errors.New(`no "role", want text`)
	}
	m := Message{Role: role, JSON: raw}
	if calls, ok := elements(find(list, "tool_calls")); ok && len(calls) > 0 {
		m.Calls = names(calls)
		rewrite(list, "tool_calls", arguments(calls, false))
		m.JSON = object(list...)
	}
	if w := find(list, "weight"); w != nil {
		if f, err := strconv.ParseFloat(string(w), 64); err != nil || f != 0 && f != 1 {
			return Message{}, fmt.Errorf(`"weight": %s, want 0 or 1`, w)
		} else {
			m.Muted = f == 0
		}
	}
	content := find(list, "content")
	if parts, ok := elements(content); ok {
		// Templates of text-only models expect a string.
		if m.Text, err = join(parts); err != nil {
			return Message{}, err
		}
		rewrite(list, "content", quote(m.Text))
		m.JSON = object(list...)
		return m, nil
	}
	if content == nil {
		if len(m.Calls) == 0 || role != Assistant {
			return Message{}, errors.New(`no "content", want text`)
		}
		return m, nil
	}
	if m.Text, ok = asString(content); !ok {
		return Message{}, errors.New(`"content": want text or a list of parts`)
	}
	return m, nil
}

// A form is a way to write messages that call tools. Templates disagree: some require a
// string where OpenAI's API leaves the content empty, and most require an object where
// the API writes the arguments as a string.
type form struct {
	emptyContent bool // "content" is "", not null or missing
	textArgument bool // "arguments" is a string of JSON, not an object
}

// Forms yields the forms in which messages can be passed to a template, the usual one
// first. Messages without tool calls have only one.
func Forms(messages []Message) iter.Seq[[]Message] {
	return func(yield func([]Message) bool) {
		calls := slices.ContainsFunc(messages, func(m Message) bool { return len(m.Calls) > 0 })
		for _, f := range []form{{}, {textArgument: true}, {emptyContent: true}, {emptyContent: true, textArgument: true}} {
			if !yield(recast(messages, f)) || !calls {
				return
			}
		}
	}
}

// TextArguments returns messages in the form of OpenAI's API, where the arguments of calls
// are texts of JSON.
func TextArguments(messages []Message) []Message { return recast(messages, form{textArgument: true}) }

// recast converts messages from the first form to another one.
func recast(messages []Message, f form) []Message {
	if f == (form{}) {
		return messages
	}
	out := slices.Clone(messages)
	for i := range out {
		m := &out[i]
		list, err := keys(m.JSON)
		if len(m.Calls) == 0 || err != nil {
			continue
		}
		if f.emptyContent && find(list, "content") == nil {
			list = slices.DeleteFunc(list, func(e keyValue) bool { return e.key == "content" })
			list = append(list, keyValue{"content", quote("")})
		}
		if calls, ok := elements(find(list, "tool_calls")); ok && f.textArgument {
			rewrite(list, "tool_calls", arguments(calls, true))
		}
		m.JSON = object(list...)
	}
	return out
}

// rewrite replaces a key's value.
func rewrite(list []keyValue, key string, raw json.RawMessage) {
	for i := range list {
		if list[i].key == key {
			list[i].raw = raw
		}
	}
}

// names returns the names of the called functions, "" for a call without one.
func names(calls []json.RawMessage) []string {
	out := make([]string, len(calls))
	for i, raw := range calls {
		if call, err := keys(raw); err == nil {
			if f, err := keys(find(call, "function")); err == nil {
				out[i], _ = asString(find(f, "name"))
			}
		}
	}
	return out
}

// arguments writes the arguments of tool calls as objects or as strings. Arguments that
// are neither stay unchanged.
func arguments(calls []json.RawMessage, asText bool) json.RawMessage {
	var b bytes.Buffer
	b.WriteByte('[')
	for i, raw := range calls {
		if i > 0 {
			b.WriteByte(',')
		}
		call, err := keys(raw)
		at := slices.IndexFunc(call, func(e keyValue) bool { return e.key == "function" })
		var f []keyValue
		if err == nil && at >= 0 {
			f, err = keys(call[at].raw)
		}
		if err != nil || at < 0 {
			b.Write(raw)
			continue
		}
		args := find(f, "arguments")
		text, isText := asString(args)
		switch {
		case isText && !asText:
			if _, err := ijson.Members([]byte(text)); err == nil {
				rewrite(f, "arguments", json.RawMessage(text))
			}
		case !isText && asText && args != nil:
			rewrite(f, "arguments", quote(string(args)))
		}
		call[at].raw = object(f...)
		b.Write(object(call...))
	}
	b.WriteByte(']')
	return b.Bytes()
}

// join joins parts like {"type":"text","text":…}into one text, one part per line.
func join(parts []json.RawMessage) (string, error) {
	var texts []string
	for i, p := range parts {
		s, ok := asString(p)
		if !ok {
			list, err := keys(p)
			if err != nil {
				return "", fmt.Errorf(`"content[%d]": %w`, i, err)
			}
			kind, _ := asString(find(list, "type"))
			if kind != "text" && kind != "" {
				return "", fmt.Errorf(`"content[%d]": a part of type %q, want text`, i, kind)
			}
			if s, ok = asString(find(list, "text")); !ok {
				return "", fmt.Errorf(`"content[%d]": no "text"`, i)
			}
		}
		texts = append(texts, s)
	}
	return strings.Join(texts, "\n"), nil
}

// roles maps ShareGPT's "from" to roles.
var roles = map[string]string{
	"human": "user", "user": "user",
	"gpt": Assistant, "assistant": Assistant, "chatgpt": Assistant, "bing": Assistant, "bard": Assistant, "model": Assistant,
	"system": "system",
	"tool":   "tool", "observation": "tool", "function_response": "tool",
	"function_call": Assistant,
}

// callIDs assigns ids to ShareGPT's tool calls, by which results refer to them, as in
// OpenAI's format. Some templates require nine letters and digits.
type callIDs struct {
	n       int
	waiting []string // ids of calls that wait for their results
}

func (c *callIDs) next() string {
	c.n++
	c.waiting = append(c.waiting, fmt.Sprintf("call%05d", c.n))
	return c.waiting[len(c.waiting)-1]
}

// shared reads a message in ShareGPT's form.
func shared(list []keyValue, pending *callIDs) (Message, error) {
	from, _ := asString(find(list, "from"))
	role := roles[from]
	if role == "" {
		return Message{}, fmt.Errorf(`"from": %s, want human, gpt, system, tool, function_call or observation`, find(list, "from"))
	}
	raw := find(list, "value")
	text, ok := asString(raw)
	if from == "function_call" {
		if ok {
			raw = json.RawMessage(text)
		}
		return called(raw, pending)
	}
	if !ok {
		return Message{}, errors.New(`no "value", want text`)
	}
	m := NewMessage(role, text)
	if role == "tool" && len(pending.waiting) > 0 {
		m.JSON = object(keyValue{"role", quote(role)}, keyValue{"tool_call_id", quote(pending.waiting[0])}, keyValue{"content", quote(text)})
		pending.waiting = pending.waiting[1:]
	}
	return m, nil
}

// called builds a message from {"name", "arguments"} or a list of these.
func called(raw json.RawMessage, pending *callIDs) (Message, error) {
	wrong := errors.New(`"value" of a function_call: want JSON: {"name": text, "arguments": object}`)
	raw = bytes.TrimSpace(raw)
	if ijson.Check(raw) != nil {
		return Message{}, wrong
	}
	list, ok := elements(raw)
	if !ok {
		list = []json.RawMessage{raw}
	}
	if len(list) == 0 {
		return Message{}, wrong
	}
	var calls bytes.Buffer
	for i, call := range list {
		o, err := keys(call)
		if err != nil {
			return Message{}, wrong
		}
		name, args := find(o, "name"), find(o, "arguments")
		if _, ok := asString(name); !ok {
			return Message{}, wrong
		}
		if s, ok := asString(args); ok && ijson.Check([]byte(s)) == nil {
			args = json.RawMessage(s)
		}
		if args == nil {
			args = json.RawMessage("{}")
		}
		if i > 0 {
			calls.WriteByte(',')
		}
		calls.Write(object(keyValue{"id", quote(pending.next())}, keyValue{"type", quote("function")}, keyValue{"function", object(keyValue{"name", name}, keyValue{"arguments", args})}))
	}
	raw = json.RawMessage("[" + calls.String() + "]")
	list, _ = elements(raw)
	return Message{Role: Assistant, Calls: names(list), JSON: object(
		keyValue{"role", quote(Assistant)}, keyValue{"content", json.RawMessage("null")}, keyValue{"tool_calls", raw},
	)}, nil
}
