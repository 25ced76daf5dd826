package jinja

import (
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

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

// json adds what Python's json.dumps returns.
func (b *buf) json(v Value, s *jsonStyle, depth int) {
	checkDepth(depth)
	r := b.r
	r.step()
	switch x := v.(type) {
	case nil:
		b.str("null")
	case bool:
		b.bool(x)
	case int64:
		b.int(x)
	case *big.Int:
		b.str(r.intString(x))
	case float64:
		b.str(jsonFloat(x))
	case string:
		b.jsonString(x, s.ascii)
	case Markup:
		b.jsonString(string(x), s.ascii)
	case *List:
		b.jsonList(x.Items, s, depth)
	case *Tuple:
		b.jsonList(x.Items, s, depth)
	case *Dict:
		if x.Len() == 0 {
			b.str("{}")
			return
		}
		var order []int
		if s.sortKeys {
			order = r.sortStable(x.Len(), func(i, j int) bool { return r.less(x.entries[i].key, x.entries[j].key) })
		}
		b.byte('{')
		for i, e := range x.entries {
			if order != nil {
				e = x.entries[order[i]]
			}
			b.item(s, i, depth+1)
			b.jsonString(r.jsonKey(e.key), s.ascii)
			b.str(s.sep)
			b.json(e.val, s, depth+1)
		}
		b.line(s, depth)
		b.byte('}')
	default:
		throw("TypeError", "Object of type %s is not JSON serializable", typeName(v))
	}
}

func (b *buf) jsonList(items []Value, s *jsonStyle, depth int) {
	if len(items) == 0 {
		b.str("[]")
		return
	}
	b.byte('[')
	for i, v := range items {
		b.item(s, i, depth+1)
		b.json(v, s, depth+1)
	}
	b.line(s, depth)
	b.byte(']')
}

// item starts element i.
func (b *buf) item(s *jsonStyle, i, depth int) {
	if i > 0 {
		b.str(s.comma)
	}
	b.line(s, depth)
}

// line starts a new line if the style has lines.
func (b *buf) line(s *jsonStyle, depth int) {
	if s.multiline {
		b.byte('\n')
		b.repeat(s.indent, depth)
	}
}

func (b *buf) bool(v bool) {
	if v {
		b.str("true")
	} else {
		b.str("false")
	}
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
func (r *run) jsonKey(v Value) string {
	switch x := v.(type) {
	case string:
		return x
	case Markup:
		return string(x)
	case nil:
		return "null"
	case bool:
		if x {
			return "true"
		}
		return "false"
	case int64, *big.Int:
		return r.intString(x)
	case float64:
		return jsonFloat(x)
	}
	throw("TypeError", "keys must be str, int, float, bool or None, not %s", typeName(v))
	return ""
}

// jsonString adds a text between quotes.
func (b *buf) jsonString(s string, ascii bool) {
	b.byte('"')
	from := 0
	for i, c := range b.r.chars(s) {
		if c >= ' ' && c != '"' && c != '\\' && (c < utf8.RuneSelf || !ascii) {
			continue
		}
		b.str(s[from:i])
		from = i + utf8.RuneLen(c)
		switch c {
		case '"', '\\':
			b.byte('\\')
			b.rune(c)
		case '\n':
			b.str(`\n`)
		case '\r':
			b.str(`\r`)
		case '\t':
			b.str(`\t`)
		case '\f':
			b.str(`\f`)
		case '\b':
			b.str(`\b`)
		default:
			if hi, lo := utf16.EncodeRune(c); hi != utf8.RuneError {
				b.str(`\u`)
				b.hex(hi, 4)
				c = lo
			}
			b.str(`\u`)
			b.hex(c, 4)
		}
	}
	b.str(s[from:])
	b.byte('"')
}
