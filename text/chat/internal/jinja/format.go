package jinja

import (
	"math"
	"unicode/utf8"
)

// A spec says how % or format writes a value: what Python writes as [[fill]align][sign][0][width][,][.precision][type].
// Other parts of Python's formats are refused.
type spec struct {
	fill        string
	align       byte // < > ^ =, 0: decided by the type
	sign        byte // + or space
	group       bool // commas between thousands
	width, prec int  // prec < 0: not given
	verb        byte // 0: not given
}

// unsupportedFormat refuses a part of a format.
func unsupportedFormat(what string) {
	throw("ValueError", "%s in a format is not supported", what)
}

// A specReader reads what a spec is made of.
type specReader struct {
	r    *run
	text string
}

// take reads one of the characters in set, 0 if another follows.
func (p *specReader) take(set string) byte {
	if p.text == "" || !isOneOf(p.text[0], set) {
		return 0
	}
	c := p.text[0]
	p.text = p.text[1:]
	return c
}

// number reads digits, -1 if there are none.
func (p *specReader) number() int {
	n := -1
	for p.text != "" && isDigit(p.text[0]) {
		p.r.work(1)
		if n = max(n, 0)*10 + int(p.text[0]-'0'); n > 1<<20 {
			throw("LimitError", "a width of %d in a format", n)
		}
		p.text = p.text[1:]
	}
	return n
}

// precision reads a point and digits, -1 if there is no point.
func (p *specReader) precision() int {
	if p.take(".") == 0 {
		return -1
	}
	n := p.number()
	if n < 0 {
		throw("ValueError", "Format specifier missing precision")
	}
	return n
}

// parseSpec reads Python's format specification.
func (r *run) parseSpec(text string) *spec {
	s := &spec{fill: " "}
	const aligns = "<>^="
	if _, n := utf8.DecodeRuneInString(text); n < len(text) && isOneOf(text[n], aligns) {
		s.fill, s.align, text = text[:n], text[n], text[n+1:]
	}
	p := specReader{r, text}
	if c := p.take(aligns); c != 0 {
		s.align = c
	}
	s.sign = p.take("+- ")
	if p.take("0") != 0 && s.align == 0 {
		s.fill, s.align = "0", '='
	}
	s.width = p.number()
	s.group = p.take(",") != 0
	s.prec = p.precision()
	if p.text != "" {
		s.verb = p.text[0]
	}
	if len(p.text) > 1 {
		throw("ValueError", "Invalid format specifier")
	}
	return s
}

// formatValue is Python's format().
func (r *run) formatValue(v Value, specText string) string {
	if specText == "" {
		return r.toStr(v)
	}
	kind := byte(0)
	switch v.(type) {
	case string, Markup:
		kind = 's'
	case bool, int64, Big:
		kind = 'd'
	case float64:
		kind = 'r'
	default:
		throw("TypeError", "unsupported format string passed to %s.__format__", typeName(v))
	}
	s := r.parseSpec(specText)
	switch {
	case s.verb == 0:
		s.verb = kind
	case kind == 's' && s.verb != 's', kind != 's' && !isOneOf(s.verb, "dxfe%"), kind == 'r' && isOneOf(s.verb, "dx"):
		throw("ValueError", "Unknown format code '%c' for object of type %s", s.verb, quote(typeName(v)))
	}
	if kind == 's' && (s.align == '=' || s.sign != 0 || s.group) {
		unsupportedFormat("a sign or comma of a text")
	}
	return r.formatted(v, s)
}

// formatted writes a value: a text (s), an int (d, x), or a number (f, e, %, and r as repr does).
func (r *run) formatted(v Value, s *spec) string {
	sign, body, tail := "", "", ""
	prec := s.prec
	if prec < 0 {
		prec = 6
	}
	switch s.verb {
	case 's':
		if body = str(v); s.prec >= 0 {
			body = r.runeSlice(body, 0, s.prec)
		}
	case 'd', 'x', 'r':
		if s.prec >= 0 {
			throw("ValueError", "Precision not allowed in integer format specifier") // nor, here, without a type
		}
		switch s.verb {
		case 'd':
			body = r.intString(v)
		case 'x':
			body = r.hexString(wantSmall(v))
		default:
			body = r.toStr(v)
		}
	case '%':
		f, _ := toFloat(v)
		body, tail = r.floatText(f*100, 'f', prec), "%"
	default:
		f, _ := toFloat(v)
		body = r.floatText(f, s.verb, prec)
	}
	if s.verb != 's' {
		if body[0] == '-' {
			sign, body = "-", body[1:]
		} else if s.sign == '+' || s.sign == ' ' {
			sign = charOf(s.sign)
		}
		if s.group {
			body = r.grouped(body, s)
		}
	}
	body = r.joinTexts(body, tail)
	n := s.width - r.runes(sign) - r.runes(body)
	if n <= 0 {
		return r.joinTexts(sign, body)
	}
	align := s.align
	if align == 0 {
		if align = '>'; s.verb == 's' {
			align = '<'
		}
	}
	switch align {
	case '=':
		return r.joinTexts(sign, r.around(body, s.fill, n, 0))
	case '<':
		return r.around(r.joinTexts(sign, body), s.fill, 0, n)
	case '^':
		return r.around(r.joinTexts(sign, body), s.fill, n/2, n-n/2)
	}
	return r.around(r.joinTexts(sign, body), s.fill, n, 0)
}

// grouped writes commas between the thousands of a number.
func (r *run) grouped(number string, s *spec) string {
	if s.verb == 'x' || s.fill == "0" && s.align == '=' {
		unsupportedFormat("a comma beside x or zeros")
	}
	whole := len(number)
	if i := r.find(number, func(c rune) bool { return c < '0' || c > '9' }); i >= 0 {
		whole = i
	}
	b := buf{r: r}
	for i := range whole {
		r.work(2)
		if i > 0 && (whole-i)%3 == 0 {
			b.byte(',')
		}
		b.byte(number[i])
	}
	b.str(number[whole:])
	return b.text()
}

// format is str.format: fields are numbered or named, and have no attributes, items and conversions.
func (r *run) format(format string, a *args) string {
	b := buf{r: r}
	next := 0 // of the fields without a number; -1: fields have numbers
	for i := 0; i < len(format); {
		r.work(2)
		c := format[i]
		switch {
		case c != '{' && c != '}':
			b.byte(c)
			i++
			continue
		case i+1 < len(format) && format[i+1] == c:
			b.byte(c)
			i += 2
			continue
		case c == '}':
			throw("ValueError", "Single '}' encountered in format string")
		}
		end := r.byteIndex(format[i:], '}')
		switch {
		case i+1 == len(format):
			throw("ValueError", "Single '{' encountered in format string")
		case end < 0:
			throw("ValueError", "expected '}' before end of string")
		}
		field, specText := format[i+1:i+end], ""
		if k := r.byteIndex(field, ':'); k >= 0 {
			field, specText = field[:k], field[k+1:]
		}
		if r.find(field, func(c rune) bool { return isOneOf(byte(min(c, utf8.RuneSelf)), "!.[{") }) >= 0 || r.byteIndex(specText, '{') >= 0 {
			unsupportedFormat("an attribute, item, conversion or field of a field")
		}
		b.str(r.formatValue(r.formatField(field, a, &next), specText))
		i += end + 1
	}
	return b.text()
}

// formatField resolves a field. next is the number of the next one without a number, -1 if fields have numbers.
func (r *run) formatField(field string, a *args, next *int) Value {
	at, numbered := r.parseInt(field)
	switch {
	case field == "" && *next < 0, numbered && *next > 0:
		throw("ValueError", "cannot switch from manual field specification to automatic field numbering")
	case field == "":
		at, numbered = int64(*next), true
		*next++
	case numbered:
		*next = -1
	}
	if !numbered {
		for i, name := range a.names {
			r.work(4)
			if r.same(name, field) {
				return a.kw[i]
			}
		}
		throw("KeyError", "%s", quote(field))
	}
	k, ok := small(at)
	if !ok || k < 0 || k >= int64(len(a.pos)) {
		throw("IndexError", "tuple index out of range")
	}
	return a.pos[k]
}

// printf is Python's % on a str.
func (r *run) printf(format string, with Value) string {
	b := buf{r: r}
	list := []Value{with}
	if t, ok := with.(*Tuple); ok {
		list = t.Items
	}
	mapping, isMap := with.(*Dict)
	// Anything with items counts as a mapping, and its items need not all be used.
	indexed := isMap
	switch with.(type) {
	case *List, *Range, *Undefined:
		indexed = true
	}
	used, named, whole := 0, false, format
	for {
		r.step()
		n := r.byteIndex(format, '%')
		if n < 0 {
			b.str(format)
			break
		}
		b.str(format[:n])
		p := specReader{r, format[n+1:]}
		var key Value
		if p.take("(") != 0 {
			end := r.byteIndex(p.text, ')')
			if end < 0 {
				throw("ValueError", "incomplete format key")
			}
			if !isMap {
				throw("TypeError", "format requires a mapping")
			}
			key, named = p.text[:end], true
			p.text = p.text[end+1:]
		}
		s := spec{fill: " ", align: '>'}
		for c := p.take("0- +"); c != 0; c = p.take("0- +") {
			r.work(1)
			switch {
			case c == '-':
				s.fill, s.align = " ", '<'
			case c == '0' && s.align != '<':
				s.fill, s.align = "0", '='
			case c == '+' || c == ' ' && s.sign == 0:
				s.sign = c
			}
		}
		s.width, s.prec = p.number(), p.precision()
		if p.text == "" {
			throw("ValueError", "incomplete format")
		}
		s.verb = p.take("%srdixfe")
		if s.verb == '%' {
			b.byte('%')
			format = p.text
			continue
		}
		if s.verb == 0 {
			c, _ := utf8.DecodeRuneInString(p.text)
			throw("ValueError", "unsupported format character '%c' (0x%x) at index %d", c, c, r.runes(whole)-r.runes(p.text))
		}
		format = p.text
		var v Value
		if key != nil {
			var ok bool
			if v, ok = r.get(mapping, key); !ok {
				throw("KeyError", "%s", r.repr(key, 0))
			}
		} else {
			if used == len(list) {
				throw("TypeError", "not enough arguments for format string")
			}
			v = list[used]
			used++
		}
		b.str(r.printOne(v, &s))
	}
	if used < len(list) && !named && !indexed {
		throw("TypeError", "not all arguments converted during string formatting")
	}
	return b.text()
}

// printOne writes a value as a verb of % does.
func (r *run) printOne(v Value, s *spec) string {
	number := isNumber(v)
	f, isFloat := v.(float64)
	switch s.verb {
	case 's', 'r':
		if s.align == '=' {
			s.fill, s.align = " ", '>'
		}
		text := ""
		if s.verb == 's' {
			text = r.toStr(v)
		} else {
			text = r.repr(v, 0)
		}
		s.verb, v = 's', text
	case 'd', 'i':
		if !number {
			throw("TypeError", "%%%c format: a real number is required, not %s", s.verb, typeName(v))
		}
		if isFloat {
			if math.IsNaN(f) || math.IsInf(f, 0) {
				throw("ValueError", "cannot convert float %s to integer", floatRepr(f))
			}
			v = floatToInt(f)
		}
		s.verb = 'd'
	case 'x':
		if !number || isFloat {
			throw("TypeError", "%%x format: an integer is required, not %s", typeName(v))
		}
	default:
		if !number {
			throw("TypeError", "must be real number, not %s", typeName(v))
		}
	}
	return r.formatted(v, s)
}
