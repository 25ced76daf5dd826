package jinja

import (
	"math"
	"unicode/utf8"
)

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
	used, named := 0, false
	next := func() Value {
		if used >= len(list) {
			throw("TypeError", "not enough arguments for format string")
		}
		used++
		return list[used-1]
	}
	for i := 0; i < len(format); {
		r.step()
		n := r.byteIndex(format[i:], '%')
		if n < 0 {
			b.str(format[i:])
			break
		}
		b.str(format[i : i+n])
		i += n + 1
		incomplete := func() {
			if i >= len(format) {
				throw("ValueError", "incomplete format")
			}
		}
		incomplete()
		s := spec{fill: " ", prec: -1}
		var key Value
		haveKey := false
		if format[i] == '(' {
			depth, j := 1, i+1
			for ; j < len(format) && depth > 0; j++ {
				r.work(1)
				switch format[j] {
				case '(':
					depth++
				case ')':
					depth--
				}
			}
			if depth > 0 {
				throw("ValueError", "incomplete format key")
			}
			if !isMap {
				throw("TypeError", "format requires a mapping")
			}
			key, haveKey, named = format[i+1:j-1], true, true
			i = j
		}
		for ; i < len(format) && isOneOf(format[i], "#0- +"); i++ {
			r.work(1)
			switch format[i] {
			case '#':
				s.alt = true
			case '0':
				s.zero = true
			case '-':
				s.left = true
			case ' ':
				if s.sign == 0 {
					s.sign = ' '
				}
			case '+':
				s.sign = '+'
			}
		}
		number := func() int {
			if i < len(format) && format[i] == '*' {
				i++
				v, ok := small(next())
				if !ok {
					throw("TypeError", "* wants int")
				}
				checkWidth(int(max(-1<<30, min(1<<30, v))))
				return int(max(-1<<20, v))
			}
			k := 0
			for ; i < len(format) && isDigit(format[i]); i++ {
				r.work(1)
				k = k*10 + int(format[i]-'0')
				checkWidth(k)
			}
			return k
		}
		if s.width = number(); s.width < 0 {
			s.left, s.width = true, -s.width
		}
		if i < len(format) && format[i] == '.' {
			i++
			s.prec = max(0, number())
		}
		for i < len(format) && isOneOf(format[i], "hlL") {
			r.work(1)
			i++
		}
		incomplete()
		s.verb = format[i]
		i++
		if s.verb == '%' {
			b.byte('%')
			continue
		}
		var v Value
		if haveKey {
			var ok bool
			if v, ok = r.get(mapping, key); !ok {
				throw("KeyError", "%s", r.repr(key, 0))
			}
		} else {
			v = next()
		}
		if !isOneOf(s.verb, "sracdiuxXoeEfFgG") {
			c, _ := utf8.DecodeRuneInString(format[i-1:])
			throw("ValueError", "unsupported format character '%c' (0x%x) at index %d", c, c, r.runes(format[:i-1]))
		}
		b.str(r.printOne(&s, v))
	}
	if used < len(list) && !named && !indexed {
		throw("TypeError", "not all arguments converted during string formatting")
	}
	return b.text()
}

func (r *run) printOne(s *spec, v Value) string {
	out := ""
	switch s.verb {
	case 's', 'r', 'a':
		switch s.verb {
		case 's':
			out = r.toStr(v)
		case 'r':
			out = r.repr(v, 0)
		default:
			out = r.ascii(r.repr(v, 0))
		}
		if s.prec >= 0 {
			out = r.runeSlice(out, 0, s.prec)
		}
		s.zero = false
	case 'c':
		if t, ok := text(v); ok && r.runes(t) == 1 {
			out = t
		} else if n, ok := small(v); ok && n >= 0 && n <= utf8.MaxRune && utf8.ValidRune(rune(n)) {
			out = runeText(rune(n))
		} else {
			throw("TypeError", "%%c requires int or char")
		}
		s.zero = false
	case 'd', 'i', 'u', 'x', 'X', 'o':
		if f, ok := v.(float64); ok && (s.verb == 'd' || s.verb == 'i' || s.verb == 'u') {
			if math.IsNaN(f) || math.IsInf(f, 0) {
				throw("ValueError", "cannot convert float %s to integer", floatRepr(f))
			}
			v = floatToInt(f)
		}
		n, ok := toBig(v)
		if !ok {
			if s.verb == 'd' || s.verb == 'i' || s.verb == 'u' {
				throw("TypeError", "%%%c format: a real number is required, not %s", s.verb, typeName(v))
			}
			throw("TypeError", "%%%c format: an integer is required, not %s", s.verb, typeName(v))
		}
		verb := s.verb
		if verb == 'i' || verb == 'u' {
			verb = 'd'
		}
		out = r.digitsOf(n, verb)
		sign := ""
		if out[0] == '-' {
			sign, out = "-", out[1:]
		}
		out = r.pad(out, s.prec, "0", true, false)
		if s.alt && verb != 'd' {
			out = r.joinTexts("0", charOf(s.verb), out)
		}
		out = r.joinTexts(sign, out)
	case 'e', 'E', 'f', 'F', 'g', 'G':
		f, ok := r.toFloat(v)
		if !ok {
			throw("TypeError", "must be real number, not %s", typeName(v))
		}
		prec := s.prec
		if prec < 0 {
			prec = 6
		}
		out = r.floatText(f, s.verb, prec, s.alt)
	}
	numeric := !isOneOf(s.verb, "srac")
	if numeric && s.sign != 0 && out[0] != '-' {
		out = r.joinTexts(charOf(s.sign), out)
	}
	switch {
	case s.left:
		return r.pad(out, s.width, " ", false, true)
	case s.zero:
		head := 0
		if out[0] == '-' || out[0] == '+' || out[0] == ' ' {
			head = 1
		}
		if s.alt && len(out) > head+1 && (s.verb == 'x' || s.verb == 'X' || s.verb == 'o') {
			head += 2
		}
		return r.joinTexts(out[:head], r.pad(out[head:], s.width-head, "0", true, false))
	}
	return r.pad(out, s.width, " ", true, false)
}

// ascii escapes what is not ASCII.
func (r *run) ascii(s string) string {
	b := buf{r: r}
	for _, c := range r.chars(s) {
		if c < utf8.RuneSelf {
			b.rune(c)
		} else {
			b.escaped(c)
		}
	}
	return b.text()
}
