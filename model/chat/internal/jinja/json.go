package jinja

import (
	"fmt"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// maxDigits is the number of digits up to which Python converts an int from and to
// text.
const maxDigits = 4300

// ParseJSON decodes a JSON text as Python's json.loads does: objects keep the order of
// their keys (if a key occurs twice, the last value counts), and a number without
// fraction and exponent is an int of any size. A text that is not UTF-8, or escapes
// half of a surrogate pair, is an error.
func ParseJSON(b []byte) (v Value, err error) {
	p := &jsonParser{s: string(b)}
	if !utf8.ValidString(p.s) {
		return nil, fmt.Errorf("not UTF-8")
	}
	v, err = p.value(0)
	if err != nil {
		return nil, err
	}
	p.space()
	if p.i < len(p.s) {
		return nil, p.errorf("more text after the value")
	}
	return v, nil
}

// JSONType names the JSON type of a value that ParseJSON returned.
func JSONType(v Value) string {
	switch v.(type) {
	case nil:
		return "null"
	case bool:
		return "a boolean"
	case string:
		return "a string"
	case *List:
		return "a list"
	case *Dict:
		return "an object"
	}
	return "a number"
}

type jsonParser struct {
	s string
	i int
}

func (p *jsonParser) errorf(format string, a ...any) error {
	return fmt.Errorf("JSON at byte %d: %s", p.i, fmt.Sprintf(format, a...))
}

func (p *jsonParser) space() {
	for p.i < len(p.s) {
		switch p.s[p.i] {
		case ' ', '\t', '\n', '\r':
			p.i++
		default:
			return
		}
	}
}

// peek returns the next byte after white space, or 0.
func (p *jsonParser) peek() byte {
	p.space()
	if p.i < len(p.s) {
		return p.s[p.i]
	}
	return 0
}

func (p *jsonParser) value(depth int) (Value, error) {
	if depth > maxValueDepth {
		return nil, p.errorf("nested deeper than %d", maxValueDepth)
	}
	switch c := p.peek(); {
	case c == '{':
		p.i++
		d := NewDict()
		for first := true; ; first = false {
			switch c := p.peek(); {
			case c == '}' && first:
				p.i++
				return d, nil
			case c != '"':
				return nil, p.errorf("want a key")
			}
			key, err := p.str()
			if err != nil {
				return nil, err
			}
			if p.peek() != ':' {
				return nil, p.errorf("want : after a key")
			}
			p.i++
			v, err := p.value(depth + 1)
			if err != nil {
				return nil, err
			}
			d.Set(key, v)
			switch p.peek() {
			case ',':
				p.i++
			case '}':
				p.i++
				return d, nil
			default:
				return nil, p.errorf("want , or } in an object")
			}
		}
	case c == '[':
		p.i++
		l := &List{}
		if p.peek() == ']' {
			p.i++
			return l, nil
		}
		for {
			v, err := p.value(depth + 1)
			if err != nil {
				return nil, err
			}
			l.Items = append(l.Items, v)
			switch p.peek() {
			case ',':
				p.i++
			case ']':
				p.i++
				return l, nil
			default:
				return nil, p.errorf("want , or ] in a list")
			}
		}
	case c == '"':
		return p.str()
	case c == '-' || c >= '0' && c <= '9':
		return p.number()
	}
	for word, v := range map[string]Value{"null": nil, "true": true, "false": false} {
		if strings.HasPrefix(p.s[p.i:], word) {
			p.i += len(word)
			return v, nil
		}
	}
	return nil, p.errorf("want a value")
}

// digits skips digits and reports how many there were.
func (p *jsonParser) digits() int {
	from := p.i
	for p.i < len(p.s) && p.s[p.i] >= '0' && p.s[p.i] <= '9' {
		p.i++
	}
	return p.i - from
}

func (p *jsonParser) number() (Value, error) {
	from := p.i
	if p.s[p.i] == '-' {
		p.i++
	}
	first := p.i
	n := p.digits()
	if n == 0 || n > 1 && p.s[first] == '0' {
		return nil, p.errorf("not a number")
	}
	if n > maxDigits {
		return nil, p.errorf("an integer of more than %d digits", maxDigits)
	}
	integer := true
	if p.i < len(p.s) && p.s[p.i] == '.' {
		p.i++
		integer = false
		if p.digits() == 0 {
			return nil, p.errorf("want digits after the point")
		}
	}
	if p.i < len(p.s) && (p.s[p.i] == 'e' || p.s[p.i] == 'E') {
		p.i++
		integer = false
		if p.i < len(p.s) && (p.s[p.i] == '+' || p.s[p.i] == '-') {
			p.i++
		}
		if p.digits() == 0 {
			return nil, p.errorf("want digits in the exponent")
		}
	}
	word := p.s[from:p.i]
	if integer {
		if v, err := strconv.ParseInt(word, 10, 64); err == nil {
			return v, nil
		}
		b, _ := new(big.Int).SetString(word, 10)
		return b, nil
	}
	// Out-of-range numbers become infinite, as in Python.
	f, _ := strconv.ParseFloat(word, 64)
	return f, nil
}

// str reads a string that starts at the next byte, a quote.
func (p *jsonParser) str() (string, error) {
	p.i++
	from := p.i
	for p.i < len(p.s) && p.s[p.i] != '"' && p.s[p.i] != '\\' && p.s[p.i] >= ' ' {
		p.i++
	}
	if p.i < len(p.s) && p.s[p.i] == '"' { // no escapes
		p.i++
		return p.s[from : p.i-1], nil
	}
	b := []byte(p.s[from:p.i])
	for p.i < len(p.s) {
		c := p.s[p.i]
		switch {
		case c == '"':
			p.i++
			return string(b), nil
		case c < ' ':
			return "", p.errorf("a control character in a string")
		case c != '\\':
			b = append(b, c)
			p.i++
			continue
		}
		if p.i+1 >= len(p.s) {
			break
		}
		e := p.s[p.i+1]
		if i := strings.IndexByte(`"\/bfnrt`, e); i >= 0 {
			b = append(b, "\"\\/\b\f\n\r\t"[i])
			p.i += 2
			continue
		}
		r, ok := p.hex4(p.i)
		if !ok {
			return "", p.errorf("an unknown escape")
		}
		at := p.i
		p.i += 6
		if utf16.IsSurrogate(r) {
			low, ok := p.hex4(p.i)
			if r = utf16.DecodeRune(r, low); !ok || r == utf8.RuneError {
				p.i = at
				return "", p.errorf("half of a surrogate pair")
			}
			p.i += 6
		}
		b = utf8.AppendRune(b, r)
	}
	return "", p.errorf("a string that does not end")
}

// hex4 reads \uXXXX at byte i.
func (p *jsonParser) hex4(i int) (rune, bool) {
	if i+6 > len(p.s) || p.s[i] != '\\' || p.s[i+1] != 'u' {
		return 0, false
	}
	n, err := strconv.ParseUint(p.s[i+2:i+6], 16, 16)
	return rune(n), err == nil
}

// A jsonStyle is the style in which toJSON writes.
type jsonStyle struct {
	ascii      bool
	indent     string
	multiline  bool
	comma, sep string
	sortKeys   bool
}

// toJSON appends what Python's json.dumps returns.
func (r *run) toJSON(b []byte, v Value, s *jsonStyle, depth int) []byte {
	checkDepth(depth)
	r.step()
	r.checkSize(len(b))
	switch x := v.(type) {
	case nil:
		return append(b, "null"...)
	case bool:
		return strconv.AppendBool(b, x)
	case int64:
		return strconv.AppendInt(b, x, 10)
	case *big.Int:
		return append(b, intString(x)...)
	case float64:
		return append(b, jsonFloat(x)...)
	case string:
		return appendJSONString(b, x, s.ascii)
	case Markup:
		return appendJSONString(b, string(x), s.ascii)
	case *List:
		return r.jsonList(b, x.Items, s, depth)
	case *Tuple:
		return r.jsonList(b, x.Items, s, depth)
	case *Dict:
		if x.Len() == 0 {
			return append(b, "{}"...)
		}
		entries := x.entries
		if s.sortKeys {
			entries = slices.Clone(entries)
			r.sortStable(len(entries), func(i, j int) bool { return r.less(entries[i].key, entries[j].key) }, func(order []int) {
				from := slices.Clone(entries)
				for i, o := range order {
					entries[i] = from[o]
				}
			})
		}
		b = append(b, '{')
		for i, e := range entries {
			b = s.next(b, i, depth+1)
			b = appendJSONString(b, jsonKey(e.key), s.ascii)
			b = append(b, s.sep...)
			b = r.toJSON(b, e.val, s, depth+1)
		}
		return append(s.line(b, depth), '}')
	}
	throw("TypeError", "Object of type %s is not JSON serializable", typeName(v))
	return nil
}

func (r *run) jsonList(b []byte, items []Value, s *jsonStyle, depth int) []byte {
	if len(items) == 0 {
		return append(b, "[]"...)
	}
	b = append(b, '[')
	for i, v := range items {
		b = s.next(b, i, depth+1)
		b = r.toJSON(b, v, s, depth+1)
	}
	return append(s.line(b, depth), ']')
}

// next starts element i.
func (s *jsonStyle) next(b []byte, i, depth int) []byte {
	if i > 0 {
		b = append(b, s.comma...)
	}
	return s.line(b, depth)
}

// line starts a new line if the style has lines.
func (s *jsonStyle) line(b []byte, depth int) []byte {
	if s.multiline {
		b = append(b, '\n')
		if len(s.indent) > maxOutput/max(1, depth) {
			throw("LimitError", "the template makes a text of more than %d MiB", maxOutput>>20)
		}
		for range depth {
			b = append(b, s.indent...)
		}
	}
	return b
}

func jsonFloat(f float64) string {
	switch {
	case math.IsNaN(f):
		return "NaN"
	case math.IsInf(f, 1):
		return "Infinity"
	case math.IsInf(f, -1):
		return "-Infinity"
	}
	return floatRepr(f)
}

// jsonKey returns a dict's key as json.dumps writes it.
func jsonKey(v Value) string {
	switch x := v.(type) {
	case string:
		return x
	case Markup:
		return string(x)
	case nil:
		return "null"
	case bool:
		return strconv.FormatBool(x)
	case int64, *big.Int:
		return intString(x)
	case float64:
		return jsonFloat(x)
	}
	throw("TypeError", "keys must be str, int, float, bool or None, not %s", typeName(v))
	return ""
}

func appendJSONString(b []byte, s string, ascii bool) []byte {
	b = append(b, '"')
	from := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= ' ' && c != '"' && c != '\\' && (c < utf8.RuneSelf || !ascii) {
			i++
			continue
		}
		b = append(b, s[from:i]...)
		size := 1
		switch c {
		case '"', '\\':
			b = append(b, '\\', c)
		case '\n':
			b = append(b, `\n`...)
		case '\r':
			b = append(b, `\r`...)
		case '\t':
			b = append(b, `\t`...)
		case '\f':
			b = append(b, `\f`...)
		case '\b':
			b = append(b, `\b`...)
		default:
			var r rune
			r, size = utf8.DecodeRuneInString(s[i:])
			if hi, lo := utf16.EncodeRune(r); hi != utf8.RuneError {
				b = fmt.Appendf(b, `\u%04x\u%04x`, hi, lo)
			} else {
				b = fmt.Appendf(b, `\u%04x`, r)
			}
		}
		i += size
		from = i
	}
	b = append(b, s[from:]...)
	return append(b, '"')
}
