package jinja

import "math"

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
	return r.iter(func() (Value, bool) {
		if it == nil {
			if !truth(x) {
				it = r.each(nil)
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
	switch x.(type) {
	case *Iter, *Loop: // which Python cannot go over from the end
		return &List{items}
	}
	return r.each(items)
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
	f, _ := toFloat(x)
	f *= scale
	if math.IsInf(f, 0) || math.IsNaN(f) {
		infinite()
	}
	if method == "ceil" {
		return math.Ceil(f) / scale
	}
	return math.Floor(f) / scale
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

func uniqueFilter(r *run, x Value, a *args) Value {
	v := a.bind("unique", 0, "case_sensitive", "attribute")
	get, fold := r.attrGetter(v[1], nil), r.ignoreCase(v[0])
	var seen *Dict
	var it *Iter
	return r.iter(func() (Value, bool) {
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
