package jinja

// maxRange is the maximum length of a range in the sandbox.
const maxRange = 100000

// globals are the functions available to every template.
var globals = map[string]*Func{
	"range":           {"range", rangeGlobal},
	"dict":            {"dict", dictGlobal},
	"namespace":       {"namespace", namespaceGlobal},
	"joiner":          {"joiner", joinerGlobal},
	"raise_exception": {"raise_exception", raiseGlobal},
	"strftime_now":    {"strftime_now", strftimeGlobal},
}

func init() {
	for _, name := range []string{"cycler", "lipsum"} {
		globals[name] = &Func{name, func(*run, *args) Value {
			throw("TypeError", "%s is not supported", name)
			return nil
		}}
	}
}

func rangeGlobal(_ *run, a *args) Value {
	if len(a.kw) > 0 {
		throw("TypeError", "range() takes no keyword arguments")
	}
	if len(a.pos) == 0 || len(a.pos) > 3 {
		throw("TypeError", "range expected 1 to 3 arguments, got %d", len(a.pos))
	}
	b := [3]int64{0, 0, 1}
	for i, v := range a.pos { // at most three
		if u, ok := v.(*Undefined); ok && u != missing {
			throw("TypeError", "'Undefined' object cannot be interpreted as an integer")
		}
		b[i] = int64(wantInt(v))
	}
	if len(a.pos) == 1 {
		b[0], b[1] = 0, b[0]
	}
	if b[2] == 0 {
		throw("ValueError", "range() arg 3 must not be zero")
	}
	n := int64(0)
	switch {
	case b[2] > 0 && b[0] < b[1]:
		n = (b[1]-b[0]-1)/b[2] + 1
	case b[2] < 0 && b[0] > b[1]:
		n = (b[0]-b[1]-1)/-b[2] + 1
	}
	if n > maxRange {
		throw("OverflowError", "Range too big. The sandbox blocks ranges larger than MAX_RANGE (%d).", maxRange)
	}
	return &Range{b[0], b[1], b[2], n}
}

// newDict is Python's dict(*a).
func (r *run) newDict(name string, a *args) *Dict {
	if len(a.pos) > 1 {
		throw("TypeError", "%s expected at most 1 argument, got %d", name, len(a.pos))
	}
	d := NewDict()
	if len(a.pos) == 1 {
		if from, ok := a.pos[0].(*Dict); ok {
			d = r.clone(from)
		} else {
			for i, it := range r.collect(a.pos[0]) {
				r.step()
				if !iterable(it) {
					throw("TypeError", "cannot convert dictionary update sequence element #%d to a sequence", i)
				}
				kv := r.collect(it)
				if len(kv) != 2 {
					throw("ValueError", "dictionary update sequence element #%d has length %d; 2 is required", i, len(kv))
				}
				r.put(d, kv[0], kv[1])
			}
		}
	}
	for i, n := range a.names {
		r.step()
		r.put(d, n, a.kw[i])
	}
	return d
}

func dictGlobal(r *run, a *args) Value { return r.newDict("dict", a) }

func namespaceGlobal(r *run, a *args) Value {
	d := r.newDict("dict", a)
	ns := &Namespace{NewDict()}
	for k, v := range d.All() {
		r.step()
		if s, ok := text(k); ok {
			r.setAttr(ns, s, v)
		} else {
			r.put(ns.attrs, k, v)
		}
	}
	return ns
}

func joinerGlobal(r *run, a *args) Value {
	var sep Value = ", "
	if v := a.bind("joiner", 0, "sep"); v[0] != missing {
		sep = v[0]
	}
	used := false
	return r.fn("joiner", func(*run, *args) Value {
		if !used {
			used = true
			return ""
		}
		return sep
	})
}

func raiseGlobal(r *run, a *args) Value {
	v := a.bind("raise_exception", 1, "message")
	panic(thrown{&Error{Kind: "TemplateError", Message: r.toStr(v[0]), Raised: true}})
}

func strftimeGlobal(r *run, a *args) Value {
	v := a.bind("strftime_now", 1, "format")
	s, ok := text(v[0])
	if !ok {
		throw("TypeError", "strftime() argument 1 must be str, not %s", typeName(v[0]))
	}
	b := buf{r: r}
	b.strftime(r.now(), s)
	return b.text()
}
