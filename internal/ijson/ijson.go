// Package ijson reads JSON that every reader understands alike, as RFC 7493 (I-JSON) asks: it is
// UTF-8, no escape is half of a surrogate pair, and no key occurs twice in an object. Keys match
// exactly. encoding/json alone would replace broken text by U+FFFD, take the last of equal keys,
// and take "TEXT" for "text": a program that looks at a request before talf does may see another
// request.
package ijson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"talf/internal/limits"
)

// An Error is what is wrong with a JSON text, and where.
type Error struct {
	Field string // such as "messages[0].content"; "": the text itself
	Err   error
}

func (e *Error) Error() string {
	if e.Field == "" {
		return e.Err.Error()
	}
	return fmt.Sprintf("field %q: %v", e.Field, e.Err)
}

func (e *Error) Unwrap() error { return e.Err }

// The errors of JSON that is refused though its syntax is right. ErrDepth and ErrKeys wrap
// limits.ErrTooLarge.
var (
	ErrAfter     = errors.New("text after the JSON value")
	ErrUTF8      = errors.New("not UTF-8")
	ErrSurrogate = errors.New("half of a surrogate pair, want UTF-8")
	ErrTwice     = errors.New("it occurs twice")
	ErrDepth     = fmt.Errorf("nested deeper than %d: %w", limits.JSONDepth, limits.ErrTooLarge)
	ErrKeys      = fmt.Errorf("an object of more than %d keys: %w", limits.JSONKeys, limits.ErrTooLarge)
	ErrUnknown   = errors.New("there is no such field")
)

// Check reports why b is not one JSON value that every reader understands alike.
func Check(b []byte) error {
	if !json.Valid(b) {
		var first json.RawMessage
		if json.NewDecoder(bytes.NewReader(b)).Decode(&first) == nil {
			return &Error{Err: ErrAfter}
		}
		return json.Unmarshal(b, &first) // says what is wrong
	}
	s := scanner{b: b, utf8: utf8.Valid(b)}
	if err := s.value(0, nil); err != nil {
		// The steps were collected from the inside out.
		slices.Reverse(s.path)
		return &Error{strings.TrimPrefix(strings.Join(s.path, ""), "."), err}
	}
	return nil
}

// A Member is a key of an object with its value.
type Member struct {
	Key   string
	Value json.RawMessage
}

// Decode is Unmarshal for the value of a member that Members has checked.
func (m *Member) Decode(v any) error {
	return decoder{}.value(m.Value, reflect.ValueOf(v).Elem(), "")
}

// Members returns the members of an object in their order, after Check.
func Members(b []byte) ([]Member, error) {
	if err := Check(b); err != nil {
		return nil, err
	}
	return members(b)
}

// members returns the members of an object that has been checked. Their values are parts of b.
func members(b []byte) (list []Member, err error) {
	b = bytes.TrimSpace(b)
	if b[0] != '{' {
		return nil, &Error{Err: fmt.Errorf("%s, want an object", kind(b))}
	}
	s := scanner{b: b, utf8: true}
	_ = s.value(0, func(key string, value []byte) { // it was checked
		list = append(list, Member{key, value})
	})
	return list, nil
}

// kind names the kind of a checked value.
func kind(b []byte) string {
	switch b[0] {
	case '{':
		return "an object"
	case '[':
		return "a list"
	case '"':
		return "a text"
	case 't', 'f':
		return "a boolean"
	case 'n':
		return "null"
	}
	return "a number"
}

// Unmarshal decodes b into v, a pointer, after Check. It is json.Unmarshal, except that the keys
// of objects match the names of struct fields exactly; keys that match none are ignored.
func Unmarshal(b []byte, v any) error { return unmarshal(b, v, false) }

// UnmarshalKnown is Unmarshal, except that a key that matches no field of a struct is an error.
func UnmarshalKnown(b []byte, v any) error { return unmarshal(b, v, true) }

func unmarshal(b []byte, v any, known bool) error {
	if err := Check(b); err != nil {
		return err
	}
	return decoder{known}.value(bytes.TrimSpace(b), reflect.ValueOf(v).Elem(), "")
}

// A scanner walks through valid JSON.
type scanner struct {
	b    []byte
	i    int
	utf8 bool     // all of b is UTF-8
	path []string // steps to an error, such as .content and [0], innermost first
	keys []string // of the objects that are open, outermost first
}

func (s *scanner) space() {
	for s.i < len(s.b) && (s.b[s.i] == ' ' || s.b[s.i] == '\t' || s.b[s.i] == '\r' || s.b[s.i] == '\n') {
		s.i++
	}
}

// value skips a value at the given depth. each, if not nil, is called with the members of the
// value itself, which is an object then.
func (s *scanner) value(depth int, each func(key string, value []byte)) error {
	s.space()
	switch c := s.b[s.i]; c {
	case '"':
		_, _, err := s.skipText()
		return err
	case '{', '[':
		if depth == limits.JSONDepth {
			return ErrDepth
		}
		s.i++
		if c == '{' {
			return s.object(depth, each)
		}
		return s.list(depth)
	}
	for ; s.i < len(s.b); s.i++ { // a number or a name
		switch s.b[s.i] {
		case ',', ']', '}', ' ', '\t', '\r', '\n':
			return nil
		}
	}
	return nil
}

// object skips the rest of an object.
func (s *scanner) object(depth int, each func(key string, value []byte)) error {
	own := len(s.keys)
	defer func() { s.keys = s.keys[:own] }()
	var many map[string]bool // the keys, once they are too many to compare each with each
	for {
		s.space()
		if s.b[s.i] == '}' {
			s.i++
			return nil
		}
		if s.b[s.i] == ',' {
			s.i++
			s.space()
		}
		key, err := s.text()
		if err != nil {
			return err
		}
		twice := false
		if many == nil {
			twice = slices.Contains(s.keys[own:], key)
			if s.keys = append(s.keys, key); len(s.keys)-own > 16 {
				many = make(map[string]bool, 64)
				for _, k := range s.keys[own:] {
					many[k] = true
				}
			}
		} else {
			twice = many[key]
			many[key] = true
			if len(many) > limits.JSONKeys {
				return ErrKeys
			}
		}
		if twice {
			s.path = append(s.path, "."+key)
			return ErrTwice
		}
		s.space()
		s.i++ // the colon
		s.space()
		from := s.i
		if err := s.value(depth+1, nil); err != nil {
			s.path = append(s.path, "."+key)
			return err
		}
		if each != nil {
			each(key, s.b[from:s.i:s.i])
		}
	}
}

// list skips the rest of a list.
func (s *scanner) list(depth int) error {
	for n := 0; ; n++ {
		s.space()
		switch s.b[s.i] {
		case ']':
			s.i++
			return nil
		case ',':
			s.i++
		}
		if err := s.value(depth+1, nil); err != nil {
			s.path = append(s.path, fmt.Sprintf("[%d]", n))
			return err
		}
	}
}

// text reads a string.
func (s *scanner) text() (string, error) {
	raw, escaped, err := s.skipText()
	if err != nil {
		return "", err
	}
	if !escaped {
		return string(raw[1 : len(raw)-1]), nil
	}
	var text string
	_ = json.Unmarshal(raw, &text) // it is valid
	return text, nil
}

// skipText skips a string and returns it as it is written.
func (s *scanner) skipText() (raw []byte, escaped bool, err error) {
	from := s.i
	s.i++
	for s.b[s.i] != '"' {
		if s.b[s.i] != '\\' {
			s.i++
			continue
		}
		escaped = true
		if err := s.escape(); err != nil {
			return nil, false, err
		}
	}
	s.i++
	raw = s.b[from:s.i]
	if !s.utf8 && !utf8.Valid(raw) {
		return nil, false, ErrUTF8
	}
	return raw, escaped, nil
}

// escape skips one escape, or two that are a surrogate pair.
func (s *scanner) escape() error {
	u, ok := unit(s.b[s.i:])
	if !ok {
		s.i += 2
		return nil
	}
	s.i += 6
	switch {
	case u >= 0xDC00 && u < 0xE000:
		return ErrSurrogate
	case u >= 0xD800 && u < 0xDC00:
		if low, ok := unit(s.b[s.i:]); !ok || low < 0xDC00 || low >= 0xE000 {
			return ErrSurrogate
		}
		s.i += 6
	}
	return nil
}

// unit reads an escaped unit of UTF-16.
func unit(b []byte) (uint64, bool) {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return 0, false
	}
	u, err := strconv.ParseUint(string(b[2:6]), 16, 16)
	return u, err == nil
}
