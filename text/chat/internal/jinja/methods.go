package jinja

import (
	"math/big"
	"unicode"
	"unicode/utf8"
)

// attribute returns an attribute that Python's getattr would find: a method of a
// built-in type, or a field of one of jinja2's objects. An attribute that the sandbox
// forbids is an undefined value that throws a SecurityError when used.
func (r *run) attribute(obj Value, name string) (Value, bool) {
	r.scanKey(name)
	switch x := obj.(type) {
	case *Namespace:
		return r.getString(x.attrs, name)
	case *Loop:
		return x.attr(name)
	case *Tuple:
		for i, n := range x.Names {
			if n == name {
				return x.Items[i], true
			}
		}
	case *Cycler:
		switch name {
		case "current":
			return x.items[x.pos], true
		case "next":
			return r.fn("next", func(*run, *args) Value {
				v := x.items[x.pos]
				x.pos = (x.pos + 1) % len(x.items)
				return v
			}), true
		case "reset":
			return r.fn("reset", func(*run, *args) Value { x.pos = 0; return nil }), true
		}
	case *Macro:
		switch name {
		case "name":
			return x.node.name, true
		case "arguments":
			l := vec{r: r}
			for _, a := range x.node.args {
				r.step()
				l.add(a)
			}
			return &Tuple{Items: l.items}, true
		case "caller":
			return x.node.caller, true
		case "catch_kwargs":
			return x.node.kwargs, true
		case "catch_varargs":
			return x.node.varargs, true
		}
	case float64:
		switch name {
		case "real":
			return x, true
		case "imag":
			return 0.0, true
		}
	case int64, bool, *big.Int:
		switch name {
		case "real", "numerator":
			return r.unary("+", x), true
		case "imag":
			return int64(0), true
		case "denominator":
			return int64(1), true
		}
	}
	if forbidden(obj, name) {
		u := r.undefined(obj, name)
		u.kind = "SecurityError"
		return u, true
	}
	var m func(r *run, self Value, a *args) Value
	switch obj.(type) {
	case string, Markup:
		m = strMethods[name]
	case *Dict:
		m = dictMethods[name]
	case *List, *Tuple, *Range:
		m = listMethods[name]
	case float64:
		m = floatMethods[name]
	case int64, bool, *big.Int:
		m = intMethods[name]
	}
	if m == nil {
		return nil, false
	}
	return r.fn(name, func(r *run, a *args) Value { return m(r, obj, a) }), true
}

// forbidden reports whether the sandbox refuses access to an attribute: the methods that
// change a list or dict, and what every Python object has.
func forbidden(obj Value, name string) bool {
	switch obj.(type) {
	case *List:
		switch name {
		case "append", "clear", "pop", "reverse", "insert", "sort", "extend", "remove":
			return true
		}
	case *Dict:
		switch name {
		case "clear", "pop", "popitem", "setdefault", "update":
			return true
		}
	}
	return dunder[name]
}

// dunder are the attributes that every Python object has.
var dunder = setOf(`__class__ __delattr__ __dir__ __doc__ __eq__ __format__ __ge__ __getattribute__ __gt__
	__hash__ __init__ __init_subclass__ __le__ __lt__ __ne__ __new__ __reduce__ __reduce_ex__ __repr__ __setattr__
	__sizeof__ __str__ __subclasshook__`)

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

// wantInt returns an argument that must be an int; values outside 64 bits are clamped.
func wantInt(v Value) int {
	if n, ok := small(v); ok {
		return int(max(-1<<62, min(1<<62, n)))
	}
	if b, ok := toBig(v); ok {
		return b.Sign() << 62
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

func (r *run) isTitle(s string) bool {
	prev, any := false, false
	for _, c := range r.chars(s) {
		switch {
		case unicode.IsUpper(c) || unicode.IsTitle(c):
			if prev {
				return false
			}
			prev, any = true, true
		case isCased(c):
			if !prev {
				return false
			}
			any = true
		default:
			prev = false
		}
	}
	return any
}

func (r *run) swapCase(s string) string {
	b := buf{r: r}
	for _, c := range r.chars(s) {
		switch {
		case unicode.IsUpper(c):
			b.lowerRune(c)
		case unicode.IsLower(c):
			b.upperRune(c)
		default:
			b.rune(c)
		}
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

func partition(name string, last bool) method {
	return func(r *run, self Value, a *args) Value {
		v := a.bind(name, 1, "sep")
		s, sep := str(self), wantStr(name, v[0])
		if sep == "" {
			throw("ValueError", "empty separator")
		}
		i, head, tail := 0, s, ""
		if last {
			i, head, tail = r.lastIndex(s, sep), "", s
		} else {
			i = r.index(s, sep)
		}
		if i < 0 {
			return r.tuple(like(self, head), like(self, ""), like(self, tail))
		}
		return r.tuple(like(self, s[:i]), like(self, sep), like(self, s[i+len(sep):]))
	}
}

// just is ljust, rjust and center.
func just(name string, left, right bool) method {
	return func(r *run, self Value, a *args) Value {
		v := a.bind(name, 1, "width", "fillchar")
		fill := " "
		if v[1] != missing {
			fill = wantStr(name, v[1])
			if r.runes(fill) != 1 {
				throw("TypeError", "The fill character must be exactly one character long")
			}
		}
		return like(self, r.pad(str(self), wantInt(v[0]), fill, left, right))
	}
}

var strMethods map[string]method

func init() {
	strMethods = map[string]method{
		"strip":      strip(true, true),
		"lstrip":     strip(true, false),
		"rstrip":     strip(false, true),
		"upper":      simple("upper", (*run).upper),
		"lower":      simple("lower", (*run).lower),
		"casefold":   simple("casefold", (*run).casefold),
		"capitalize": simple("capitalize", (*run).capitalize),
		"title":      simple("title", (*run).pyTitle),
		"swapcase":   simple("swapcase", (*run).swapCase),
		"split":      split("split", false),
		"rsplit":     split("rsplit", true),
		"find":       find("find", false, false),
		"rfind":      find("rfind", true, false),
		"index":      find("index", false, true),
		"rindex":     find("rindex", true, true),
		"startswith": affix("startswith", (*run).hasPrefix),
		"endswith":   affix("endswith", (*run).hasSuffix),
		"partition":  partition("partition", false),
		"rpartition": partition("rpartition", true),
		"ljust":      just("ljust", false, true),
		"rjust":      just("rjust", true, false),
		"center":     just("center", true, true),
		"isalpha":    is("isalpha", unicode.IsLetter),
		"isdigit":    is("isdigit", isPyDigit),
		"isdecimal":  is("isdecimal", unicode.IsDigit),
		"isnumeric":  is("isnumeric", unicode.IsNumber),
		"isalnum":    is("isalnum", func(c rune) bool { return unicode.IsLetter(c) || unicode.IsNumber(c) }),
		"isspace":    is("isspace", isSpace),
		"isascii": func(r *run, self Value, a *args) Value {
			a.bind("isascii", 0)
			return r.isASCII(str(self))
		},
		"isprintable": func(r *run, self Value, a *args) Value {
			a.bind("isprintable", 0)
			return r.all(str(self), unicode.IsPrint)
		},
		"isidentifier": func(r *run, self Value, a *args) Value {
			a.bind("isidentifier", 0)
			for i, c := range r.chars(str(self)) {
				if c != '_' && !unicode.IsLetter(c) && (i == 0 || !unicode.IsDigit(c) && !unicode.Is(unicode.Mn, c) && !unicode.Is(unicode.Mc, c)) {
					return false
				}
			}
			return str(self) != ""
		},
		"isupper": func(r *run, self Value, a *args) Value { a.bind("isupper", 0); return r.isCase(str(self), true) },
		"islower": func(r *run, self Value, a *args) Value { a.bind("islower", 0); return r.isCase(str(self), false) },
		"istitle": func(r *run, self Value, a *args) Value { a.bind("istitle", 0); return r.isTitle(str(self)) },
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
		"zfill": func(r *run, self Value, a *args) Value {
			v := a.bind("zfill", 1, "width")
			s, sign := str(self), ""
			if s != "" && (s[0] == '+' || s[0] == '-') {
				sign, s = s[:1], s[1:]
			}
			return like(self, r.joinTexts(sign, r.pad(s, wantInt(v[0])-len(sign), "0", true, false)))
		},
		"expandtabs": func(r *run, self Value, a *args) Value {
			v := a.bind("expandtabs", 0, "tabsize")
			size := 8
			if v[0] != missing {
				size = wantInt(v[0])
			}
			b := buf{r: r}
			col := 0
			for _, c := range r.chars(str(self)) {
				switch c {
				case '\t':
					if size > 0 {
						n := size - col%size
						col += n
						b.repeat(" ", n)
					}
					continue
				case '\n', '\r':
					col = -1
				}
				col++
				b.rune(c)
			}
			return like(self, b.text())
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
		"format_map": func(r *run, self Value, a *args) Value {
			v := a.bind("format_map", 1, "mapping")
			d, ok := v[0].(*Dict)
			if !ok {
				throw("TypeError", "format_map() wants a mapping, not %s", typeName(v[0]))
			}
			b := &args{}
			for k, x := range d.All() {
				r.step()
				if name, ok := text(k); ok {
					r.addKeyword(b, name, x)
				}
			}
			return like(self, r.format(str(self), b))
		},
	}
	for _, name := range []string{"encode", "maketrans", "translate"} {
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

var dictMethods = map[string]method{
	"keys":   view("keys", "dict_keys"),
	"values": view("values", "dict_values"),
	"items":  view("items", "dict_items"),
	"get": func(r *run, self Value, a *args) Value {
		v := a.bind("get", 1, "key", "default")
		if x, ok := r.get(self.(*Dict), v[0]); ok {
			return x
		}
		if v[1] == missing {
			return nil
		}
		return v[1]
	},
	"copy": func(r *run, self Value, a *args) Value {
		a.bind("copy", 0)
		return r.clone(self.(*Dict))
	},
	"fromkeys": func(r *run, _ Value, a *args) Value {
		v := a.bind("fromkeys", 1, "iterable", "value")
		d := NewDict()
		if v[1] == missing {
			v[1] = nil
		}
		for _, k := range r.collect(v[0]) {
			r.step()
			r.put(d, k, v[1])
		}
		return d
	},
}

func view(name, kind string) method {
	return func(_ *run, self Value, a *args) Value {
		a.bind(name, 0)
		return &View{self.(*Dict), kind}
	}
}

var listMethods = map[string]method{
	"count": func(r *run, self Value, a *args) Value {
		v := a.bind("count", 1, "value")
		n := int64(0)
		for _, x := range r.collect(self) {
			r.step()
			if identical(x, v[0]) || r.equal(x, v[0]) {
				n++
			}
		}
		return n
	},
	"index": func(r *run, self Value, a *args) Value {
		v := a.bind("index", 1, "value", "start", "stop")
		items := r.collect(self)
		from, to := 0, len(items)
		for i, p := range []*int{&from, &to} {
			if v[i+1] == missing {
				continue
			}
			if *p = wantInt(v[i+1]); *p < 0 {
				*p = max(0, *p+len(items))
			}
		}
		for i := from; i < min(to, len(items)); i++ {
			r.step()
			if identical(items[i], v[0]) || r.equal(items[i], v[0]) {
				return int64(i)
			}
		}
		throw("ValueError", "%s is not in list", r.repr(v[0], 0))
		return nil
	},
	"copy": func(r *run, self Value, a *args) Value {
		a.bind("copy", 0)
		return &List{r.joined(r.collect(self))}
	},
}

var floatMethods = map[string]method{
	"is_integer": func(_ *run, self Value, a *args) Value {
		a.bind("is_integer", 0)
		f := self.(float64)
		return f == float64(int64(f))
	},
}

var intMethods = map[string]method{
	"bit_length": func(_ *run, self Value, a *args) Value {
		a.bind("bit_length", 0)
		b, _ := toBig(self)
		return bitLen(b)
	},
}
