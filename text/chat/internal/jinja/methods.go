package jinja

import (
	"unicode"
	"unicode/utf8"
)

type method = func(r *run, self Value, a *args) Value

// wantStr returns an argument that must be a str.
func wantStr(fn string, v Value) string {
	s, ok := text(v)
	if !ok {
		if u, ok := v.(*Undefined); ok && u != missing {
			throw("TypeError", "%s() argument must be str, not Undefined", fn)
		}
		throw("TypeError", "%s() argument must be str, not %s", fn, typeName(v))
	}
	return s
}

// wantInt returns an argument that must be an int; values outside 62 bits are clamped.
func wantInt(v Value) int {
	if n, ok := small(v); ok {
		return int(max(-1<<62, min(1<<62, n)))
	}
	if isInt(v) {
		beyond()
	}
	throw("TypeError", "%s object cannot be interpreted as an integer", quote(typeName(v)))
	return 0
}

// strip is str.strip and its halves.
func strip(left, right bool) method {
	name := "strip"
	switch {
	case !right:
		name = "lstrip"
	case !left:
		name = "rstrip"
	}
	return func(r *run, self Value, a *args) Value {
		v := a.bind(name, 0, "chars")
		s := str(self)
		cut := isSpace
		if v[0] != missing && v[0] != nil {
			chars, ok := text(v[0])
			if !ok {
				throw("TypeError", "%s arg must be None or str", name)
			}
			cut = r.charSet(chars)
		}
		cutText := r.trim(s, left, right, cut)
		if len(cutText) == len(s) {
			return self
		}
		return like(self, cutText)
	}
}

// simple is a method without arguments.
func simple(name string, f func(*run, string) string) method {
	return func(r *run, self Value, a *args) Value {
		a.bind(name, 0)
		return like(self, f(r, str(self)))
	}
}

// is is a method that tests all characters of a text that is not empty.
func is(name string, f func(rune) bool) method {
	return func(r *run, self Value, a *args) Value {
		a.bind(name, 0)
		s := str(self)
		return s != "" && r.all(s, f)
	}
}

// capitalize is str.capitalize.
func (r *run) capitalize(s string) string {
	c, n := utf8.DecodeRuneInString(s)
	if n == 0 {
		return s
	}
	b := buf{r: r}
	b.titleRune(c)
	b.str(r.lower(s[n:]))
	return b.text()
}

// pyTitle is str.title: letters that follow letters become lower case.
func (r *run) pyTitle(s string) string {
	b := buf{r: r}
	in := false
	for _, c := range r.chars(s) {
		if in {
			b.lowerRune(c)
		} else {
			b.titleRune(c)
		}
		in = isCased(c)
	}
	return b.text()
}

// isCase reports whether a text has cased characters and all of them have the given
// case.
func (r *run) isCase(s string, upper bool) bool {
	any := false
	for _, c := range r.chars(s) {
		up := unicode.IsUpper(c) || unicode.Is(unicode.Other_Uppercase, c)
		low := unicode.IsLower(c) || unicode.Is(unicode.Other_Lowercase, c)
		if unicode.IsTitle(c) || up && !upper || low && upper {
			return false
		}
		any = any || up || low
	}
	return any
}

// splitSpace yields what white space separates, at most n+1 parts (n < 0: all).
func (r *run) splitSpace(s string, n int, yield func(string)) {
	for s = r.trim(s, true, false, isSpace); s != ""; n-- {
		r.step()
		i := -1
		if n != 0 {
			i = r.find(s, isSpace)
		}
		if i < 0 {
			yield(s)
			return
		}
		yield(s[:i])
		s = r.trim(s[i:], true, false, isSpace)
	}
}

// rsplitSpace is splitSpace from the right; the last part comes first.
func (r *run) rsplitSpace(s string, n int, yield func(string)) {
	space := func(c rune) bool { return !isSpace(c) }
	for s = r.trim(s, false, true, isSpace); s != ""; n-- {
		r.step()
		word := ""
		if n != 0 {
			word = r.trim(s, false, true, space)
		}
		if word == "" {
			yield(s)
			return
		}
		yield(s[len(word):])
		s = r.trim(word, false, true, isSpace)
	}
}

func split(name string, right bool) method {
	return func(r *run, self Value, a *args) Value {
		v := a.bind(name, 0, "sep", "maxsplit")
		n := -1
		if v[1] != missing {
			n = wantInt(v[1])
		}
		s := str(self)
		out := vec{r: r}
		add := func(part string) {
			out.add(like(self, part))
		}
		if v[0] == missing || v[0] == nil {
			if right {
				r.rsplitSpace(s, n, add)
				out.reverse()
			} else {
				r.splitSpace(s, n, add)
			}
			return &List{out.items}
		}
		sep, ok := text(v[0])
		if !ok {
			throw("TypeError", "must be str or None, not %s", typeName(v[0]))
		}
		if sep == "" {
			throw("ValueError", "empty separator")
		}
		for ; n != 0; n-- {
			r.step()
			if right {
				i := r.lastIndex(s, sep)
				if i < 0 {
					break
				}
				add(s[i+len(sep):])
				s = s[:i]
			} else {
				i := r.index(s, sep)
				if i < 0 {
					break
				}
				add(s[:i])
				s = s[i+len(sep):]
			}
		}
		add(s)
		if right {
			out.reverse()
		}
		return &List{out.items}
	}
}

// window returns s[start:end] as find and startswith see it, and the number of
// characters before it. ok is false if start is past the end.
func (r *run) window(s string, start, end Value) (sub string, before int, ok bool) {
	if start == missing && end == missing {
		return s, 0, true
	}
	n := r.runes(s)
	clamp := func(v Value, def int) int {
		if v == missing || v == nil {
			return def
		}
		i := wantInt(v)
		if i < 0 {
			i = max(0, i+n)
		}
		return i
	}
	from, to := clamp(start, 0), min(clamp(end, n), n)
	if from > n || from > to {
		return "", 0, false
	}
	return r.runeSlice(s, from, to), from, true
}

// find is str.find, rfind, index and rindex.
func find(name string, last, must bool) method {
	return func(r *run, self Value, a *args) Value {
		v := a.bind(name, 1, "sub", "start", "end")
		sub := wantStr(name, v[0])
		s, before, ok := r.window(str(self), v[1], v[2])
		i := -1
		switch {
		case ok && last:
			i = r.lastIndex(s, sub)
		case ok:
			i = r.index(s, sub)
		}
		if i < 0 {
			if must {
				throw("ValueError", "substring not found")
			}
			return int64(-1)
		}
		return int64(before + r.runes(s[:i]))
	}
}

// affix is startswith and endswith.
func affix(name string, has func(r *run, s, affix string) bool) method {
	return func(r *run, self Value, a *args) Value {
		v := a.bind(name, 1, "prefix", "start", "end")
		s, _, ok := r.window(str(self), v[1], v[2])
		try := v[:1]
		if t, isTuple := v[0].(*Tuple); isTuple {
			try = t.Items
		}
		for _, x := range try {
			r.step()
			p, isText := text(x)
			if !isText {
				throw("TypeError", "%s first arg must be str or a tuple of str, not %s", name, typeName(x))
			}
			if ok && has(r, s, p) {
				return true
			}
		}
		return false
	}
}

func partition(r *run, self Value, a *args) Value {
	v := a.bind("partition", 1, "sep")
	s, sep := str(self), wantStr("partition", v[0])
	if sep == "" {
		throw("ValueError", "empty separator")
	}
	i := r.index(s, sep)
	if i < 0 {
		return r.tuple(like(self, s), like(self, ""), like(self, ""))
	}
	return r.tuple(like(self, s[:i]), like(self, sep), like(self, s[i+len(sep):]))
}

var strMethods map[string]method

func init() {
	strMethods = map[string]method{
		"strip":      strip(true, true),
		"lstrip":     strip(true, false),
		"rstrip":     strip(false, true),
		"upper":      simple("upper", (*run).upper),
		"lower":      simple("lower", (*run).lower),
		"capitalize": simple("capitalize", (*run).capitalize),
		"title":      simple("title", (*run).pyTitle),
		"split":      split("split", false),
		"rsplit":     split("rsplit", true),
		"find":       find("find", false, false),
		"rfind":      find("rfind", true, false),
		"index":      find("index", false, true),
		"rindex":     find("rindex", true, true),
		"startswith": affix("startswith", (*run).hasPrefix),
		"endswith":   affix("endswith", (*run).hasSuffix),
		"partition":  partition,
		"isalpha":    is("isalpha", unicode.IsLetter),
		"isdigit":    is("isdigit", isPyDigit),
		"isdecimal":  is("isdecimal", unicode.IsDigit),
		"isnumeric":  is("isnumeric", unicode.IsNumber),
		"isalnum":    is("isalnum", func(c rune) bool { return unicode.IsLetter(c) || unicode.IsNumber(c) }),
		"isspace":    is("isspace", isSpace),
		"isupper":    func(r *run, self Value, a *args) Value { a.bind("isupper", 0); return r.isCase(str(self), true) },
		"islower":    func(r *run, self Value, a *args) Value { a.bind("islower", 0); return r.isCase(str(self), false) },
		"count": func(r *run, self Value, a *args) Value {
			v := a.bind("count", 1, "sub", "start", "end")
			s, _, ok := r.window(str(self), v[1], v[2])
			sub := wantStr("count", v[0])
			switch {
			case !ok:
				return int64(0)
			case sub == "":
				return int64(r.runes(s) + 1)
			}
			n := int64(-1) // there is one part more than separators
			for range r.parts(s, sub) {
				n++
			}
			return n
		},
		"replace": func(r *run, self Value, a *args) Value {
			v := a.bind("replace", 2, "old", "new", "count")
			n := -1
			if v[2] != missing {
				n = wantInt(v[2])
			}
			return like(self, r.replace(str(self), wantStr("replace", v[0]), wantStr("replace", v[1]), n))
		},
		"removeprefix": func(r *run, self Value, a *args) Value {
			v := a.bind("removeprefix", 1, "prefix")
			s, prefix := str(self), wantStr("removeprefix", v[0])
			if r.hasPrefix(s, prefix) {
				s = s[len(prefix):]
			}
			return like(self, s)
		},
		"removesuffix": func(r *run, self Value, a *args) Value {
			v := a.bind("removesuffix", 1, "suffix")
			s, suffix := str(self), wantStr("removesuffix", v[0])
			if r.hasSuffix(s, suffix) {
				s = s[:len(s)-len(suffix)]
			}
			return like(self, s)
		},
		"splitlines": func(r *run, self Value, a *args) Value {
			v := a.bind("splitlines", 0, "keepends")
			out := vec{r: r}
			for line := range r.lines(str(self), v[0] != missing && wantInt(v[0]) != 0) {
				out.add(like(self, line))
			}
			return &List{out.items}
		},
		"join": func(r *run, self Value, a *args) Value {
			v := a.bind("join", 1, "iterable")
			values := r.collectAs(v[0], func() { throw("TypeError", "can only join an iterable") })
			b := buf{r: r}
			for i, x := range values {
				r.step()
				s, ok := text(x)
				if !ok {
					throw("TypeError", "sequence item %d: expected str instance, %s found", i, typeName(x))
				}
				if _, marked := self.(Markup); marked {
					if _, marked := x.(Markup); !marked {
						s = r.escape(s)
					}
				}
				if i > 0 {
					b.str(str(self))
				}
				b.str(s)
			}
			return like(self, b.text())
		},
		"format": func(r *run, self Value, a *args) Value {
			return like(self, r.format(str(self), a))
		},
	}
	for _, name := range []string{
		"casefold", "center", "encode", "expandtabs", "format_map", "isascii", "isidentifier", "isprintable", "istitle", "ljust",
		"maketrans", "rjust", "rpartition", "swapcase", "translate", "zfill",
	} {
		strMethods[name] = func(*run, Value, *args) Value {
			throw("TypeError", "str.%s is not supported", name)
			return nil
		}
	}
}

// isPyDigit is str.isdigit of one character: decimals and superscripts.
func isPyDigit(c rune) bool {
	if unicode.IsDigit(c) {
		return true
	}
	switch {
	case c == '²' || c == '³' || c == '¹' || c == 0x2070 || c >= 0x2074 && c <= 0x2079 || c >= 0x2080 && c <= 0x2089,
		c >= 0x2460 && c <= 0x2468, c >= 0x2474 && c <= 0x247c, c >= 0x2488 && c <= 0x2490, c == 0x24ea,
		c >= 0x24f5 && c <= 0x24fd, c == 0x24ff, c >= 0x2776 && c <= 0x277e, c >= 0x2780 && c <= 0x2788, c >= 0x278a && c <= 0x2792:
		return true
	}
	return false
}
