package jinja

import (
	"fmt"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

type filterFunc = func(r *run, x Value, a *args) Value

var filters map[string]filterFunc

// unsupported lists the filters of jinja2 that write HTML, lay out text or choose at
// random.
var unsupported = []string{"pprint", "random", "striptags", "urlize", "wordwrap", "xmlattr"}

func init() {
	filters = map[string]filterFunc{
		"abs":            absFilter,
		"attr":           attrFilter,
		"batch":          batchFilter,
		"capitalize":     textFilter("capitalize", capitalize),
		"center":         centerFilter,
		"count":          lengthFilter,
		"d":              defaultFilter,
		"default":        defaultFilter,
		"dictsort":       dictsortFilter,
		"e":              escapeFilter,
		"escape":         escapeFilter,
		"filesizeformat": fileSizeFilter,
		"first":          firstFilter,
		"float":          floatFilter,
		"forceescape": func(r *run, x Value, a *args) Value {
			a.bind("forceescape", 0)
			return Markup(r.str(escape(r.toStr(x))))
		},
		"format":     formatFilter,
		"groupby":    groupbyFilter,
		"indent":     indentFilter,
		"int":        intFilter,
		"items":      itemsFilter,
		"join":       joinFilter,
		"last":       lastFilter,
		"length":     lengthFilter,
		"list":       listFilter,
		"lower":      textFilter("lower", lower),
		"map":        mapFilter,
		"max":        extremeFilter(">"),
		"min":        extremeFilter("<"),
		"reject":     selectFilter(false, false),
		"rejectattr": selectFilter(false, true),
		"replace":    replaceFilter,
		"reverse":    reverseFilter,
		"round":      roundFilter,
		"safe": func(r *run, x Value, a *args) Value {
			a.bind("safe", 0)
			return Markup(r.toStr(x))
		},
		"select":     selectFilter(true, false),
		"selectattr": selectFilter(true, true),
		"slice":      sliceFilter,
		"sort":       sortFilter,
		"string": func(r *run, x Value, a *args) Value {
			a.bind("string", 0)
			if _, ok := text(x); ok {
				return x
			}
			return r.str(r.toStr(x))
		},
		"sum":       sumFilter,
		"title":     textFilter("title", titleWords),
		"tojson":    tojsonFilter,
		"trim":      trimFilter,
		"truncate":  truncateFilter,
		"unique":    uniqueFilter,
		"upper":     textFilter("upper", upper),
		"urlencode": urlencodeFilter,
		"wordcount": func(r *run, x Value, a *args) Value {
			a.bind("wordcount", 0)
			word := func(c rune) bool { return c != '_' && !unicode.IsLetter(c) && !unicode.IsNumber(c) }
			return int64(len(strings.FieldsFunc(r.toStr(x), word)))
		},
	}
	for _, name := range unsupported {
		filters[name] = func(*run, Value, *args) Value {
			throw("TemplateRuntimeError", "the filter %s is not supported", quote(name))
			return nil
		}
	}
}

// soft is jinja2's soft_str: x itself if it is a str.
func (r *run) soft(x Value) Value {
	if _, ok := text(x); ok {
		return x
	}
	return r.toStr(x)
}

// textFilter is a filter of one text without arguments.
func textFilter(name string, f func(string) string) filterFunc {
	return func(r *run, x Value, a *args) Value {
		a.bind(name, 0)
		s := r.soft(x)
		return like(r, s, f(str(s)))
	}
}

func absFilter(_ *run, x Value, a *args) Value {
	a.bind("abs", 0)
	switch v := x.(type) {
	case float64:
		return math.Abs(v)
	case bool, int64, *big.Int:
		b, _ := toBig(v)
		return normInt(new(big.Int).Abs(b))
	case *Undefined:
		throw("TypeError", "bad operand type for abs(): 'Undefined'")
	}
	throw("TypeError", "bad operand type for abs(): %s", quote(typeName(x)))
	return nil
}

func attrFilter(r *run, x Value, a *args) Value {
	v := a.bind("attr", 1, "name")
	name, ok := text(v[0])
	if !ok {
		throw("TypeError", "attribute name must be string, not %s", quote(typeName(v[0])))
	}
	if u, ok := x.(*Undefined); ok {
		u.use()
	}
	if y, ok := attribute(x, name); ok {
		return y
	}
	return undefined(x, name)
}

func batchFilter(r *run, x Value, a *args) Value {
	v := a.bind("batch", 1, "linecount", "fill_with")
	n := wantInt(v[0])
	it := r.iterate(x)
	var ahead Value
	have, done := false, false
	return &Iter{"generator", func() (Value, bool) {
		if done {
			return nil, false
		}
		r.nest()
		defer func() { r.depth-- }()
		var row []Value
		if have {
			row, have = append(row, ahead), false
		}
		for {
			y, ok := it.next()
			if !ok {
				done = true
				break
			}
			r.step()
			if len(row) == n {
				if len(row) == 0 && n == 0 {
					// Python yields an empty row first, then fills a single one.
					n = -1
					ahead, have = y, true
					return &List{}, true
				}
				ahead, have = y, true
				break
			}
			row = append(row, y)
		}
		if len(row) == 0 {
			return nil, false
		}
		if done && v[1] != missing && v[1] != nil && len(row) < n {
			r.chargeItems(n)
			for len(row) < n {
				row = append(row, v[1])
			}
		}
		return r.list(row), true
	}}
}

func centerFilter(r *run, x Value, a *args) Value {
	v := a.bind("center", 0, "width")
	width := 80
	if v[0] != missing {
		width = wantInt(v[0])
	}
	s := r.soft(x)
	return like(r, s, r.pad(str(s), width, " ", true, true))
}

func lengthFilter(_ *run, x Value, a *args) Value {
	a.bind("len", 0)
	n, ok := length(x)
	if !ok {
		throw("TypeError", "object of type %s has no len()", quote(typeName(x)))
	}
	return n
}

func defaultFilter(_ *run, x Value, a *args) Value {
	v := a.bind("default", 0, "default_value", "boolean")
	_, undef := x.(*Undefined)
	if undef || v[1] != missing && truth(v[1]) && !truth(x) {
		if v[0] == missing {
			return ""
		}
		return v[0]
	}
	return x
}

// ignoreCase lowers texts for comparisons that ignore case.
func ignoreCase(caseSensitive Value) func(Value) Value {
	if caseSensitive != missing && truth(caseSensitive) {
		return func(v Value) Value { return v }
	}
	return func(v Value) Value {
		if s, ok := text(v); ok {
			return lower(s)
		}
		return v
	}
}

// attrGetter follows a path such as "a.b.0".
func (r *run) attrGetter(attribute, def Value) func(Value) Value {
	var parts []Value
	switch s, ok := text(attribute); {
	case attribute == nil || attribute == missing:
	case ok:
		for _, p := range strings.Split(s, ".") {
			if p != "" && strings.IndexFunc(p, func(c rune) bool { return !isPyDigit(c) }) < 0 {
				n, ok := parseInt(p, 10)
				if !ok {
					throw("ValueError", "invalid literal for int() with base 10: %s", quote(p))
				}
				parts = append(parts, n)
			} else {
				parts = append(parts, p)
			}
		}
	default:
		parts = []Value{attribute}
	}
	return func(v Value) Value {
		for _, p := range parts {
			v = r.getitem(v, p)
			if _, undef := v.(*Undefined); undef && def != nil && def != missing {
				v = def
			}
		}
		return v
	}
}

// sortBy returns items in the order of keys.
func (r *run) sortBy(items, keys []Value, reverse bool) []Value {
	out := make([]Value, len(items))
	r.chargeItems(2 * len(items))
	less := func(i, j int) bool { return r.less(keys[i], keys[j]) }
	if reverse {
		less = func(i, j int) bool { return r.less(keys[j], keys[i]) }
	}
	r.sortStable(len(items), less, func(order []int) {
		for i, o := range order {
			out[i] = items[o]
		}
	})
	return out
}

func dictsortFilter(r *run, x Value, a *args) Value {
	v := a.bind("dictsort", 0, "case_sensitive", "by", "reverse")
	pos := 0
	if v[1] != missing {
		switch by, _ := text(v[1]); by {
		case "key":
		case "value":
			pos = 1
		default:
			throw("FilterArgumentError", `You can only sort by either "key" or "value"`)
		}
	}
	d, ok := x.(*Dict)
	if !ok {
		if u, ok := x.(*Undefined); ok {
			u.use()
		}
		throw("AttributeError", "%s object has no attribute 'items'", quote(typeName(x)))
	}
	fold := ignoreCase(v[0])
	items := r.drain((&View{d, "dict_items"}).iter())
	keys := make([]Value, len(items))
	for i, it := range items {
		keys[i] = fold(it.(*Tuple).Items[pos])
	}
	return &List{r.sortBy(items, keys, v[2] != missing && truth(v[2]))}
}

func escapeFilter(r *run, x Value, a *args) Value {
	a.bind("escape", 0)
	if m, ok := x.(Markup); ok {
		return m
	}
	return Markup(r.str(escape(r.toStr(x))))
}

func fileSizeFilter(r *run, x Value, a *args) Value {
	v := a.bind("filesizeformat", 0, "binary")
	f, ok := r.parseFloat(x)
	if _, isText := text(x); !ok && !isText {
		throw("TypeError", "float() argument must be a string or a real number, not %s", quote(typeName(x)))
	}
	if !ok {
		throw("ValueError", "could not convert string to float: %s", r.repr(x, 0))
	}
	base, letters := 1000.0, []string{"kB", "MB", "GB", "TB", "PB", "EB", "ZB", "YB"}
	if v[0] != missing && truth(v[0]) {
		base, letters = 1024, []string{"KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB", "YiB"}
	}
	switch {
	case f == 1:
		return "1 Byte"
	case f < base:
		return intString(floatToInt(f)) + " Bytes"
	}
	unit := base
	for i, l := range letters {
		unit *= base
		if f < unit || i == len(letters)-1 {
			return fmt.Sprintf("%.1f %s", base*f/unit, l)
		}
	}
	return nil
}

func firstFilter(r *run, x Value, a *args) Value {
	a.bind("first", 0)
	if v, ok := r.iterate(x).next(); ok {
		return v
	}
	return &Undefined{message: "No first item, sequence was empty."}
}

func lastFilter(r *run, x Value, a *args) Value {
	a.bind("last", 0)
	if _, ok := x.(*Iter); ok || maybeIter(x) == nil {
		throw("TypeError", "%s object is not reversible", quote(typeName(x)))
	}
	if n, ok := length(x); ok && n > 0 {
		if v, ok := r.item(x, n-1); ok && isIndexed(x) {
			return v
		}
	}
	items := r.collect(x)
	if len(items) == 0 {
		return &Undefined{message: "No last item, sequence was empty."}
	}
	return items[len(items)-1]
}

func isIndexed(v Value) bool {
	switch v.(type) {
	case string, Markup, *List, *Tuple, *Range:
		return true
	}
	return false
}

func floatFilter(r *run, x Value, a *args) Value {
	v := a.bind("float", 0, "default")
	if f, ok := r.parseFloat(x); ok {
		return f
	}
	if v[0] == missing {
		return 0.0
	}
	return v[0]
}

// parseFloat is Python's float().
func (r *run) parseFloat(x Value) (float64, bool) {
	if u, ok := x.(*Undefined); ok {
		u.use()
	}
	if s, ok := text(x); ok {
		return floatOf(s)
	}
	return toFloat(x)
}

func floatOf(s string) (float64, bool) {
	s = strings.TrimFunc(s, isSpace)
	for i := range len(s) {
		switch c := s[i]; {
		case c == 'x' || c == 'X' || c == 'p' || c == 'P':
			return 0, false
		case c == '_' && (i == 0 || i+1 == len(s) || !isDigit(s[i-1]) || !isDigit(s[i+1])):
			return 0, false
		}
	}
	f, err := strconv.ParseFloat(strings.ReplaceAll(s, "_", ""), 64)
	if err != nil && !math.IsInf(f, 0) {
		return 0, false
	}
	return f, true
}

// parseInt is Python's int() of a str.
func parseInt(s string, base int) (Value, bool) {
	s = strings.TrimFunc(s, isSpace)
	sign := ""
	if strings.HasPrefix(s, "-") || strings.HasPrefix(s, "+") {
		sign, s = s[:1], s[1:]
	}
	if base == 0 || base == 2 || base == 8 || base == 16 {
		if len(s) > 2 && s[0] == '0' {
			if b := map[byte]int{'b': 2, 'o': 8, 'x': 16}[s[1]|0x20]; b != 0 && (base == 0 || base == b) {
				base, s = b, strings.TrimPrefix(s[2:], "_")
			}
		}
		if base == 0 {
			base = 10
			if len(s) > 1 && s[0] == '0' && strings.Trim(s, "0_") != "" {
				return nil, false
			}
		}
	}
	if s == "" || strings.HasPrefix(s, "_") || strings.HasSuffix(s, "_") || strings.Contains(s, "__") {
		return nil, false
	}
	s = strings.Map(func(c rune) rune {
		switch {
		case c == '_':
			return -1
		case c >= utf8.RuneSelf && unicode.IsDigit(c):
			return '0' + digitValue(c)
		}
		return c
	}, s)
	if len(s) > maxDigits || s == "" || s[0] == '+' || s[0] == '-' {
		return nil, false
	}
	b, ok := new(big.Int).SetString(sign+s, base)
	if !ok {
		return nil, false
	}
	return normInt(b), true
}

// digitValue returns the value of a decimal digit of any script: they come in runs of
// ten that begin with zero.
func digitValue(c rune) rune {
	n := rune(0)
	for n < 9 && unicode.IsDigit(c-n-1) {
		n++
	}
	return n
}

func intFilter(r *run, x Value, a *args) Value {
	v := a.bind("int", 0, "default", "base")
	def := v[0]
	if def == missing {
		def = int64(0)
	}
	base := 10
	if _, isText := text(x); isText && v[1] != missing {
		if base = wantInt(v[1]); base != 0 && (base < 2 || base > 36) {
			base = -1
		}
	}
	switch y := x.(type) {
	case bool, int64, *big.Int:
		b, _ := toBig(y)
		return normInt(b)
	case float64:
		if math.IsInf(y, 0) {
			throw("OverflowError", "cannot convert float infinity to integer")
		}
	case *Undefined:
		y.use()
	case string, Markup:
		if base >= 0 {
			if n, ok := parseInt(str(y), base); ok {
				return n
			}
		}
	}
	f, ok := r.parseFloat(x)
	if !ok || math.IsNaN(f) || math.IsInf(f, 0) {
		return def
	}
	return floatToInt(f)
}

func formatFilter(r *run, x Value, a *args) Value {
	if len(a.pos) > 0 && len(a.kw) > 0 {
		throw("FilterArgumentError", "can't handle positional and keyword arguments at the same time")
	}
	s := r.soft(x)
	var with Value = &Tuple{Items: a.pos}
	if len(a.kw) > 0 {
		d := NewDict()
		for i, n := range a.names {
			d.Set(n, a.kw[i])
		}
		with = d
	}
	return like(r, s, r.printf(str(s), with))
}

func groupbyFilter(r *run, x Value, a *args) Value {
	v := a.bind("groupby", 1, "attribute", "default", "case_sensitive")
	get, fold := r.attrGetter(v[0], v[1]), ignoreCase(v[2])
	items := r.collect(x)
	keys := make([]Value, len(items))
	for i, it := range items {
		keys[i] = fold(get(it))
	}
	items = r.sortBy(items, keys, false)
	out := &List{}
	var last Value
	var group *List
	for _, it := range items {
		key := fold(get(it))
		if group == nil || !r.equal(last, key) {
			group = &List{}
			shown := get(it)
			out.Items = append(out.Items, &Tuple{Items: []Value{shown, group}, Names: []string{"grouper", "list"}})
			last = key
		}
		group.Items = append(group.Items, it)
	}
	return out
}

func indentFilter(r *run, x Value, a *args) Value {
	v := a.bind("indent", 0, "width", "first", "blank")
	indention := "    "
	if v[0] != missing {
		if s, ok := text(v[0]); ok {
			indention = s
		} else {
			indention = str(r.repeat(" ", v[0]))
		}
	}
	flag := func(v Value) bool { return v != missing && truth(v) }
	s := r.binary("+", x, "\n")
	if _, ok := text(s); !ok {
		throw("TypeError", "%s has no lines", quote(typeName(x)))
	}
	lines := splitLines(str(s), false)
	r.charge(len(str(s)) + len(lines)*min(len(indention), maxOutput/max(1, len(lines))+1))
	out := make([]string, 0, len(lines))
	for i, line := range lines {
		if flag(v[2]) && i > 0 || i > 0 && line != "" {
			line = indention + line
		}
		out = append(out, line)
	}
	rv := r.join("\n", out)
	if flag(v[1]) {
		rv = indention + rv
	}
	return like(r, s, rv)
}

func itemsFilter(_ *run, x Value, a *args) Value {
	a.bind("items", 0)
	switch d := x.(type) {
	case *Undefined:
		return sliceIter("generator", nil)
	case *Dict:
		it := (&View{d, "dict_items"}).iter()
		it.kind = "generator"
		return it
	}
	// Python's version is a generator: it raises the error when first read.
	return &Iter{"generator", func() (Value, bool) {
		throw("TypeError", "Can only get item pairs from a mapping.")
		return nil, false
	}}
}

func joinFilter(r *run, x Value, a *args) Value {
	v := a.bind("join", 0, "d", "attribute")
	sep := ""
	if v[0] != missing {
		sep = r.toStr(v[0])
	}
	get := func(v Value) Value { return v }
	if v[1] != missing && v[1] != nil {
		get = r.attrGetter(v[1], nil)
	}
	var parts []string
	it := r.iterate(x)
	size := 0
	for {
		y, ok := it.next()
		if !ok {
			break
		}
		r.step()
		s := r.toStr(get(y))
		size += len(s) + 16
		r.checkSize(size)
		parts = append(parts, s)
	}
	return r.join(sep, parts)
}

func listFilter(r *run, x Value, a *args) Value {
	a.bind("list", 0)
	return r.list(slices.Clone(r.collect(x)))
}

func (r *run) applyNamed(name, x Value, a *args) Value {
	s, _ := text(name)
	f := filters[s]
	if f == nil {
		throw("TemplateRuntimeError", "No filter named %s.", r.repr(name, 0))
	}
	return f(r, x, a)
}

// each returns a generator over an iterable, or over nothing if x is false, as jinja2's
// filters do: nothing happens until it is read.
func (r *run) each(x Value, prepare func() func(Value) (Value, bool)) *Iter {
	var it *Iter
	var f func(Value) (Value, bool)
	return &Iter{"generator", func() (Value, bool) {
		if it == nil {
			if !truth(x) {
				it = sliceIter("", nil)
			} else {
				f = prepare()
				it = r.iterate(x)
			}
		}
		// Generators may be nested as deeply as Python's calls.
		r.nest()
		defer func() { r.depth-- }()
		for {
			v, ok := it.next()
			if !ok {
				return nil, false
			}
			r.step()
			if y, keep := f(v); keep {
				return y, true
			}
		}
	}}
}

func mapFilter(r *run, x Value, a *args) Value {
	return r.each(x, func() func(Value) (Value, bool) {
		if attr, ok := a.take("attribute"); ok && len(a.pos) == 0 {
			def, _ := a.take("default")
			if len(a.names) > 0 {
				throw("FilterArgumentError", "Unexpected keyword argument %s", quote(a.names[0]))
			}
			get := r.attrGetter(attr, def)
			return func(v Value) (Value, bool) { return get(v), true }
		}
		if len(a.pos) == 0 {
			throw("FilterArgumentError", "map requires a filter argument")
		}
		name, rest := a.pos[0], &args{a.pos[1:], a.names, a.kw}
		return func(v Value) (Value, bool) {
			own := *rest
			return r.applyNamed(name, v, &own), true
		}
	})
}

func selectFilter(want, attr bool) filterFunc {
	return func(r *run, x Value, a *args) Value {
		return r.each(x, func() func(Value) (Value, bool) {
			pos := a.pos
			get := func(v Value) Value { return v }
			if attr {
				if len(pos) == 0 {
					throw("FilterArgumentError", "Missing parameter for attribute name")
				}
				get, pos = r.attrGetter(pos[0], nil), pos[1:]
			}
			check := truth
			if len(pos) > 0 {
				s, _ := text(pos[0])
				test := tests[s]
				rest := args{pos[1:], a.names, a.kw}
				check = func(v Value) bool {
					if test == nil {
						throw("TemplateRuntimeError", "No test named %s.", r.repr(pos[0], 0))
					}
					own := rest
					return test(r, v, &own)
				}
			}
			return func(v Value) (Value, bool) { return v, check(get(v)) == want }
		})
	}
}

// extremeFilter is min and max.
func extremeFilter(op string) filterFunc {
	return func(r *run, x Value, a *args) Value {
		v := a.bind("min", 0, "case_sensitive", "attribute")
		get, fold := r.attrGetter(v[1], nil), ignoreCase(v[0])
		var best, bestKey Value
		first := true
		for _, it := range r.collect(x) {
			key := fold(get(it))
			if first || r.order(op, key, bestKey) {
				best, bestKey, first = it, key, false
			}
		}
		if first {
			return &Undefined{message: "No aggregated item, sequence was empty."}
		}
		return best
	}
}

func replaceFilter(r *run, x Value, a *args) Value {
	v := a.bind("replace", 2, "old", "new", "count")
	n := -1
	if v[2] != missing && v[2] != nil {
		n = wantInt(v[2])
	}
	return r.replace(r.toStr(x), r.toStr(v[0]), r.toStr(v[1]), n)
}

func reverseFilter(r *run, x Value, a *args) Value {
	a.bind("reverse", 0)
	if s, ok := text(x); ok {
		runes := []rune(s)
		slices.Reverse(runes)
		return like(r, x, string(runes))
	}
	if maybeIter(x) == nil {
		throw("FilterArgumentError", "argument must be iterable")
	}
	items := slices.Clone(r.collect(x))
	slices.Reverse(items)
	kind := ""
	switch v := x.(type) {
	case *List:
		kind = "list_reverseiterator"
	case *Tuple, *Undefined:
		kind = "reversed"
	case *Range:
		kind = "range_iterator"
	case *Dict:
		kind = "dict_reversekeyiterator"
	case *View:
		kind = strings.TrimSuffix(strings.Replace(v.kind, "_", "_reverse", 1), "s") + "iterator"
	default:
		return r.list(items)
	}
	return sliceIter(kind, items)
}

func roundFilter(_ *run, x Value, a *args) Value {
	v := a.bind("round", 0, "precision", "method")
	digits, method := 0, "common"
	if v[0] != missing {
		digits = wantInt(v[0])
	}
	if v[1] != missing {
		method, _ = text(v[1])
	}
	switch method {
	case "common", "ceil", "floor":
	default:
		throw("FilterArgumentError", "method must be common, ceil or floor")
	}
	if !isNumber(x) {
		throw("TypeError", "type %s doesn't define __round__ method", typeName(x))
	}
	if method == "common" {
		return roundNumber(x, digits)
	}
	scale := floatArithmetic("**", 10, float64(digits)).(float64)
	f, _ := toFloat(x)
	f *= scale
	if math.IsInf(f, 0) || math.IsNaN(f) {
		throw("OverflowError", "cannot convert float infinity to integer")
	}
	if method == "ceil" {
		return math.Ceil(f) / scale
	}
	return math.Floor(f) / scale
}

// roundNumber is Python's round(): half to even, on the exact value.
func roundNumber(x Value, digits int) Value {
	if b, ok := toBig(x); ok {
		if digits >= 0 {
			return normInt(b)
		}
		if -digits > maxDigits {
			return int64(0)
		}
		unit := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(-digits)), nil)
		q, m := new(big.Int).DivMod(b, unit, new(big.Int))
		if c := new(big.Int).Lsh(m, 1).Cmp(unit); c > 0 || c == 0 && q.Bit(0) == 1 {
			q.Add(q, big.NewInt(1))
		}
		return normInt(q.Mul(q, unit))
	}
	f := x.(float64)
	switch {
	case math.IsNaN(f), math.IsInf(f, 0), digits > 400:
		return f
	case digits < -400:
		return math.Copysign(0, f)
	case digits >= 0:
		g, _ := strconv.ParseFloat(strconv.FormatFloat(f, 'f', digits, 64), 64)
		return g
	}
	// Tens and more: an integer decides, and a fraction breaks ties.
	unit := new(big.Float).SetInt(new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(-digits)), nil))
	q, _ := new(big.Float).SetPrec(2000).Quo(new(big.Float).SetPrec(2000).SetFloat64(f), unit).Float64()
	g, _ := new(big.Float).SetPrec(2000).Mul(new(big.Float).SetFloat64(math.RoundToEven(q)), unit).Float64()
	return g
}

func sliceFilter(r *run, x Value, a *args) Value {
	v := a.bind("slice", 1, "slices", "fill_with")
	items := r.collect(x)
	n := wantInt(v[0])
	if n == 0 {
		throw("ZeroDivisionError", "integer division or modulo by zero")
	}
	if n > maxItems {
		r.chargeItems(n)
	}
	i, offset := 0, 0
	return &Iter{"generator", func() (Value, bool) {
		if i >= n {
			return nil, false
		}
		r.step()
		per, extra := len(items)/n, len(items)%n
		start := offset + i*per
		if i < extra {
			offset++
		}
		end := offset + (i+1)*per
		row := slices.Clone(items[start:end])
		if v[1] != missing && v[1] != nil && i >= extra {
			row = append(row, v[1])
		}
		i++
		return r.list(row), true
	}}
}

func sortFilter(r *run, x Value, a *args) Value {
	v := a.bind("sort", 0, "reverse", "case_sensitive", "attribute")
	fold := ignoreCase(v[1])
	var gets []func(Value) Value
	if s, ok := text(v[2]); ok {
		for _, p := range strings.Split(s, ",") {
			gets = append(gets, r.attrGetter(p, nil))
		}
	} else {
		gets = append(gets, r.attrGetter(v[2], nil))
	}
	items := r.collect(x)
	keys := make([]Value, len(items))
	for i, it := range items {
		key := &List{}
		for _, get := range gets {
			key.Items = append(key.Items, fold(get(it)))
		}
		keys[i] = key
	}
	return &List{r.sortBy(items, keys, v[0] != missing && truth(v[0]))}
}

func sumFilter(r *run, x Value, a *args) Value {
	v := a.bind("sum", 0, "attribute", "start")
	get := r.attrGetter(v[0], nil)
	var sum Value = int64(0)
	if v[1] != missing {
		sum = v[1]
	}
	if _, ok := text(sum); ok {
		throw("TypeError", "sum() can't sum strings [use ''.join(seq) instead]")
	}
	it := r.iterate(x)
	for {
		y, ok := it.next()
		if !ok {
			return sum
		}
		r.step()
		sum = r.binary("+", sum, get(y))
	}
}

// titleWords is jinja2's title: the first letter of a word is upper case, the rest
// lower case.
func titleWords(s string) string {
	var b strings.Builder
	start := true
	for _, c := range s {
		switch {
		case isSpace(c) || strings.ContainsRune("-({[<", c):
			b.WriteRune(c)
			start = true
			continue
		case start:
			b.WriteString(upper(string(c)))
		default:
			b.WriteString(lower(string(c)))
		}
		start = false
	}
	return b.String()
}

func tojsonFilter(r *run, x Value, a *args) Value {
	v := a.bind("tojson", 0, "ensure_ascii", "indent", "separators", "sort_keys")
	s := &jsonStyle{comma: ", ", sep: ": "}
	s.ascii = v[0] != missing && truth(v[0])
	s.sortKeys = v[3] != missing && truth(v[3])
	if v[1] != missing && v[1] != nil {
		s.multiline, s.comma = true, ","
		if t, ok := text(v[1]); ok {
			s.indent = t
		} else {
			s.indent = str(r.repeat(" ", int64(wantInt(v[1]))))
		}
	}
	if v[2] != missing && v[2] != nil {
		seps := r.collect(v[2])
		if len(seps) != 2 {
			throw("ValueError", "separators: want two texts")
		}
		s.comma, s.sep = wantStr("separators", seps[0]), wantStr("separators", seps[1])
	}
	return r.str(string(r.toJSON(nil, x, s, 0)))
}

func trimFilter(r *run, x Value, a *args) Value {
	v := a.bind("trim", 0, "chars")
	return strMethods["strip"](r, r.soft(x), &args{pos: v})
}

func truncateFilter(r *run, x Value, a *args) Value {
	v := a.bind("truncate", 0, "length", "killwords", "end", "leeway")
	size, end, leeway := 255, "...", 5
	if v[0] != missing {
		size = wantInt(v[0])
	}
	if v[2] != missing {
		end = wantStr("truncate", v[2])
	}
	if v[3] != missing && v[3] != nil {
		leeway = wantInt(v[3])
	}
	endLen := utf8.RuneCountInString(end)
	if size < endLen {
		throw("AssertionError", "expected length >= %d, got %d", endLen, size)
	}
	if leeway < 0 {
		throw("AssertionError", "expected leeway >= 0, got %d", leeway)
	}
	n, ok := length(x)
	if !ok {
		throw("TypeError", "object of type %s has no len()", quote(typeName(x)))
	}
	if n <= int64(size)+int64(leeway) {
		return x
	}
	s, ok := text(x)
	if !ok {
		throw("TypeError", "%s can not be truncated", quote(typeName(x)))
	}
	s = runeSlice(s, 0, size-endLen)
	if v[1] == missing || !truth(v[1]) {
		if i := strings.LastIndexByte(s, ' '); i >= 0 {
			s = s[:i]
		}
	}
	return like(r, x, s+end)
}

func uniqueFilter(r *run, x Value, a *args) Value {
	v := a.bind("unique", 0, "case_sensitive", "attribute")
	get, fold := r.attrGetter(v[1], nil), ignoreCase(v[0])
	var seen *Dict
	var it *Iter
	return &Iter{"generator", func() (Value, bool) {
		if it == nil {
			it, seen = r.iterate(x), NewDict()
		}
		r.nest()
		defer func() { r.depth-- }()
		for {
			y, ok := it.next()
			if !ok {
				return nil, false
			}
			r.step()
			key := fold(get(y))
			if _, ok := seen.Get(key); !ok {
				r.charge(64)
				seen.Set(key, nil)
				return y, true
			}
		}
	}}
}

// quoteURL is urllib's quote.
func quoteURL(s string, query bool) string {
	var b strings.Builder
	for i := range len(s) {
		c := s[i]
		switch {
		case c < utf8.RuneSelf && (isDigit(c) || c|0x20 >= 'a' && c|0x20 <= 'z' || strings.IndexByte("_.-~", c) >= 0), c == '/' && !query:
			b.WriteByte(c)
		case c == ' ' && query:
			b.WriteByte('+')
		default:
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

func urlencodeFilter(r *run, x Value, a *args) Value {
	a.bind("urlencode", 0)
	if _, ok := text(x); ok || maybeIter(x) == nil {
		return r.str(quoteURL(r.toStr(x), false))
	}
	if d, ok := x.(*Dict); ok {
		x = &View{d, "dict_items"}
	}
	var parts []string
	for _, it := range r.collect(x) {
		kv := r.collect(it)
		if len(kv) != 2 {
			throw("ValueError", "not enough values to unpack (expected 2, got %d)", len(kv))
		}
		parts = append(parts, quoteURL(r.toStr(kv[0]), true)+"="+quoteURL(r.toStr(kv[1]), true))
	}
	return r.join("&", parts)
}
