package toolcall

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"talf/text/chat"
)

// A Style is how tools are described to a model, and how it calls them.
type Style struct {
	Format *Format
	// Told: the template writes what the tools are. Otherwise a message has to.
	Told bool
	// Thinks: the template knows what a model thinks before it answers.
	Thinks bool
}

// probe is a conversation that calls a tool of an unlikely name. Some templates take no other ids than one of this length.
const (
	probedID = "abcdef123"
	probe    = `{"messages":[{"role":"user","content":"Question"},{"role":"assistant","content":null,"tool_calls":[{"type":"function","id":"` + probedID + `",` +
		`"function":{"name":"probed_tool","arguments":"{\"unlikely\": 1}"}}]},{"role":"tool","name":"probed_tool","tool_call_id":"` + probedID + `","content":"1"}],` +
		`"tools":[{"type":"function","function":{"name":"probed_tool","description":"probed_description","parameters":{"type":"object","properties":{"unlikely":{"type":"integer"}}}}}]}`
)

// Detect finds out how a template writes calls, by having it write one. Without a template, and for
// one that writes none in a known format, the format is the plain one.
func Detect(ctx context.Context, t *chat.Template) (Style, error) {
	plain := Style{Format: formats[len(formats)-1]}
	if t == nil {
		return plain, nil
	}
	talk, err := chat.ParseTranscript([]byte(probe))
	if err != nil {
		return plain, err
	}
	for form := range chat.Forms(talk.Messages) {
		c, err := chat.ParseConversation(talk.JSON(form))
		if err != nil {
			return plain, err
		}
		r, err := t.Render(ctx, c)
		if err != nil {
			if ctx.Err() != nil {
				return plain, ctx.Err()
			}
			continue // another form may do
		}
		text := squeezed(r.Text)
		for _, f := range formats[:len(formats)-1] {
			name := "probed_tool"
			if f.id != "" {
				name += f.id + probedID
			}
			want := f.lead + f.before + name + f.middle + `{"unlikely": 1}`
			if f.channels {
				want = recipient + name + channelMark
			}
			if strings.Contains(text, squeezed(want)) {
				return Style{Format: f, Told: strings.Contains(text, "probed_description"), Thinks: t.Mentions(thinkOpen)}, nil
			}
		}
	}
	plain.Thinks = t.Mentions(thinkOpen)
	return plain, nil
}

// A Name is what a format is called, as the value of a flag; "" is none.
type Name string

// Names returns what the formats are called.
func Names() (out []string) {
	for _, f := range formats {
		out = append(out, f.name)
	}
	return out
}

func (n *Name) String() string { return string(*n) }

// Set reports a name that no format has.
func (n *Name) Set(name string) error {
	if name != "" && !slices.Contains(Names(), name) {
		return fmt.Errorf("%q is no format of calls, want one of %s", name, strings.Join(Names(), ", "))
	}
	*n = Name(name)
	return nil
}

// Type says in help texts what the value is.
func (*Name) Type() string { return "name" }

// As returns the style of a model that calls in the format of a name; "" is that of s. Where the template writes
// calls differently, messages say what the tools are and how to call them, and have calls and results as text.
func (s Style) As(name Name) (Style, error) {
	if name == "" || string(name) == s.Format.name {
		return s, nil
	}
	if err := new(Name).Set(string(name)); err != nil {
		return s, fmt.Errorf("format of tools: %w", err)
	}
	f := *formats[slices.Index(Names(), string(name))]
	if f.channels {
		return s, fmt.Errorf("format of tools %q: the chat template of the model writes no channels, want another format", name)
	}
	f.plain = true
	return Style{Format: &f, Thinks: s.Thinks}, nil
}

// squeezed is a text without white space.
func squeezed(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) {
			return -1
		}
		return r
	}, s)
}

// Describe tells a model of tools whose template does not.
func (f *Format) Describe(tools []Tool) string {
	var b strings.Builder
	b.WriteString("You can call these functions. Each is described by a JSON object with a JSON Schema of its parameters:\n")
	for i := range tools {
		b.Write(tools[i].JSON)
		b.WriteByte('\n')
	}
	fmt.Fprintf(&b, "\nTo call a function named NAME, answer in this form, with its arguments as a JSON object:\n%s", f.Write([]Call{{"NAME", "{…}"}}))
	return b.String()
}

// A message is what Rewrite reads of one of a conversation, or writes.
type message struct {
	Role    string        `json:"role"`
	Content string        `json:"content"`
	Calls   []messageCall `json:"tool_calls,omitempty"`
}

type messageCall struct {
	Function struct {
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
	} `json:"function"`
}

// Rewrite returns messages for a template that does not know of tools: calls are text of the
// assistant, results text of the user, and what the tools are, text of the system. With told, or
// without tools, the messages say nothing of the tools. Messages have text as content. For a template
// that takes no message of the system, inline puts what it would say before the text of the first message,
// if that is no call and no result.
func (s Style) Rewrite(messages []json.RawMessage, tools []Tool, inline bool) ([]json.RawMessage, error) {
	var out []json.RawMessage
	put := func(m message) {
		b, _ := json.Marshal(m) // strings
		out = append(out, b)
	}
	system := ""
	if len(tools) > 0 && !s.Told {
		system = s.Format.Describe(tools)
	}
	var results []string // of calls that follow each other
	answered := func() {
		if len(results) > 0 {
			put(message{Role: "user", Content: strings.Join(results, "\n")})
			results = nil
		}
	}
	for i, raw := range messages {
		var m message
		if err := json.Unmarshal(raw, &m); err != nil {
			return nil, fmt.Errorf("messages[%d]: %w", i, err)
		}
		if i == 0 && system != "" {
			if m.Role == "system" || m.Role == "developer" {
				put(message{Role: m.Role, Content: m.Content + "\n\n" + system})
				continue
			}
			if inline && m.Role != "tool" && len(m.Calls) == 0 {
				put(message{Role: m.Role, Content: system + "\n\n" + m.Content})
				continue
			}
			put(message{Role: "system", Content: system})
		}
		if m.Role == "tool" && s.Format.plain {
			results = append(results, "<tool_response>\n"+m.Content+"\n</tool_response>")
			continue
		}
		answered()
		if len(m.Calls) == 0 || !s.Format.plain {
			out = append(out, raw)
			continue
		}
		var calls []Call
		for _, c := range m.Calls {
			args := string(c.Function.Arguments)
			var text string
			if json.Unmarshal(c.Function.Arguments, &text) == nil {
				args = text
			}
			calls = append(calls, Call{c.Function.Name, args})
		}
		text := s.Format.Write(calls)
		if m.Content != "" {
			text = m.Content + "\n" + text
		}
		put(message{Role: chat.Assistant, Content: text})
	}
	answered()
	return out, nil
}
