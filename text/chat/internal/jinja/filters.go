package jinja

import (
	"math"
)

type filterFunc = func(r *run, x Value, a *args) Value

var filters map[string]filterFunc

// unsupported lists the filters of jinja2 that no published chat template was seen to use: those that write HTML, lay
// out pages or choose at random.
var unsupported = []string{
	"batch", "center", "filesizeformat", "forceescape", "groupby", "pprint", "random", "slice", "striptags", "truncate",
	"urlencode", "urlize", "wordcount", "wordwrap", "xmlattr",
}

func init() {
	filters = map[string]filterFunc{
		"abs":        absFilter,
		"attr":       attrFilter,
		"capitalize": textFilter("capitalize", (*run).capitalize),
		"count":      lengthFilter,
		"d":          defaultFilter,
		"default":    defaultFilter,
		"dictsort":   dictsortFilter,
		"e":          escapeFilter,
		"escape":     escapeFilter,
		"first":      firstFilter,
		"float":      floatFilter,
		"format":     formatFilter,
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
		"sort":       sortFilter,
		"string": func(r *run, x Value, a *args) Value {
			a.bind("string", 0)
			if _, ok := text(x); ok {
				return x
			}
			return r.toStr(x)
		},
		"sum":    sumFilter,
		"title":  textFilter("title", (*run).titleWords),
		"tojson": tojsonFilter,
		"trim":   trimFilter,
		"unique": uniqueFilter,
		"upper":  textFilter("upper", (*run).upper),
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
	case bool, int64, Big:
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
				n, ok := r.parseInt(p)
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
	v := a.bind("int", 0, "default")
	def := v[0]
	if def == missing {
		def = int64(0)
	}
	switch y := x.(type) {
	case bool, int64, Big:
		return r.unary("+", y)
	case float64:
		if math.IsInf(y, 0) {
			infinite()
		}
	case *Undefined:
		r.use(y)
	case string, Markup:
		if n, ok := r.parseInt(str(y)); ok {
			return n
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
		return r.each(nil)
	case *Dict:
		return r.view(&View{d, "dict_items"})
	}
	// Python's version is a generator: it raises the error when first read.
	return r.iter(func() (Value, bool) {
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
