package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"talf/internal/ijson"
	"talf/serve/wire/refuse"
)

// An object reads the fields of a JSON object. After the first error, which it keeps, it reads
// nothing: every field looks absent.
type object struct {
	at     string // path of the object, "" or with a dot at its end
	fields map[string]json.RawMessage
	read   map[string]bool // fields that were asked for
	err    *refuse.Error
}

// open reads an object; "" names the body of a request.
func open(at string, b []byte) *object {
	o := &object{read: map[string]bool{}}
	if at != "" {
		o.at = at + "."
	} else {
		b = bytes.TrimPrefix(b, []byte("\uFEFF")) // a byte order mark, as some editors write it
	}
	unmarshal := json.Unmarshal
	if at == "" { // which checks all that is inside
		unmarshal = ijson.Unmarshal
	}
	var wrong *ijson.Error
	if err := unmarshal(b, &o.fields); errors.As(err, &wrong) && wrong.Field != "" {
		o.err = refuse.Invalid(wrong.Field, "%v", wrong.Err)
	} else if err != nil {
		o.err = refuse.Invalid(at, "want a JSON object: %v", err)
	} else if o.fields == nil {
		o.err = refuse.Invalid(at, "want a JSON object, not null")
	}
	return o
}

func (o *object) fail(name, format string, args ...any) {
	if o.err == nil {
		o.err = refuse.Invalid(o.at+name, format, args...)
	}
}

func (o *object) unsupported(name, format string, args ...any) {
	if o.err == nil {
		o.err = refuse.Unsupported(o.at+name, format, args...)
	}
}

// take keeps the first error of another object.
func (o *object) take(other *object) {
	if o.err == nil {
		o.err = other.err
	}
}

// has returns the field's value unless it is absent or null.
func (o *object) has(name string) (json.RawMessage, bool) {
	v, ok := o.fields[name]
	o.read[name] = true
	return v, ok && o.err == nil && string(v) != "null"
}

// unread names the fields that nobody has asked for, in alphabetical order.
func (o *object) unread() (names []string) {
	for name, v := range o.fields {
		if !o.read[name] && string(v) != "null" {
			names = append(names, o.at+name)
		}
	}
	slices.Sort(names)
	return names
}

// kind says what a value is, for errors.
func kind(v json.RawMessage) string {
	switch v[0] {
	case '{':
		return "an object"
	case '[':
		return "a list"
	case '"':
		return "a string"
	case 't', 'f':
		return "a boolean"
	case 'n':
		return "null"
	}
	return "the number " + string(v)
}

func (o *object) float(name string, to *float64, lo, hi float64) {
	v, ok := o.has(name)
	if !ok {
		return
	}
	x, err := strconv.ParseFloat(string(v), 64)
	switch {
	case v[0] == '"' || err != nil && !math.IsInf(x, 0):
		o.fail(name, "is %s, want a number", kind(v))
	case !(x >= lo && x <= hi):
		o.fail(name, "is %s, want %v to %v", v, lo, hi)
	default:
		*to = x
	}
}

// integer accepts numbers such as 16.0, which some clients write.
func (o *object) integer(name string, lo, hi int64) (int64, bool) {
	v, ok := o.has(name)
	if !ok {
		return 0, false
	}
	x, err := number(v)
	switch {
	case err != nil:
		o.fail(name, "is %s, want an integer", kind(v))
	case x < lo || x > hi:
		o.fail(name, "is %s, want %d to %d", v, lo, hi)
	default:
		return x, true
	}
	return 0, false
}

func number(v json.RawMessage) (int64, error) {
	x, err := strconv.ParseInt(string(v), 10, 64)
	if err == nil {
		return x, nil
	}
	f, err := strconv.ParseFloat(string(v), 64)
	if err != nil || f != math.Trunc(f) || math.Abs(f) > 1<<53 {
		return 0, fmt.Errorf("%s is no integer", v)
	}
	return int64(f), nil
}

func (o *object) boolean(name string) (b bool) {
	if v, ok := o.has(name); ok {
		if err := json.Unmarshal(v, &b); err != nil {
			o.fail(name, "is %s, want true or false", kind(v))
		}
	}
	return b
}

// optionalBoolean is nil if the field is absent.
func (o *object) optionalBoolean(name string) *bool {
	if _, ok := o.has(name); !ok {
		return nil
	}
	b := o.boolean(name)
	return &b
}

func (o *object) text(name string) (s string) {
	if v, ok := o.has(name); ok {
		if err := json.Unmarshal(v, &s); err != nil {
			o.fail(name, "is %s, want a string", kind(v))
		}
	}
	return s
}

// need is text of a field that has to be there.
func (o *object) need(name string) string {
	if _, ok := o.has(name); !ok {
		o.fail(name, "is missing, want a string")
	}
	return o.text(name)
}

// list returns the elements of a list of at most most.
func (o *object) list(name string, most int) []json.RawMessage {
	v, ok := o.has(name)
	if !ok {
		return nil
	}
	var all []json.RawMessage
	switch err := json.Unmarshal(v, &all); {
	case err != nil:
		o.fail(name, "is %s, want a list", kind(v))
	case len(all) > most:
		o.fail(name, "has %d elements, want at most %d", len(all), most)
	default:
		return all
	}
	return nil
}

// texts reads a string or a list of strings.
func (o *object) texts(name string, most int) []string {
	v, ok := o.has(name)
	if !ok {
		return nil
	}
	if v[0] == '"' {
		return []string{o.text(name)}
	}
	var all []string
	for i, e := range o.list(name, most) {
		var s *string
		if err := json.Unmarshal(e, &s); err != nil || s == nil {
			o.fail(fmt.Sprintf("%s[%d]", name, i), "is %s, want a string", kind(e))
			return nil
		}
		all = append(all, *s)
	}
	return all
}

// ids reads a list of token ids.
func ids(v []json.RawMessage) ([]int32, error) {
	var out []int32
	for i, e := range v {
		x, err := number(e)
		if err != nil || x < 0 || x > math.MaxInt32 {
			return nil, fmt.Errorf("element %d is %s, want a token id", i, kind(e))
		}
		out = append(out, int32(x))
	}
	return out, nil
}

func (o *object) object(name string) *object {
	v, ok := o.has(name)
	if !ok {
		return nil
	}
	in := open(o.at+name, v)
	if in.err != nil {
		in.err = refuse.Invalid(o.at+name, "is %s, want an object", kind(v))
	}
	return in
}

// refuse refuses a field unless it is absent, null, false, empty or one of the values given,
// which all ask for nothing.
func (o *object) refuse(name, why string, harmless ...string) {
	v, ok := o.has(name)
	if !ok || slices.Contains(append(harmless, "false", "[]", "{}", `""`), compact(v)) {
		return
	}
	o.unsupported(name, "%s", why)
}

func compact(v json.RawMessage) string {
	var b bytes.Buffer
	if err := json.Compact(&b, v); err != nil {
		return string(v)
	}
	return b.String()
}

// marshal is json.Marshal without the escapes for HTML, which a model's text does not need.
func marshal(v any) ([]byte, error) {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return []byte(strings.TrimSuffix(b.String(), "\n")), nil
}
