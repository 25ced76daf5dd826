package jinja

import (
	"math/big"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/cases"
	"golang.org/x/text/language"
)

// attribute returns an attribute that Python's getattr would find: a method of a
// built-in type, or a field of one of jinja2's objects. An attribute that the sandbox
// forbids is an undefined value that throws a SecurityError when used.
func attribute(obj Value, name string) (Value, bool) {
	switch x := obj.(type) {
	case *Namespace:
		return x.attrs.GetString(name)
	case *Loop:
		return x.attr(name)
	case *Tuple:
		if i := slices.Index(x.Names, name); i >= 0 {
			return x.Items[i], true
		}
	case *Cycler:
		switch name {
		case "current":
			return x.items[x.pos], true
		case "next":
			return &Func{"next", func(*run, *args) Value {
				v := x.items[x.pos]
				x.pos = (x.pos + 1) % len(x.items)
				return v
			}}, true
		case "reset":
			return &Func{"reset", func(*run, *args) Value { x.pos = 0; return nil }}, true
		}
	case *Macro:
		switch name {
		case "name":
			return x.node.name, true
		case "arguments":
			l := &Tuple{}
			for _, a := range x.node.args {
				l.Items = append(l.Items, a)
			}
			return l, true
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
		n, _ := toBig(x)
		switch name {
		case "real", "numerator":
			return normInt(n), true
		case "imag":
			return int64(0), true
		case "denominator":
			return int64(1), true
		}
	}
	if unsafe[typeName(obj)+"."+name] || strings.HasPrefix(name, "__") && dunder[name] {
		return &Undefined{
			name:    name,
			message: "access to attribute " + quote(name) + " of " + quote(typeName(obj)) + " object is unsafe.",
			kind:    "SecurityError",
		}, true
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
	return &Func{name, func(r *run, a *args) Value {
		s, _ := text(obj)
		r.work(len(s))
		return m(r, obj, a)
	}}, true
}

// unsafe are the methods that change a list or dict.
var unsafe = func() map[string]bool {
	m := map[string]bool{}
	for _, n := range strings.Fields("append clear pop reverse insert sort extend remove") {
		m["list."+n] = true
	}
	for _, n := range strings.Fields("clear pop popitem setdefault update") {
		m["dict."+n] = true
	}
	return m
}()

// dunder are the attributes that every Python object has.
var dunder = func() map[string]bool {
	m := map[string]bool{}
	for _, n := range strings.Fields(`__class__ __delattr__ __dir__ __doc__ __eq__ __format__ __ge__ __getattribute__ __gt__
		__hash__ __init__ __init_subclass__ __le__ __lt__ __ne__ __new__ __reduce__ __reduce_ex__ __repr__ __setattr__
		__sizeof__ __str__ __subclasshook__`) {
		m[n] = true
	}
	return m
}()

type method = func(r *run, self Value, a *args) Value

// like converts a text to the type of self: methods of Markup return Markup.
func like(r *run, self Value, s string) Value {
	r.charge(len(s))
	if _, ok := self.(Markup); ok {
		return Markup(s)
	}
	return s
}

func str(v Value) string {
	s, _ := text(v)
	return s
}

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
			cut = func(c rune) bool { return strings.ContainsRune(chars, c) }
		}
		if left {
			s = strings.TrimLeftFunc(s, cut)
		}
		if right {
			s = strings.TrimRightFunc(s, cut)
		}
		return like(r, self, s)
	}
}

// simple is a method without arguments.
func simple(name string, f func(string) string) method {
	return func(r *run, self Value, a *args) Value {
		a.bind(name, 0)
		return like(r, self, f(str(self)))
	}
}

// is is a method that tests all characters of a text that is not empty.
func is(name string, f func(rune) bool) method {
	return func(_ *run, self Value, a *args) Value {
		a.bind(name, 0)
		s := str(self)
		return s != "" && strings.IndexFunc(s, func(c rune) bool { return !f(c) }) < 0
	}
}

// upper and lower are full Unicode mappings, as in Python (ß becomes SS). A Caser is
// not safe for concurrent use, so each call makes its own unless ASCII is enough.
func upper(s string) string {
	if isASCII(s) {
		return strings.ToUpper(s)
	}
	return cases.Upper(language.Und).String(s)
}

func lower(s string) string {
	if isASCII(s) {
		return strings.ToLower(s)
	}
	return cases.Lower(language.Und).String(s)
}

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

func isCased(c rune) bool {
	return unicode.IsUpper(c) || unicode.IsLower(c) || unicode.IsTitle(c) || unicode.Is(unicode.Other_Lowercase, c) || unicode.Is(unicode.Other_Uppercase, c)
}

// titleRune returns the title case of a letter.
func titleRune(c rune) string {
	if c < utf8.RuneSelf {
		return string(unicode.ToUpper(c))
	}
	return cases.Title(language.Und, cases.NoLower).String(string(c))
}

func capitalize(s string) string {
	c, n := utf8.DecodeRuneInString(s)
	if n == 0 {
		return s
	}
	return titleRune(c) + lower(s[n:])
}

// pyTitle is str.title: letters that follow letters become lower case.
func pyTitle(s string) string {
	var b strings.Builder
	in := false
	for _, c := range s {
		if in {
			b.WriteString(lower(string(c)))
		} else {
			b.WriteString(titleRune(c))
		}
		in = isCased(c)
	}
	return b.String()
}

func isTitle(s string) bool {
	prev, any := false, false
	for _, c := range s {
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

func swapCase(s string) string {
	var b strings.Builder
	for _, c := range s {
		switch {
		case unicode.IsUpper(c):
			b.WriteString(lower(string(c)))
		case unicode.IsLower(c):
			b.WriteString(upper(string(c)))
		default:
			b.WriteRune(c)
		}
	}
	return b.String()
}

// isCase reports whether a text has cased characters and all of them have the given
// case.
func isCase(s string, upper bool) bool {
	any := false
	for _, c := range s {
		up := unicode.IsUpper(c) || unicode.Is(unicode.Other_Uppercase, c)
		low := unicode.IsLower(c) || unicode.Is(unicode.Other_Lowercase, c)
		if unicode.IsTitle(c) || up && !upper || low && upper {
			return false
		}
		any = any || up || low
	}
	return any
}

// lineBreaks are the characters that str.splitlines splits at, in addition to \r\n.
const lineBreaks = "\n\r\v\f\x1c\x1d\x1e\u0085\u2028\u2029"

func splitLines(s string, keep bool) []string {
	var out []string
	for s != "" {
		i := strings.IndexAny(s, lineBreaks)
		if i < 0 {
			return append(out, s)
		}
		_, n := utf8.DecodeRuneInString(s[i:])
		if strings.HasPrefix(s[i:], "\r\n") {
			n = 2
		}
		if keep {
			out = append(out, s[:i+n])
		} else {
			out = append(out, s[:i])
		}
		s = s[i+n:]
	}
	return out
}

// splitSpace splits at white space at most n times (n < 0: always).
func splitSpace(s string, n int) []string {
	var out []string
	s = strings.TrimLeftFunc(s, isSpace)
	for s != "" {
		i := strings.IndexFunc(s, isSpace)
		if i < 0 || n >= 0 && len(out) == n {
			return append(out, s)
		}
		out = append(out, s[:i])
		s = strings.TrimLeftFunc(s[i:], isSpace)
	}
	return out
}

// rsplitSpace is splitSpace from the right.
func rsplitSpace(s string, n int) []string {
	var out []string
	s = strings.TrimRightFunc(s, isSpace)
	for s != "" {
		i := strings.LastIndexFunc(s, isSpace)
		if i < 0 || n >= 0 && len(out) == n {
			out = append(out, s)
			break
		}
		_, w := utf8.DecodeRuneInString(s[i:])
		out = append(out, s[i+w:])
		s = strings.TrimRightFunc(s[:i], isSpace)
	}
	slices.Reverse(out)
	return out
}

func rsplit(s, sep string, n int) []string {
	var out []string
	for n < 0 || len(out) < n {
		i := strings.LastIndex(s, sep)
		if i < 0 {
			break
		}
		out = append(out, s[i+len(sep):])
		s = s[:i]
	}
	out = append(out, s)
	slices.Reverse(out)
	return out
}

func split(name string, right bool) method {
	return func(r *run, self Value, a *args) Value {
		v := a.bind(name, 0, "sep", "maxsplit")
		n := -1
		if v[1] != missing {
			n = wantInt(v[1])
		}
		s := str(self)
		var parts []string
		switch {
		case v[0] == missing || v[0] == nil:
			if right {
				parts = rsplitSpace(s, n)
			} else {
				parts = splitSpace(s, n)
			}
		default:
			sep, ok := text(v[0])
			if !ok {
				throw("TypeError", "must be str or None, not %s", typeName(v[0]))
			}
			if sep == "" {
				throw("ValueError", "empty separator")
			}
			switch {
			case right:
				parts = rsplit(s, sep, n)
			case n < 0:
				parts = strings.Split(s, sep)
			default:
				parts = strings.SplitN(s, sep, min(n, len(s))+1)
			}
		}
		return r.strList(self, parts)
	}
}

// strList returns a list of strings of self's type.
func (r *run) strList(self Value, parts []string) Value {
	r.chargeItems(2 * len(parts))
	items := make([]Value, len(parts))
	for i, p := range parts {
		items[i] = like(r, self, p)
	}
	return &List{items}
}

// window returns s[start:end] as find and startswith see it, and the number of
// characters before it. ok is false if start is past the end.
func window(s string, start, end Value) (sub string, before int, ok bool) {
	if start == missing && end == missing {
		return s, 0, true
	}
	n := utf8.RuneCountInString(s)
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
	return runeSlice(s, from, to), from, true
}

// find is str.find, rfind, index and rindex.
func find(name string, last, must bool) method {
	return func(_ *run, self Value, a *args) Value {
		v := a.bind(name, 1, "sub", "start", "end")
		sub := wantStr(name, v[0])
		s, before, ok := window(str(self), v[1], v[2])
		i := -1
		if ok {
			if i = strings.Index(s, sub); last {
				i = strings.LastIndex(s, sub)
			}
		}
		if i < 0 {
			if must {
				throw("ValueError", "substring not found")
			}
			return int64(-1)
		}
		return int64(before + utf8.RuneCountInString(s[:i]))
	}
}

// affix is startswith and endswith.
func affix(name string, has func(s, affix string) bool) method {
	return func(_ *run, self Value, a *args) Value {
		v := a.bind(name, 1, "prefix", "start", "end")
		s, _, ok := window(str(self), v[1], v[2])
		try := []Value{v[0]}
		if t, isTuple := v[0].(*Tuple); isTuple {
			try = t.Items
		}
		for _, x := range try {
			p, isText := text(x)
			if !isText {
				throw("TypeError", "%s first arg must be str or a tuple of str, not %s", name, typeName(x))
			}
			if ok && has(s, p) {
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
		i := strings.Index(s, sep)
		parts := []string{s, "", ""}
		if last {
			i = strings.LastIndex(s, sep)
			parts = []string{"", "", s}
		}
		if i >= 0 {
			parts = []string{s[:i], sep, s[i+len(sep):]}
		}
		return &Tuple{Items: r.strList(self, parts).(*List).Items}
	}
}

// just is ljust, rjust and center.
func just(name string, left, right bool) method {
	return func(r *run, self Value, a *args) Value {
		v := a.bind(name, 1, "width", "fillchar")
		fill := " "
		if v[1] != missing {
			fill = wantStr(name, v[1])
			if utf8.RuneCountInString(fill) != 1 {
				throw("TypeError", "The fill character must be exactly one character long")
			}
		}
		return like(r, self, r.pad(str(self), wantInt(v[0]), fill, left, right))
	}
}

// pad fills s to a width on the left, the right or both sides.
func (r *run) pad(s string, width int, fill string, left, right bool) string {
	n := width - utf8.RuneCountInString(s)
	if n <= 0 {
		return s
	}
	if n > maxOutput {
		r.checkSize(maxOutput + 1)
	}
	r.charge(len(s) + n*len(fill))
	before := 0
	switch {
	case left && right:
		before = n/2 + n&width&1
	case left:
		before = n
	}
	return strings.Repeat(fill, before) + s + strings.Repeat(fill, n-before)
}

func (r *run) replace(s, old, to string, n int) string {
	count := strings.Count(s, old)
	if n >= 0 {
		count = min(count, n)
	}
	// The result may be far longer than its parts.
	if grow := len(to) - len(old); grow > 0 && count > maxOutput/grow {
		r.checkSize(maxOutput + 1)
	}
	r.charge(len(s) + count*max(0, len(to)-len(old)))
	return strings.Replace(s, old, to, count)
}

// join is str.join.
func (r *run) join(sep string, items []string) string {
	n := 0
	for _, s := range items {
		n += len(s) + len(sep)
		r.checkSize(n - len(sep))
	}
	r.charge(max(0, n-len(sep)))
	return strings.Join(items, sep)
}

var strMethods map[string]method

func init() {
	strMethods = map[string]method{
		"strip":      strip(true, true),
		"lstrip":     strip(true, false),
		"rstrip":     strip(false, true),
		"upper":      simple("upper", upper),
		"lower":      simple("lower", lower),
		"casefold":   simple("casefold", func(s string) string { return cases.Fold().String(s) }),
		"capitalize": simple("capitalize", capitalize),
		"title":      simple("title", pyTitle),
		"swapcase":   simple("swapcase", swapCase),
		"split":      split("split", false),
		"rsplit":     split("rsplit", true),
		"find":       find("find", false, false),
		"rfind":      find("rfind", true, false),
		"index":      find("index", false, true),
		"rindex":     find("rindex", true, true),
		"startswith": affix("startswith", strings.HasPrefix),
		"endswith":   affix("endswith", strings.HasSuffix),
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
		"isascii": func(_ *run, self Value, a *args) Value {
			a.bind("isascii", 0)
			return isASCII(str(self))
		},
		"isprintable": func(_ *run, self Value, a *args) Value {
			a.bind("isprintable", 0)
			return strings.IndexFunc(str(self), func(c rune) bool { return !unicode.IsPrint(c) }) < 0
		},
		"isidentifier": func(_ *run, self Value, a *args) Value {
			a.bind("isidentifier", 0)
			for i, c := range str(self) {
				if c != '_' && !unicode.IsLetter(c) && (i == 0 || !unicode.IsDigit(c) && !unicode.Is(unicode.Mn, c) && !unicode.Is(unicode.Mc, c)) {
					return false
				}
			}
			return str(self) != ""
		},
		"isupper": func(_ *run, self Value, a *args) Value { a.bind("isupper", 0); return isCase(str(self), true) },
		"islower": func(_ *run, self Value, a *args) Value { a.bind("islower", 0); return isCase(str(self), false) },
		"istitle": func(_ *run, self Value, a *args) Value { a.bind("istitle", 0); return isTitle(str(self)) },
		"count": func(_ *run, self Value, a *args) Value {
			v := a.bind("count", 1, "sub", "start", "end")
			s, _, ok := window(str(self), v[1], v[2])
			if sub := wantStr("count", v[0]); ok {
				return int64(strings.Count(s, sub))
			}
			return int64(0)
		},
		"replace": func(r *run, self Value, a *args) Value {
			v := a.bind("replace", 2, "old", "new", "count")
			n := -1
			if v[2] != missing {
				n = wantInt(v[2])
			}
			return like(r, self, r.replace(str(self), wantStr("replace", v[0]), wantStr("replace", v[1]), n))
		},
		"removeprefix": func(r *run, self Value, a *args) Value {
			v := a.bind("removeprefix", 1, "prefix")
			return like(r, self, strings.TrimPrefix(str(self), wantStr("removeprefix", v[0])))
		},
		"removesuffix": func(r *run, self Value, a *args) Value {
			v := a.bind("removesuffix", 1, "suffix")
			return like(r, self, strings.TrimSuffix(str(self), wantStr("removesuffix", v[0])))
		},
		"splitlines": func(r *run, self Value, a *args) Value {
			v := a.bind("splitlines", 0, "keepends")
			return r.strList(self, splitLines(str(self), v[0] != missing && wantInt(v[0]) != 0))
		},
		"zfill": func(r *run, self Value, a *args) Value {
			v := a.bind("zfill", 1, "width")
			s, sign := str(self), ""
			if strings.HasPrefix(s, "+") || strings.HasPrefix(s, "-") {
				sign, s = s[:1], s[1:]
			}
			return like(r, self, sign+r.pad(s, wantInt(v[0])-len(sign), "0", true, false))
		},
		"expandtabs": func(r *run, self Value, a *args) Value {
			v := a.bind("expandtabs", 0, "tabsize")
			size := 8
			if v[0] != missing {
				size = wantInt(v[0])
			}
			var b strings.Builder
			col := 0
			for _, c := range str(self) {
				switch c {
				case '\t':
					if size > 0 {
						n := size - col%size
						col += n
						if n > maxOutput || b.Len()+n > maxOutput {
							r.checkSize(maxOutput + 1)
						}
						b.WriteString(strings.Repeat(" ", n))
					}
					continue
				case '\n', '\r':
					col = -1
				}
				col++
				b.WriteRune(c)
			}
			return like(r, self, b.String())
		},
		"join": func(r *run, self Value, a *args) Value {
			v := a.bind("join", 1, "iterable")
			values := r.collectAs(v[0], func() { throw("TypeError", "can only join an iterable") })
			items := make([]string, len(values))
			for i, x := range values {
				s, ok := text(x)
				if !ok {
					throw("TypeError", "sequence item %d: expected str instance, %s found", i, typeName(x))
				}
				if _, marked := self.(Markup); marked {
					if _, marked := x.(Markup); !marked {
						s = escape(s)
					}
				}
				items[i] = s
			}
			return like(r, self, r.join(str(self), items))
		},
		"format": func(r *run, self Value, a *args) Value {
			return like(r, self, r.format(str(self), a))
		},
		"format_map": func(r *run, self Value, a *args) Value {
			v := a.bind("format_map", 1, "mapping")
			d, ok := v[0].(*Dict)
			if !ok {
				throw("TypeError", "format_map() wants a mapping, not %s", typeName(v[0]))
			}
			b := &args{}
			for k, x := range d.All() {
				if name, ok := text(k); ok {
					b.names = append(b.names, name)
					b.kw = append(b.kw, x)
				}
			}
			return like(r, self, r.format(str(self), b))
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
	"keys":   view("keys"),
	"values": view("values"),
	"items":  view("items"),
	"get": func(_ *run, self Value, a *args) Value {
		v := a.bind("get", 1, "key", "default")
		if x, ok := self.(*Dict).Get(v[0]); ok {
			return x
		}
		if v[1] == missing {
			return nil
		}
		return v[1]
	},
	"copy": func(r *run, self Value, a *args) Value {
		a.bind("copy", 0)
		d := self.(*Dict)
		r.chargeItems(4 * d.Len())
		return d.Clone()
	},
	"fromkeys": func(r *run, _ Value, a *args) Value {
		v := a.bind("fromkeys", 1, "iterable", "value")
		d := NewDict()
		if v[1] == missing {
			v[1] = nil
		}
		for _, k := range r.collect(v[0]) {
			d.Set(k, v[1])
		}
		r.chargeItems(4 * d.Len())
		return d
	},
}

func view(name string) method {
	return func(_ *run, self Value, a *args) Value {
		a.bind(name, 0)
		return &View{self.(*Dict), "dict_" + name}
	}
}

var listMethods = map[string]method{
	"count": func(r *run, self Value, a *args) Value {
		v := a.bind("count", 1, "value")
		n := int64(0)
		for _, x := range r.collect(self) {
			if x == v[0] || r.equal(x, v[0]) {
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
			if items[i] == v[0] || r.equal(items[i], v[0]) {
				return int64(i)
			}
		}
		throw("ValueError", "%s is not in list", r.repr(v[0], 0))
		return nil
	},
	"copy": func(r *run, self Value, a *args) Value {
		a.bind("copy", 0)
		return r.list(slices.Clone(r.collect(self)))
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
		return int64(b.BitLen())
	},
}
