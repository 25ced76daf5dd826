package jinja

type testFunc = func(r *run, x Value, a *args) bool

var tests map[string]testFunc

func init() {
	// plain is a test without arguments.
	plain := func(f func(Value) bool) testFunc {
		return func(_ *run, x Value, a *args) bool {
			a.bind("test", 0)
			return f(x)
		}
	}
	// known is a test of names.
	known := func(f func(string) bool) testFunc {
		return func(r *run, x Value, a *args) bool {
			a.bind("test", 0)
			r.hash(x)
			s, ok := text(x)
			return ok && f(s)
		}
	}
	// with is a test with one.
	with := func(f func(r *run, x, y Value) bool) testFunc {
		return func(r *run, x Value, a *args) bool {
			return f(r, x, a.bind("test", 1, "other")[0])
		}
	}
	order := func(op string) testFunc {
		return with(func(r *run, x, y Value) bool { return r.order(op, x, y) })
	}
	mod := func(r *run, x, y Value) Value { return r.binary("%", x, y) }
	equal := with(func(r *run, x, y Value) bool { return r.equal(x, y) })
	tests = map[string]testFunc{
		"boolean":     plain(func(x Value) bool { _, ok := x.(bool); return ok }),
		"callable":    plain(callable),
		"defined":     plain(func(x Value) bool { _, ok := x.(*Undefined); return !ok }),
		"undefined":   plain(func(x Value) bool { _, ok := x.(*Undefined); return ok }),
		"divisibleby": with(func(r *run, x, y Value) bool { return r.equal(mod(r, x, y), int64(0)) }),
		"even": func(r *run, x Value, a *args) bool {
			a.bind("even", 0)
			return r.equal(mod(r, x, int64(2)), int64(0))
		},
		"odd": func(r *run, x Value, a *args) bool {
			a.bind("odd", 0)
			return r.equal(mod(r, x, int64(2)), int64(1))
		},
		"escaped": plain(func(x Value) bool { _, ok := x.(Markup); return ok }),
		"false":   plain(func(x Value) bool { return x == false }),
		"true":    plain(func(x Value) bool { return x == true }),
		"filter":  known(func(s string) bool { return filters[s] != nil }),
		"test":    known(func(s string) bool { return tests[s] != nil }),
		"float":   plain(func(x Value) bool { _, ok := x.(float64); return ok }),
		"integer": plain(func(x Value) bool {
			switch x.(type) {
			case int64, Big:
				return true
			}
			return false
		}),
		"number":   plain(isNumber),
		"iterable": plain(iterable),
		"sequence": plain(func(x Value) bool {
			switch x.(type) {
			case string, Markup, *List, *Tuple, *Dict, *Range, *Undefined:
				return true
			}
			return false
		}),
		"mapping": plain(func(x Value) bool { _, ok := x.(*Dict); return ok }),
		"none":    plain(func(x Value) bool { return x == nil }),
		"string":  plain(func(x Value) bool { _, ok := text(x); return ok }),
		"lower": func(r *run, x Value, a *args) bool {
			a.bind("lower", 0)
			return r.isCase(r.toStr(x), false)
		},
		"upper": func(r *run, x Value, a *args) bool {
			a.bind("upper", 0)
			return r.isCase(r.toStr(x), true)
		},
		"sameas": with(func(r *run, x, y Value) bool {
			s, ok := x.(string)
			t, both := y.(string)
			if ok && both {
				return r.same(s, t)
			}
			m, ok := x.(Markup)
			n, both := y.(Markup)
			if ok && both {
				return r.same(string(m), string(n))
			}
			return x == y
		}),
		"in": with(func(r *run, x, y Value) bool { return r.contains(y, x) }),
	}
	for _, n := range []string{"==", "eq", "equalto"} {
		tests[n] = equal
	}
	for _, n := range []string{"!=", "ne"} {
		tests[n] = with(func(r *run, x, y Value) bool { return !r.equal(x, y) })
	}
	for op, names := range map[string][]string{
		"<": {"<", "lt", "lessthan"}, "<=": {"<=", "le"}, ">": {">", "gt", "greaterthan"}, ">=": {">=", "ge"},
	} {
		for _, n := range names {
			tests[n] = order(op)
		}
	}
}

func callable(x Value) bool {
	switch x.(type) {
	case *Func, *Macro, *Loop, *Undefined:
		return true
	}
	return false
}
