package jinja

import (
	"math"
	"math/big"
	"unicode/utf8"
)

// A spec says how % or format writes one value.
type spec struct {
	fill        string
	align       byte // < > ^ =, 0: decided by the type
	sign        byte // + - or space
	alt, zero   bool
	width, prec int // prec < 0: not given
	group       byte
	verb        byte // 0: not given
	left        bool
}

// checkWidth bounds the size that a width or precision asks for.
func checkWidth(n int) {
	if n > 1<<20 {
		throw("LimitError", "a width of %d in a format", n)
	}
}

// format is str.format.
func (r *run) format(format string, a *args) string {
	auto := 0
	return r.formatFields(format, a, &auto, 2)
}

func (r *run) formatFields(format string, a *args, auto *int, depth int) string {
	if depth < 0 {
		throw("ValueError", "Max string recursion exceeded")
	}
	b := buf{r: r}
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
		level, j := 1, i+1
		for ; j < len(format) && level > 0; j++ {
			r.work(1)
			switch format[j] {
			case '{':
				level++
			case '}':
				level--
			}
		}
		if level > 0 {
			if i+1 >= len(format) {
				throw("ValueError", "Single '{' encountered in format string")
			}
			throw("ValueError", "expected '}' before end of string")
		}
		field := format[i+1 : j-1]
		i = j
		name, specText, conv := field, "", byte(0)
		if k := r.nameEnd(field); k >= 0 {
			name = field[:k]
			if field[k] == '!' {
				if k+1 >= len(field) {
					throw("ValueError", "end of string while looking for conversion specifier")
				}
				conv = field[k+1]
				rest := field[k+2:]
				if rest != "" {
					if rest[0] != ':' {
						throw("ValueError", "expected ':' after conversion specifier")
					}
					specText = rest[1:]
				}
			} else {
				specText = field[k+1:]
			}
		}
		v := r.formatField(name, a, auto)
		switch conv {
		case 0:
		case 's':
			v = r.toStr(v)
		case 'r':
			v = r.repr(v, 0)
		case 'a':
			v = r.ascii(r.repr(v, 0))
		default:
			throw("ValueError", "Unknown conversion specifier %c", conv)
		}
		if r.byteIndex(specText, '{') >= 0 || r.byteIndex(specText, '}') >= 0 {
			specText = r.formatFields(specText, a, auto, depth-1)
		}
		b.str(r.formatValue(v, specText))
	}
	return b.text()
}

// nameEnd returns the place of the first ! or : in a field, or -1. Inside [] they are
// ordinary characters.
func (r *run) nameEnd(field string) int {
	in := false
	for i := range len(field) {
		r.work(1)
		switch c := field[i]; {
		case c == '[':
			in = true
		case c == ']':
			in = false
		case !in && (c == ':' || c == '!'):
			return i
		}
	}
	return -1
}

// partEnd returns the place of the first . or [ in a name, or its length.
func (r *run) partEnd(name string) int {
	for i := range len(name) {
		r.work(1)
		if name[i] == '.' || name[i] == '[' {
			return i
		}
	}
	return len(name)
}

// formatField resolves a name such as 0.a[b].
func (r *run) formatField(name string, a *args, auto *int) Value {
	end := r.partEnd(name)
	first, rest := name[:end], name[end:]
	var v Value
	n, isInt := r.parseInt(first, 10)
	switch {
	case first == "":
		if *auto < 0 {
			throw("ValueError", "cannot switch from manual field specification to automatic field numbering")
		}
		n, isInt = int64(*auto), true
		*auto++
	case isInt:
		if *auto > 0 {
			throw("ValueError", "cannot switch from manual field specification to automatic field numbering")
		}
		*auto = -1
	}
	if isInt {
		k, ok := n.(int64)
		if !ok || k < 0 || k >= int64(len(a.pos)) {
			throw("IndexError", "tuple index out of range")
		}
		v = a.pos[k]
	} else {
		found := false
		for i, kw := range a.names {
			r.work(4)
			if r.same(kw, first) {
				v, found = a.kw[i], true
			}
		}
		if !found {
			throw("KeyError", "%s", quote(first))
		}
	}
	for rest != "" {
		r.step()
		if rest[0] == '.' {
			end := r.partEnd(rest[1:]) + 1
			if end == 1 {
				throw("ValueError", "Empty attribute in format string")
			}
			v = r.getattr(v, rest[1:end])
			rest = rest[end:]
			continue
		}
		if rest[0] != '[' {
			throw("ValueError", "Only '.' or '[' may follow ']' in format field specifier")
		}
		end := r.byteIndex(rest, ']')
		if end < 0 {
			throw("ValueError", "Missing ']' in format string")
		}
		if end == 1 {
			throw("ValueError", "Empty attribute in format string")
		}
		var key Value = rest[1:end]
		if r.all(rest[1:end], func(c rune) bool { return c >= '0' && c <= '9' }) {
			key, _ = r.parseInt(rest[1:end], 10)
		}
		v = r.getitem(v, key)
		rest = rest[end+1:]
	}
	return v
}

// parseSpec reads Python's format specification.
func (r *run) parseSpec(text string) *spec {
	s := &spec{fill: " ", prec: -1}
	isAlign := func(c byte) bool { return c == '<' || c == '>' || c == '^' || c == '=' }
	if text != "" {
		_, n := utf8.DecodeRuneInString(text)
		if n < len(text) && isAlign(text[n]) {
			s.fill, s.align, text = text[:n], text[n], text[n+1:]
		} else if isAlign(text[0]) {
			s.align, text = text[0], text[1:]
		}
	}
	take := func(set string) byte {
		if text != "" && isOneOf(text[0], set) {
			c := text[0]
			text = text[1:]
			return c
		}
		return 0
	}
	number := func() int {
		n := 0
		for text != "" && isDigit(text[0]) {
			n = n*10 + int(text[0]-'0')
			checkWidth(n)
			r.work(1)
			text = text[1:]
		}
		return n
	}
	s.sign = take("+- ")
	s.alt = take("#") != 0
	s.zero = take("0") != 0
	s.width = number()
	s.group = take(",_")
	if take(".") != 0 {
		if text == "" || !isDigit(text[0]) {
			throw("ValueError", "Format specifier missing precision")
		}
		s.prec = number()
	}
	if text != "" {
		s.verb, text = text[0], text[1:]
	}
	if text != "" {
		throw("ValueError", "Invalid format specifier")
	}
	if s.zero && s.align == 0 {
		s.fill, s.align = "0", '='
	}
	return s
}

// formatValue is Python's format().
func (r *run) formatValue(v Value, specText string) string {
	if specText == "" {
		return r.toStr(v)
	}
	unknown := func(s *spec) {
		throw("ValueError", "Unknown format code '%c' for object of type %s", s.verb, quote(typeName(v)))
	}
	switch x := v.(type) {
	case string, Markup:
		s := r.parseSpec(specText)
		if s.verb != 0 && s.verb != 's' {
			unknown(s)
		}
		switch {
		case s.sign != 0:
			throw("ValueError", "Sign not allowed in string format specifier")
		case s.align == '=' && !s.zero:
			throw("ValueError", "'=' alignment not allowed in string format specifier")
		case s.group != 0:
			throw("ValueError", "Cannot specify '%c' with 's'.", s.group)
		case s.alt:
			throw("ValueError", "Alternate form (#) not allowed in string format specifier")
		}
		t := str(x)
		if s.prec >= 0 {
			t = r.runeSlice(t, 0, s.prec)
		}
		if s.align == 0 || s.align == '=' {
			s.align = '<'
		}
		return r.place(s, "", t)
	case bool, int64, *big.Int:
		s := r.parseSpec(specText)
		n, _ := toBig(x)
		switch s.verb {
		case 0, 'd', 'n', 'x', 'X', 'o', 'b', 'c':
			if s.prec >= 0 {
				throw("ValueError", "Precision not allowed in integer format specifier")
			}
			if s.verb == 'c' {
				k, ok := small(normInt(n))
				if !ok || k < 0 || k > utf8.MaxRune || !utf8.ValidRune(rune(k)) {
					throw("OverflowError", "%%c arg not in range(0x110000)")
				}
				if s.align == 0 {
					s.align = '<'
				}
				return r.place(s, "", runeText(rune(k)))
			}
			verb := s.verb
			if verb == 0 || verb == 'n' {
				verb = 'd'
			}
			t, sign := r.digitsOf(n, verb), ""
			if t[0] == '-' {
				sign, t = "-", t[1:]
			}
			size := 3
			if verb != 'd' {
				size = 4
			}
			return r.number(s, sign, r.prefixOf(s.alt, verb), t, "", size)
		case 'e', 'E', 'f', 'F', 'g', 'G', '%':
			f, _ := r.toFloat(x)
			return r.formatFloat(s, f)
		}
		unknown(s)
	case float64:
		s := r.parseSpec(specText)
		switch s.verb {
		case 0, 'e', 'E', 'f', 'F', 'g', 'G', 'n', '%':
			return r.formatFloat(s, x)
		}
		unknown(s)
	case *Undefined:
		throw("TypeError", "unsupported format string passed to Undefined.__format__")
	}
	throw("TypeError", "unsupported format string passed to %s.__format__", typeName(v))
	return ""
}

func (r *run) prefixOf(alt bool, verb byte) string {
	if alt && verb != 'd' {
		return r.joinTexts("0", charOf(verb))
	}
	return ""
}

func (r *run) formatFloat(s *spec, f float64) string {
	verb, prec, tail := s.verb, s.prec, ""
	var t string
	switch verb {
	case 0:
		if prec < 0 {
			t = floatRepr(f)
			break
		}
		// Like g, with a digit after the point if there is no exponent.
		t = r.generalFloat(f, max(prec, 1), s.alt)
		if math.IsNaN(f) || math.IsInf(f, 0) {
			t = floatRepr(f)
		} else if exp := r.exponent(f, max(prec, 1)); r.byteIndex(t, '.') < 0 && r.byteIndex(t, 'e') < 0 {
			if t = r.joinTexts(t, ".0"); exp >= prec-1 {
				t = r.floatText(f, 'e', max(prec, 1)-1, false)
			}
		}
	case '%':
		if prec < 0 {
			prec = 6
		}
		t, tail = r.floatText(f*100, 'f', prec, s.alt), "%"
	default:
		if prec < 0 {
			prec = 6
		}
		if verb == 'n' {
			verb = 'g'
		}
		t = r.floatText(f, verb, prec, s.alt)
	}
	sign := ""
	if t[0] == '-' {
		sign, t = "-", t[1:]
	}
	whole := len(t)
	if i := r.find(t, func(c rune) bool { return c < '0' || c > '9' }); i >= 0 {
		whole = i
	}
	return r.number(s, sign, "", t[:whole], r.joinTexts(t[whole:], tail), 3)
}

// number places the parts of a number: sign, prefix, digits in groups, the rest.
func (r *run) number(s *spec, sign, prefix, digits, rest string, group int) string {
	if sign == "" && (s.sign == '+' || s.sign == ' ') {
		sign = charOf(s.sign)
	}
	head := r.joinTexts(sign, prefix)
	if s.group != 0 {
		n := len(digits)
		if s.fill == "0" && s.align == '=' {
			// Leading zeros are grouped too.
			for len(head)+n+(n-1)/group+len(rest) < s.width {
				r.work(1)
				n++
			}
		}
		digits = r.grouped(digits, n, s.group, group)
	}
	if s.align == 0 {
		s.align = '>'
	}
	return r.place(s, head, r.joinTexts(digits, rest))
}

// grouped returns digits with zeros before them, n in all, in groups of a size.
func (r *run) grouped(digits string, n int, sep byte, size int) string {
	b := buf{r: r}
	for i := range n {
		r.work(2)
		if i > 0 && (n-i)%size == 0 {
			b.byte(sep)
		}
		if k := i - (n - len(digits)); k >= 0 {
			b.byte(digits[k])
		} else {
			b.byte('0')
		}
	}
	return b.text()
}

// place pads to the width.
func (r *run) place(s *spec, head, body string) string {
	if s.align == '=' {
		return r.joinTexts(head, r.pad(body, s.width-len(head), s.fill, true, false))
	}
	t := r.joinTexts(head, body)
	n := s.width - r.runes(t)
	switch {
	case n <= 0:
		return t
	case s.align == '<':
		return r.around(t, s.fill, 0, n)
	case s.align == '^':
		return r.around(t, s.fill, n/2, n-n/2)
	}
	return r.around(t, s.fill, n, 0)
}
