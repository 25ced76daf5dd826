package corpus

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// A Template builds a text from the fields of a JSON object:
//
//	Question: {question}\nAnswer:
//
// {a.b.0} reaches into objects and lists. {prompt} of an object without that field is
// the first of its turns. \n, \t and \\ stand for a line break, a tab and a backslash,
// {{ and }} for braces.
type Template struct {
	parts []part
}

// A part is literal text, or a field if path is set.
type part struct {
	text string
	path []string
}

// ParseTemplate reads a template.
func ParseTemplate(s string) (*Template, error) {
	t := &Template{}
	var lit strings.Builder
	flush := func() {
		if lit.Len() > 0 {
			t.parts = append(t.parts, part{text: lit.String()})
			lit.Reset()
		}
	}
	for i := 0; i < len(s); i++ {
		two := s[i:min(i+2, len(s))]
		switch {
		case two == "{{" || two == "}}":
			lit.WriteByte(s[i])
			i++
		case s[i] == '\\':
			esc := map[string]byte{`\n`: '\n', `\t`: '\t', `\\`: '\\'}
			c, ok := esc[two]
			if !ok {
				return nil, fmt.Errorf("template: %q at byte %d, want \\n, \\t or \\\\", two, i)
			}
			lit.WriteByte(c)
			i++
		case s[i] == '{':
			n := strings.IndexAny(s[i+1:], "{}")
			if n < 0 || s[i+1+n] != '}' {
				return nil, fmt.Errorf("template: { at byte %d is not closed", i)
			}
			path := strings.Split(s[i+1:i+1+n], ".")
			for _, p := range path {
				if p == "" {
					return nil, fmt.Errorf("template: {%s} at byte %d, want a field name", s[i+1:i+1+n], i)
				}
			}
			flush()
			t.parts = append(t.parts, part{path: path})
			i += n + 1
		case s[i] == '}':
			return nil, fmt.Errorf("template: } at byte %d is not opened; write }} for a brace", i)
		default:
			lit.WriteByte(s[i])
		}
	}
	flush()
	return t, nil
}

// Render fills t from a decoded JSON object.
func (t *Template) Render(object map[string]any) (string, error) {
	var b strings.Builder
	for _, p := range t.parts {
		if p.path == nil {
			b.WriteString(p.text)
			continue
		}
		s, err := field(object, p.path)
		if err != nil {
			return "", err
		}
		b.WriteString(s)
	}
	return b.String(), nil
}

// field returns the text at path.
func field(object map[string]any, path []string) (string, error) {
	name := strings.Join(path, ".")
	var v any = object
	if _, ok := object["prompt"]; name == "prompt" && !ok {
		if _, ok := object["turns"]; ok {
			path, name = []string{"turns", "0"}, "turns[0]"
		}
	}
	for _, key := range path {
		switch x := v.(type) {
		case map[string]any:
			var ok bool
			if v, ok = x[key]; !ok {
				return "", fmt.Errorf("field %q: missing", name)
			}
		case []any:
			i, err := strconv.Atoi(key)
			if err != nil || i < 0 || i >= len(x) {
				return "", fmt.Errorf("field %q: no element %q in a list of %d", name, key, len(x))
			}
			v = x[i]
		default:
			return "", fmt.Errorf("field %q: missing", name)
		}
	}
	return asText(name, v)
}

func asText(name string, v any) (string, error) {
	switch x := v.(type) {
	case string:
		return x, nil
	case json.Number:
		return x.String(), nil
	case bool:
		return strconv.FormatBool(x), nil
	case nil:
		return "", fmt.Errorf("field %q: null, want text", name)
	case []any:
		return "", fmt.Errorf("field %q: a list, want text", name)
	}
	return "", fmt.Errorf("field %q: an object, want text", name)
}
