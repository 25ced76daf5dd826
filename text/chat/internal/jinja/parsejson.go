package jinja

import (
	"fmt"
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
		v, _ := parseDigits(word)
		return v, nil
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
