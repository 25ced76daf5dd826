package jinja

import (
	"math"
	"math/big"
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
		"capitalize":     textFilter("capitalize", (*run).capitalize),
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
			return Markup(r.escape(r.toStr(x)))
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
		"lower":      textFilter("lower", (*run).lower),
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
			return r.toStr(x)
		},
		"sum":       sumFilter,
		"title":     textFilter("title", (*run).titleWords),
		"tojson":    tojsonFilter,
		"trim":      trimFilter,
		"truncate":  truncateFilter,
		"unique":    uniqueFilter,
		"upper":     textFilter("upper", (*run).upper),
		"urlencode": urlencodeFilter,
		"wordcount": func(r *run, x Value, a *args) Value {
			a.bind("wordcount", 0)
			n, in := int64(0), false
			for _, c := range r.chars(r.toStr(x)) {
				word := c == '_' || unicode.IsLetter(c) || unicode.IsNumber(c)
				if word && !in {
					n++
				}
				in = word
			}
			return n
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
func textFilter(name string, f func(*run, string) string) filterFunc {
	return func(r *run, x Value, a *args) Value {
		a.bind(name, 0)
		s := r.soft(x)
		return like(s, f(r, str(s)))
	}
}

func absFilter(r *run, x Value, a *args) Value {
	a.bind("abs", 0)
	switch v := x.(type) {
	case float64:
		return math.Abs(v)
	case bool, int64, *big.Int:
		if r.order("<", v, int64(0)) {
			return r.unary("-", v)
		}
		return r.unary("+", v)
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
		r.use(u)
	}
	if y, ok := r.attribute(x, name); ok {
		return y
	}
	return r.undefined(x, name)
}

func batchFilter(r *run, x Value, a *args) Value {
	v := a.bind("batch", 1, "linecount", "fill_with")
	n := wantInt(v[0])
	it := r.iterate(x)
	var ahead Value
	have, done := false, false
	return r.iter("generator", func() (Value, bool) {
		if done {
			return nil, false
		}
		r.nest()
		defer func() { r.depth-- }()
		row := vec{r: r}
		if have {
			row.add(ahead)
			have = false
		}
		for {
			y, ok := it.next()
			if !ok {
				done = true
				break
			}
			r.step()
			if len(row.items) == n {
				if len(row.items) == 0 && n == 0 {
					// Python yields an empty row first, then fills a single one.
					n = -1
					ahead, have = y, true
					return &List{}, true
				}
				ahead, have = y, true
				break
			}
			row.add(y)
		}
		if len(row.items) == 0 {
			return nil, false
		}
		if done && v[1] != missing && v[1] != nil && len(row.items) < n {
			checkItems(n)
			for len(row.items) < n {
				r.step()
				row.add(v[1])
			}
		}
		return &List{row.items}, true
	})
}

func centerFilter(r *run, x Value, a *args) Value {
	v := a.bind("center", 0, "width")
	width := 80
	if v[0] != missing {
		width = wantInt(v[0])
	}
	s := r.soft(x)
	return like(s, r.pad(str(s), width, " ", true, true))
}

func lengthFilter(r *run, x Value, a *args) Value {
	a.bind("len", 0)
	n, ok := r.length(x)
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
func (r *run) ignoreCase(caseSensitive Value) func(Value) Value {
	if caseSensitive != missing && truth(caseSensitive) {
		return func(v Value) Value { return v }
	}
	return func(v Value) Value {
		if s, ok := text(v); ok {
			return r.lower(s)
		}
		return v
	}
}

// attrGetter follows a path such as "a.b.0".
func (r *run) attrGetter(attribute, def Value) func(Value) Value {
	parts := vec{r: r}
	switch s, ok := text(attribute); {
	case attribute == nil || attribute == missing:
	case ok:
		for p := range r.parts(s, ".") {
			if p != "" && r.all(p, isPyDigit) {
				n, ok := r.parseInt(p, 10)
				if !ok {
					throw("ValueError", "invalid literal for int() with base 10: %s", quote(p))
				}
				parts.add(n)
			} else {
				parts.add(p)
			}
		}
	default:
		parts.add(attribute)
	}
	return func(v Value) Value {
		for _, p := range parts.items {
			r.step()
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
	less := func(i, j int) bool { return r.less(keys[i], keys[j]) }
	if reverse {
		less = func(i, j int) bool { return r.less(keys[j], keys[i]) }
	}
	out := r.slots(len(items))
	for i, o := range r.sortStable(len(items), less) {
		r.work(1)
		out[i] = items[o]
	}
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
			r.use(u)
		}
		throw("AttributeError", "%s object has no attribute 'items'", quote(typeName(x)))
	}
	fold := r.ignoreCase(v[0])
	items := r.drain(r.view(&View{d, "dict_items"}))
	keys := r.slots(len(items))
	for i, it := range items {
		r.step()
		keys[i] = fold(it.(*Tuple).Items[pos])
	}
	return &List{r.sortBy(items, keys, v[2] != missing && truth(v[2]))}
}

func escapeFilter(r *run, x Value, a *args) Value {
	a.bind("escape", 0)
	if m, ok := x.(Markup); ok {
		return m
	}
	return Markup(r.escape(r.toStr(x)))
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
		if math.IsInf(f, 0) {
			infinite()
		}
		return r.joinTexts(r.intString(floatToInt(f)), " Bytes")
	}
	unit := base
	for i, l := range letters {
		unit *= base
		if f < unit || i == len(letters)-1 {
			return r.joinTexts(r.floatText(base*f/unit, 'f', 1, false), " ", l)
		}
	}
	return nil
}

func firstFilter(r *run, x Value, a *args) Value {
	a.bind("first", 0)
	if v, ok := r.iterate(x).next(); ok {
		return v
	}
	return r.undef(Undefined{message: "No first item, sequence was empty."})
}

func lastFilter(r *run, x Value, a *args) Value {
	a.bind("last", 0)
	if _, ok := x.(*Iter); ok || !iterable(x) {
		throw("TypeError", "%s object is not reversible", quote(typeName(x)))
	}
	if n, ok := r.length(x); ok && n > 0 {
		if v, ok := r.item(x, n-1); ok && isIndexed(x) {
			return v
		}
	}
	items := r.collect(x)
	if len(items) == 0 {
		return r.undef(Undefined{message: "No last item, sequence was empty."})
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
		return r.unary("+", y)
	case float64:
		if math.IsInf(y, 0) {
			infinite()
		}
	case *Undefined:
		r.use(y)
	case string, Markup:
		if base >= 0 {
			if n, ok := r.parseInt(str(y), base); ok {
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
			r.step()
			r.put(d, n, a.kw[i])
		}
		with = d
	}
	return like(s, r.printf(str(s), with))
}

func groupbyFilter(r *run, x Value, a *args) Value {
	v := a.bind("groupby", 1, "attribute", "default", "case_sensitive")
	get, fold := r.attrGetter(v[0], v[1]), r.ignoreCase(v[2])
	items := r.collect(x)
	keys := r.slots(len(items))
	for i, it := range items {
		r.step()
		keys[i] = fold(get(it))
	}
	items = r.sortBy(items, keys, false)
	out := vec{r: r}
	var last Value
	group := vec{r: r}
	var list *List
	for _, it := range items {
		r.step()
		key := fold(get(it))
		if list == nil || !r.equal(last, key) {
			list, group = &List{}, vec{r: r}
			pair := r.tuple(get(it), list)
			pair.Names = groupNames
			out.add(pair)
			last = key
		}
		group.add(it)
		list.Items = group.items
	}
	return &List{out.items}
}

// groupNames are the fields of what groupby yields.
var groupNames = []string{"grouper", "list"}

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
	b := buf{r: r}
	if flag(v[1]) {
		b.str(indention)
	}
	first := true
	for line := range r.lines(str(s), false) {
		if !first {
			b.byte('\n')
			if flag(v[2]) || line != "" {
				b.str(indention)
			}
		}
		first = false
		b.str(line)
	}
	return like(s, b.text())
}

func itemsFilter(r *run, x Value, a *args) Value {
	a.bind("items", 0)
	switch d := x.(type) {
	case *Undefined:
		return r.each("generator", nil)
	case *Dict:
		it := r.view(&View{d, "dict_items"})
		it.kind = "generator"
		return it
	}
	// Python's version is a generator: it raises the error when first read.
	return r.iter("generator", func() (Value, bool) {
		throw("TypeError", "Can only get item pairs from a mapping.")
		return nil, false
	})
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
	b := buf{r: r}
	it := r.iterate(x)
	for first := true; ; first = false {
		y, ok := it.next()
		if !ok {
			return b.text()
		}
		r.step()
		if !first {
			b.str(sep)
		}
		b.str(r.toStr(get(y)))
	}
}

func listFilter(r *run, x Value, a *args) Value {
	a.bind("list", 0)
	return &List{r.joined(r.collect(x))}
}

func (r *run) applyNamed(name, x Value, a *args) Value {
	s, _ := text(name)
	f := filters[s]
	if f == nil {
		throw("TemplateRuntimeError", "No filter named %s.", r.repr(name, 0))
	}
	return f(r, x, a)
}

// generate returns a generator over an iterable, or over nothing if x is false, as jinja2's
// filters do: nothing happens until it is read.
func (r *run) generate(x Value, prepare func() func(Value) (Value, bool)) *Iter {
	var it *Iter
	var f func(Value) (Value, bool)
	return r.iter("generator", func() (Value, bool) {
		if it == nil {
			if !truth(x) {
				it = r.each("", nil)
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
	})
}

func mapFilter(r *run, x Value, a *args) Value {
	return r.generate(x, func() func(Value) (Value, bool) {
		if attr, ok := r.take(a, "attribute"); ok && len(a.pos) == 0 {
			def, _ := r.take(a, "default")
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
			r.charge(argsBytes)
			return r.applyNamed(name, v, &own), true
		}
	})
}

func selectFilter(want, attr bool) filterFunc {
	return func(r *run, x Value, a *args) Value {
		return r.generate(x, func() func(Value) (Value, bool) {
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
					r.charge(argsBytes)
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
		get, fold := r.attrGetter(v[1], nil), r.ignoreCase(v[0])
		var best, bestKey Value
		first := true
		for _, it := range r.collect(x) {
			r.step()
			key := fold(get(it))
			if first || r.order(op, key, bestKey) {
				best, bestKey, first = it, key, false
			}
		}
		if first {
			return r.undef(Undefined{message: "No aggregated item, sequence was empty."})
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
		n := int64(r.runes(s))
		return like(x, r.everyNth(s, n, n-1, -1, n))
	}
	if !iterable(x) {
		throw("FilterArgumentError", "argument must be iterable")
	}
	from := r.collect(x)
	items := r.slots(len(from))
	for i, v := range from {
		r.work(1)
		items[len(from)-1-i] = v
	}
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
		kind = reversed[v.kind]
	default:
		return &List{items}
	}
	return r.each(kind, items)
}

// reversed names the iterators that go over a view from its end.
var reversed = map[string]string{
	"dict_keys":   "dict_reversekeyiterator",
	"dict_values": "dict_reversevalueiterator",
	"dict_items":  "dict_reverseitemiterator",
}

func roundFilter(r *run, x Value, a *args) Value {
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
		return r.roundNumber(x, digits)
	}
	scale := floatArithmetic("**", 10, float64(digits)).(float64)
	f, _ := r.toFloat(x)
	f *= scale
	if math.IsInf(f, 0) || math.IsNaN(f) {
		infinite()
	}
	if method == "ceil" {
		return math.Ceil(f) / scale
	}
	return math.Floor(f) / scale
}

func sliceFilter(r *run, x Value, a *args) Value {
	v := a.bind("slice", 1, "slices", "fill_with")
	items := r.collect(x)
	n := wantInt(v[0])
	if n == 0 {
		throw("ZeroDivisionError", "integer division or modulo by zero")
	}
	checkItems(max(n, 0))
	i, offset := 0, 0
	return r.iter("generator", func() (Value, bool) {
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
		row := items[start:end]
		var fill []Value
		if v[1] != missing && v[1] != nil && i >= extra {
			fill = v[1:]
		}
		i++
		return &List{r.joined(row, fill)}, true
	})
}

func sortFilter(r *run, x Value, a *args) Value {
	v := a.bind("sort", 0, "reverse", "case_sensitive", "attribute")
	fold := r.ignoreCase(v[1])
	var gets getters
	if s, ok := text(v[2]); ok {
		for p := range r.parts(s, ",") {
			r.addGetter(&gets, r.attrGetter(p, nil))
		}
	} else {
		r.addGetter(&gets, r.attrGetter(v[2], nil))
	}
	items := r.collect(x)
	keys := r.slots(len(items))
	for i, it := range items {
		key := r.slots(len(gets))
		for k, get := range gets {
			r.step()
			key[k] = fold(get(it))
		}
		keys[i] = &List{key}
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
func (r *run) titleWords(s string) string {
	b := buf{r: r}
	start := true
	for _, c := range r.chars(s) {
		switch {
		case isSpace(c), c == '-', c == '(', c == '{', c == '[', c == '<':
			b.rune(c)
			start = true
			continue
		case start:
			b.upperRune(c)
		default:
			b.lowerRune(c)
		}
		start = false
	}
	return b.text()
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
	b := buf{r: r}
	b.json(x, s, 0)
	return b.text()
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
	endLen := r.runes(end)
	if size < endLen {
		throw("AssertionError", "expected length >= %d, got %d", endLen, size)
	}
	if leeway < 0 {
		throw("AssertionError", "expected leeway >= 0, got %d", leeway)
	}
	n, ok := r.length(x)
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
	s = r.runeSlice(s, 0, size-endLen)
	if v[1] == missing || !truth(v[1]) {
		if i := r.lastIndex(s, " "); i >= 0 {
			s = s[:i]
		}
	}
	return like(x, r.joinTexts(s, end))
}

func uniqueFilter(r *run, x Value, a *args) Value {
	v := a.bind("unique", 0, "case_sensitive", "attribute")
	get, fold := r.attrGetter(v[1], nil), r.ignoreCase(v[0])
	var seen *Dict
	var it *Iter
	return r.iter("generator", func() (Value, bool) {
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
			if _, ok := r.get(seen, key); !ok {
				r.put(seen, key, nil)
				return y, true
			}
		}
	})
}

// quoteURL adds a text as urllib's quote writes it.
func (b *buf) quoteURL(s string, query bool) {
	for i, c := range b.r.chars(s) {
		switch {
		case isDigit(byte(c)) && c < utf8.RuneSelf, c|0x20 >= 'a' && c|0x20 <= 'z', c == '_' || c == '.' || c == '-' || c == '~', c == '/' && !query:
			b.rune(c)
		case c == ' ' && query:
			b.byte('+')
		default:
			for k := range utf8.RuneLen(c) {
				b.r.work(1)
				b.byte('%')
				b.byte("0123456789ABCDEF"[s[i+k]>>4])
				b.byte("0123456789ABCDEF"[s[i+k]&15])
			}
		}
	}
}

func urlencodeFilter(r *run, x Value, a *args) Value {
	a.bind("urlencode", 0)
	b := buf{r: r}
	if _, ok := text(x); ok || !iterable(x) {
		b.quoteURL(r.toStr(x), false)
		return b.text()
	}
	if d, ok := x.(*Dict); ok {
		x = &View{d, "dict_items"}
	}
	for i, it := range r.collect(x) {
		r.step()
		kv := r.collect(it)
		if len(kv) != 2 {
			throw("ValueError", "not enough values to unpack (expected 2, got %d)", len(kv))
		}
		if i > 0 {
			b.byte('&')
		}
		b.quoteURL(r.toStr(kv[0]), true)
		b.byte('=')
		b.quoteURL(r.toStr(kv[1]), true)
	}
	return b.text()
}
