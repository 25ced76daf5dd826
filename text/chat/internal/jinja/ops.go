package jinja

import (
	"math"
	"math/bits"
)

// use throws: an undefined value can only be printed and tested.
func (r *run) use(u *Undefined) {
	kind := u.kind
	if kind == "" {
		kind = "UndefinedError"
	}
	switch {
	case u.message != "":
		throw(kind, "%s", u.message)
	case u.param:
		throw(kind, "parameter %s was not provided", quote(u.name))
	case u.of == nil:
		throw(kind, "%s is undefined", quote(u.name))
	}
	s, ok := text(u.of.key)
	if kind == "SecurityError" {
		throw(kind, "access to attribute %s of %s object is unsafe.", quote(s), quote(typeName(u.of.obj)))
	}
	if ok {
		throw(kind, "%s has no attribute %s", quote(describe(u.of.obj)), quote(s))
	}
	throw(kind, "%s has no element %s", describe(u.of.obj), r.repr(u.of.key, 0))
}

// undefined is the value of an attribute or item that does not exist.
func (r *run) undefined(obj, key Value) *Undefined {
	name, _ := text(key)
	r.charge(2 * slotBytes)
	return r.undef(Undefined{name: name, of: &absentItem{obj, key}})
}

func (r *run) setAttr(n *Namespace, name string, v Value) {
	if name != "" && name[0] == '_' {
		throw("SecurityError", "Chat templates cannot store underscore-prefixed attributes on a namespace, but got %s. Please rename the attribute.", quote(name))
	}
	r.put(n.attrs, name, v)
}

// Iteration.

// length is Python's len(), if v has one.
func (r *run) length(v Value) (int64, bool) {
	switch x := v.(type) {
	case string:
		return int64(r.runes(x)), true
	case Markup:
		return int64(r.runes(string(x))), true
	case *List:
		return int64(len(x.Items)), true
	case *Tuple:
		return int64(len(x.Items)), true
	case *Dict:
		return int64(x.Len()), true
	case *View:
		return int64(x.d.Len()), true
	case *Range:
		return x.n, true
	case *Loop:
		return x.len(), true
	case *Undefined:
		return 0, true
	}
	return 0, false
}

// binary is an arithmetic operator.
func (r *run) binary(op string, a, b Value) Value {
	if isNumber(a) && isNumber(b) {
		return r.arithmetic(op, a, b)
	}
	if u, ok := a.(*Undefined); ok {
		r.use(u)
	}
	if s, ok := text(a); ok && op == "%" {
		return like(a, r.printf(s, b))
	}
	if u, ok := b.(*Undefined); ok {
		r.use(u)
	}
	switch op {
	case "+":
		if v, ok := r.concat(a, b); ok {
			return v
		}
	case "*":
		seq, n := a, b
		if isInt(seq) {
			seq, n = b, a
		}
		if isSequence(seq) {
			return r.repeat(seq, n)
		}
	}
	if op == "**" {
		op = "** or pow()"
	}
	throw("TypeError", "unsupported operand type(s) for %s: %s and %s", op, quote(typeName(a)), quote(typeName(b)))
	return nil
}

func isSequence(v Value) bool {
	switch v.(type) {
	case string, Markup, *List, *Tuple:
		return true
	}
	return false
}

// concat is + of sequences.
func (r *run) concat(a, b Value) (Value, bool) {
	switch a.(type) {
	case string, Markup:
		s, _ := text(a)
		t, ok := text(b)
		if !ok {
			if _, marked := a.(Markup); marked {
				break
			}
			throw("TypeError", `can only concatenate str (not "%s") to str`, typeName(b))
		}
		_, m1 := a.(Markup)
		_, m2 := b.(Markup)
		switch {
		case m1 && !m2:
			return Markup(r.joinTexts(s, r.escape(t))), true
		case m2 && !m1:
			return Markup(r.joinTexts(r.escape(s), t)), true
		}
		return like(a, r.joinTexts(s, t)), true
	case *List, *Tuple:
		p, q, ok := bothItems(a, b)
		if !ok {
			throw("TypeError", `can only concatenate %[1]s (not "%[2]s") to %[1]s`, typeName(a), typeName(b))
		}
		return listLike(a, r.joined(p, q)), true
	}
	return nil, false
}

// repeat is * of a sequence.
func (r *run) repeat(seq, times Value) Value {
	if !isInt(times) {
		throw("TypeError", "can't multiply sequence by non-int of type %s", quote(typeName(times)))
	}
	k := int(max(wantSmall(times), 0))
	if s, ok := text(seq); ok {
		out := buf{r: r}
		out.repeat(s, k)
		return like(seq, out.text())
	}
	return listLike(seq, r.copies(r.collect(seq), k))
}

// Comparison.

// equal is ==.
func (r *run) equal(a, b Value) bool { return r.equalAt(a, b, 0) }

func (r *run) equalAt(a, b Value, depth int) bool {
	checkDepth(depth)
	r.step()
	if s, ok := text(a); ok {
		t, ok := text(b)
		return ok && r.same(s, t)
	}
	if isNumber(a) {
		return isNumber(b) && sameNumber(a, b)
	}
	switch x := a.(type) {
	case nil:
		return b == nil
	case *List, *Tuple:
		p, q, ok := bothItems(a, b)
		return ok && r.equalItems(p, q, depth)
	case *Dict:
		y, ok := b.(*Dict)
		if !ok || x.Len() != y.Len() {
			return false
		}
		for _, e := range x.entries {
			r.step()
			if s, ok := e.hash.(string); ok {
				r.scanKey(s)
			}
			i := y.find(e.hash)
			if i < 0 || !r.equalAt(e.val, y.entries[i].val, depth+1) {
				return false
			}
		}
		return true
	case *Undefined:
		_, ok := b.(*Undefined)
		return ok
	case *Range:
		y, ok := b.(*Range)
		return ok && x.n == y.n && (x.n == 0 || x.start == y.start && (x.n == 1 || x.step == y.step))
	}
	return a == b
}

func (r *run) equalItems(a, b []Value, depth int) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if !r.equalAt(a[i], b[i], depth+1) {
			return false
		}
	}
	return true
}

// compare returns -1, 0, 1, or 2 if the values have no order (NaN). It throws an error
// for op if the types have no order.
func (r *run) compare(op string, a, b Value, depth int) int {
	checkDepth(depth)
	r.step()
	if isNumber(a) && isNumber(b) {
		return compareNumbers(a, b)
	}
	if s, ok := text(a); ok {
		if t, ok := text(b); ok {
			return r.compareText(s, t)
		}
	}
	if u, ok := a.(*Undefined); ok {
		r.use(u)
	}
	if u, ok := b.(*Undefined); ok {
		r.use(u)
	}
	p, q, ok := bothItems(a, b)
	if !ok {
		throw("TypeError", "%s not supported between instances of %s and %s", quote(op), quote(typeName(a)), quote(typeName(b)))
	}
	for i := range min(len(p), len(q)) {
		if !r.equalAt(p[i], q[i], depth+1) {
			return r.compare(op, p[i], q[i], depth+1)
		}
	}
	return compareInts(len(p), len(q))
}

// order is <, <=, > or >=.
func (r *run) order(op string, a, b Value) bool {
	c := r.compare(op, a, b, 0)
	switch {
	case c == 2:
		return false
	case op == "<":
		return c < 0
	case op == "<=":
		return c <= 0
	case op == ">":
		return c > 0
	}
	return c >= 0
}

func (r *run) less(a, b Value) bool { return r.order("<", a, b) }

// identical reports whether a and b are the same object. Texts and numbers are not compared.
func identical(a, b Value) bool {
	switch a.(type) {
	case string, Markup, int64, float64:
		return false
	}
	return a == b
}

// contains is `item in in`.
func (r *run) contains(in, item Value) bool {
	switch x := in.(type) {
	case string, Markup:
		s, _ := text(x)
		sub, ok := text(item)
		if !ok {
			throw("TypeError", "'in <string>' requires string as left operand, not %s", typeName(item))
		}
		return r.index(s, sub) >= 0
	case *Dict:
		_, ok := r.get(x, item)
		return ok
	case *View:
		if x.kind == "dict_keys" {
			_, ok := r.get(x.d, item)
			return ok
		}
	case *Range:
		if n, ok := small(item); ok {
			d := n - x.start
			return x.n > 0 && d%x.step == 0 && d/x.step >= 0 && d/x.step < x.n
		}
	}
	if !iterable(in) {
		throw("TypeError", "argument of type %s is not iterable", quote(typeName(in)))
	}
	it := r.iterate(in)
	for {
		v, ok := it.next()
		if !ok {
			return false
		}
		r.step()
		if identical(v, item) || r.equal(v, item) {
			return true
		}
	}
}

// Attributes and items.

// getattr is obj.name in the sandbox.
func (r *run) getattr(obj Value, name string) Value {
	if u, ok := obj.(*Undefined); ok {
		r.use(u)
	}
	if v, ok := r.attribute(obj, name); ok {
		return v
	}
	if d, ok := obj.(*Dict); ok {
		if v, ok := r.getString(d, name); ok {
			return v
		}
	}
	return r.undefined(obj, name)
}

// getitem is obj[key] in the sandbox.
func (r *run) getitem(obj, key Value) Value {
	if u, ok := obj.(*Undefined); ok {
		r.use(u)
	}
	if v, ok := r.item(obj, key); ok {
		return v
	}
	if name, ok := text(key); ok {
		if v, ok := r.attribute(obj, name); ok {
			return v
		}
	}
	return r.undefined(obj, key)
}

// item is Python's obj[key], if there is one.
func (r *run) item(obj, key Value) (Value, bool) {
	if d, ok := obj.(*Dict); ok {
		if !hashable(key) {
			return nil, false
		}
		return r.get(d, key)
	}
	i, ok := small(key)
	if !ok {
		return nil, false
	}
	n, ok := r.length(obj)
	if !ok {
		return nil, false
	}
	if i < 0 {
		i += n
	}
	if i < 0 || i >= n {
		return nil, false
	}
	switch x := obj.(type) {
	case *List, *Tuple:
		return r.collect(x)[i], true
	case *Range:
		return x.start + i*x.step, true
	case string:
		return r.runeSlice(x, int(i), int(i)+1), true
	case Markup:
		return Markup(r.runeSlice(string(x), int(i), int(i)+1)), true
	}
	return nil, false
}

// slice is x[start:stop:step].
func (r *run) slice(x Value, bounds [3]Value) Value {
	switch u := x.(type) {
	case *Undefined:
		r.use(u)
	case string, Markup, *List, *Tuple, *Range:
	case *Dict:
		throw("TypeError", "unhashable type: 'slice'")
	default:
		throw("TypeError", "%s object is not subscriptable", quote(typeName(x)))
	}
	n, _ := r.length(x)
	index := func(v Value) int64 {
		if !isInt(v) {
			throw("TypeError", "slice indices must be integers or None or have an __index__ method")
		}
		return wantSmall(v)
	}
	step := int64(1)
	if bounds[2] != nil {
		step = index(bounds[2])
	}
	if step == 0 {
		throw("ValueError", "slice step cannot be zero")
	}
	lo, hi := int64(0), n // where start and stop are clamped to
	if step < 0 {
		lo, hi = -1, n-1
	}
	clamp := func(v Value, def int64) int64 {
		if v == nil {
			return def
		}
		i := index(v)
		if i < 0 {
			i += n
		}
		return max(lo, min(hi, i))
	}
	first, last := lo, hi
	if step < 0 {
		first, last = hi, lo
	}
	start, stop := clamp(bounds[0], first), clamp(bounds[1], last)
	count := int64(0)
	if step > 0 && start < stop {
		count = (stop-start-1)/step + 1
	} else if step < 0 && start > stop {
		count = (start-stop-1)/-step + 1
	}
	pick := func(items []Value) []Value {
		switch {
		case count == 0:
			return nil
		case step == 1:
			return r.joined(items[start : start+count])
		}
		out := r.slots(int(count))
		for i := range out {
			r.work(1)
			out[i] = items[start+int64(i)*step]
		}
		return out
	}
	switch v := x.(type) {
	case *List, *Tuple:
		return listLike(x, pick(r.collect(x)))
	case *Range:
		if hi, _ := bits.Mul64(abs(v.step), abs(step)); hi > 0 || v.step*step == math.MinInt64 || v.step*step == 0 {
			step = 1 // a product beyond int64, so that there is one item or none
		}
		return &Range{v.start + start*v.step, v.start + stop*v.step, v.step * step, count}
	}
	s, _ := text(x)
	if step == 1 {
		return like(x, r.runeSlice(s, int(start), int(start+count)))
	}
	return like(x, r.everyNth(s, n, start, step, count))
}

// abs returns the absolute value of an int.
func abs(n int64) uint64 {
	if n < 0 {
		return -uint64(n)
	}
	return uint64(n)
}
