package jinja

import (
	"cmp"
	"math"
	"math/big"
	"slices"
	"strings"
	"unicode/utf8"
)

// use throws: an undefined value can only be printed and tested.
func (u *Undefined) use() {
	kind := u.kind
	if kind == "" {
		kind = "UndefinedError"
	}
	throw(kind, "%s", u.message)
}

// undefined is the value of an attribute or item that does not exist.
func undefined(obj, name Value) *Undefined {
	if s, ok := text(name); ok {
		return &Undefined{name: s, message: quote(describe(obj)) + " has no attribute " + quote(s)}
	}
	return &Undefined{message: describe(obj) + " has no element " + (&run{}).repr(name, 0)}
}

func (n *Namespace) set(name string, v Value) {
	if strings.HasPrefix(name, "_") {
		throw("SecurityError", "Chat templates cannot store underscore-prefixed attributes on a namespace, but got %s. Please rename the attribute.", quote(name))
	}
	n.attrs.Set(name, v)
}

// Iteration.

func (l *List) iter() *Iter  { return sliceIter("list_iterator", l.Items) }
func (t *Tuple) iter() *Iter { return sliceIter("tuple_iterator", t.Items) }

func sliceIter(kind string, items []Value) *Iter {
	i := 0
	return &Iter{kind, func() (Value, bool) {
		if i >= len(items) {
			return nil, false
		}
		i++
		return items[i-1], true
	}}
}

// maybeIter returns an iterator over v, or nil if v is not iterable.
func maybeIter(v Value) *Iter {
	switch x := v.(type) {
	case *List:
		return x.iter()
	case *Tuple:
		return x.iter()
	case string, Markup:
		s, _ := text(x)
		return &Iter{"str_iterator", func() (Value, bool) {
			if s == "" {
				return nil, false
			}
			_, n := utf8.DecodeRuneInString(s)
			c := s[:n]
			s = s[n:]
			return c, true
		}}
	case *Dict:
		return (&View{x, "dict_keys"}).iter()
	case *View:
		return x.iter()
	case *Range:
		i := int64(0)
		return &Iter{"range_iterator", func() (Value, bool) {
			if i >= x.n {
				return nil, false
			}
			i++
			return x.start + (i-1)*x.step, true
		}}
	case *Iter:
		return x
	case *Undefined:
		return sliceIter("generator", nil)
	case *Loop:
		return &Iter{"LoopContext", func() (Value, bool) {
			if !x.advance() {
				return nil, false
			}
			return &Tuple{Items: []Value{x.current, x}}, true
		}}
	}
	return nil
}

func (v *View) iter() *Iter {
	i := 0
	return &Iter{v.kind + "_iterator", func() (Value, bool) {
		if i >= len(v.d.entries) {
			return nil, false
		}
		e := v.d.entries[i]
		i++
		switch v.kind {
		case "dict_values":
			return e.val, true
		case "dict_items":
			return &Tuple{Items: []Value{e.key, e.val}}, true
		}
		return e.key, true
	}}
}

// iterate is Python's iter().
func (r *run) iterate(v Value) *Iter {
	it := maybeIter(v)
	if it == nil {
		throw("TypeError", "%s object is not iterable", quote(typeName(v)))
	}
	return it
}

// drain returns the remaining items of an iterator.
func (r *run) drain(it *Iter) []Value {
	var out []Value
	for {
		v, ok := it.next()
		if !ok {
			r.chargeItems(len(out))
			return out
		}
		r.step()
		if len(out) >= maxItems {
			r.chargeItems(len(out) + 1)
		}
		out = append(out, v)
	}
}

// collect returns the items of an iterable in a slice that must not be changed.
func (r *run) collect(v Value) []Value {
	switch x := v.(type) {
	case *List:
		return x.Items
	case *Tuple:
		return x.Items
	}
	return r.drain(r.iterate(v))
}

// collectAs is collect with a different error.
func (r *run) collectAs(v Value, complain func()) []Value {
	if maybeIter(v) == nil {
		complain()
	}
	return r.collect(v)
}

// length is Python's len(), if v has one.
func length(v Value) (int64, bool) {
	switch x := v.(type) {
	case string:
		return int64(utf8.RuneCountInString(x)), true
	case Markup:
		return int64(utf8.RuneCountInString(string(x))), true
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

// Numbers.

// normInt returns an int in its normal form.
func normInt(b *big.Int) Value {
	if b.IsInt64() {
		return b.Int64()
	}
	if b.BitLen() > maxBits {
		throw("LimitError", "the template makes an integer of more than %d bits", maxBits)
	}
	return b
}

// toBig returns an int (or bool) as a big.Int, which must not be changed.
func toBig(v Value) (*big.Int, bool) {
	switch x := v.(type) {
	case bool:
		if x {
			return big.NewInt(1), true
		}
		return new(big.Int), true
	case int64:
		return big.NewInt(x), true
	case *big.Int:
		return x, true
	}
	return nil, false
}

// small returns an int (or bool) as an int64 if it fits.
func small(v Value) (int64, bool) {
	switch x := v.(type) {
	case bool:
		if x {
			return 1, true
		}
		return 0, true
	case int64:
		return x, true
	}
	return 0, false
}

// toFloat returns a number as a float.
func toFloat(v Value) (float64, bool) {
	switch x := v.(type) {
	case float64:
		return x, true
	case int64:
		return float64(x), true
	case bool, *big.Int:
		b, _ := toBig(x)
		f, _ := new(big.Float).SetInt(b).Float64()
		if math.IsInf(f, 0) {
			throw("OverflowError", "int too large to convert to float")
		}
		return f, true
	}
	return 0, false
}

// floatToInt is Python's int() of a finite float.
func floatToInt(f float64) Value {
	if math.Abs(f) < 1<<62 {
		return int64(f)
	}
	b, _ := big.NewFloat(f).Int(nil)
	return normInt(b)
}

func isNumber(v Value) bool {
	switch v.(type) {
	case bool, int64, *big.Int, float64:
		return true
	}
	return false
}

// compareNumbers returns -1, 0 or 1, or 2 if a NaN is involved.
func compareNumbers(a, b Value) int {
	x, ok1 := small(a)
	y, ok2 := small(b)
	if ok1 && ok2 {
		return cmp.Compare(x, y)
	}
	exact := func(v Value) (*big.Float, bool) {
		if f, ok := v.(float64); ok {
			if math.IsNaN(f) {
				return nil, false
			}
			return big.NewFloat(f), true
		}
		i, _ := toBig(v)
		return new(big.Float).SetPrec(uint(max(64, i.BitLen()))).SetInt(i), true
	}
	p, ok1 := exact(a)
	q, ok2 := exact(b)
	if !ok1 || !ok2 {
		return 2
	}
	return p.Cmp(q)
}

func unary(op string, x Value) Value {
	switch v := x.(type) {
	case float64:
		if op == "-" {
			return -v
		}
		return v
	case bool, int64, *big.Int:
		b, _ := toBig(v)
		if op == "-" {
			b = new(big.Int).Neg(b)
		}
		return normInt(b)
	case *Undefined:
		v.use()
	}
	throw("TypeError", "bad operand type for unary %s: %s", op, quote(typeName(x)))
	return nil
}

// binary is an arithmetic operator.
func (r *run) binary(op string, a, b Value) Value {
	if isNumber(a) && isNumber(b) {
		return arithmetic(op, a, b)
	}
	if u, ok := a.(*Undefined); ok {
		u.use()
	}
	if s, ok := text(a); ok && op == "%" {
		out := r.str(r.printf(s, b))
		if _, marked := a.(Markup); marked {
			return Markup(out)
		}
		return out
	}
	if u, ok := b.(*Undefined); ok {
		u.use()
	}
	switch op {
	case "+":
		if v, ok := r.concat(a, b); ok {
			return v
		}
	case "*":
		seq, n := a, b
		if _, ok := toBig(seq); ok {
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
	switch x := a.(type) {
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
		r.charge(len(s) + len(t))
		switch {
		case m1 && m2:
			return Markup(s + t), true
		case m1:
			return Markup(s + escape(t)), true
		case m2:
			return Markup(escape(s) + t), true
		}
		return s + t, true
	case *List:
		y, ok := b.(*List)
		if !ok {
			throw("TypeError", `can only concatenate list (not "%s") to list`, typeName(b))
		}
		r.chargeItems(len(x.Items) + len(y.Items))
		return &List{slices.Concat(x.Items, y.Items)}, true
	case *Tuple:
		y, ok := b.(*Tuple)
		if !ok {
			throw("TypeError", `can only concatenate tuple (not "%s") to tuple`, typeName(b))
		}
		r.chargeItems(len(x.Items) + len(y.Items))
		return &Tuple{Items: slices.Concat(x.Items, y.Items)}, true
	}
	return nil, false
}

// repeat is * of a sequence.
func (r *run) repeat(seq, times Value) Value {
	b, ok := toBig(times)
	if !ok {
		throw("TypeError", "can't multiply sequence by non-int of type %s", quote(typeName(times)))
	}
	n, ok := small(times)
	if !ok || n > maxOutput {
		if b.Sign() > 0 {
			if l, _ := length(seq); l > 0 {
				r.charge(maxOutput + 1)
			}
		}
		n = 0
	}
	k := int(max(n, 0))
	if s, ok := text(seq); ok {
		if len(s) > 0 && k > maxOutput/len(s) {
			r.charge(maxOutput + 1)
		}
		r.charge(k * len(s))
		out := strings.Repeat(s, k)
		if _, marked := seq.(Markup); marked {
			return Markup(out)
		}
		return out
	}
	items := r.collect(seq)
	if len(items) > 0 && k > maxItems/len(items) {
		r.chargeItems(maxItems + 1)
	}
	r.chargeItems(k * len(items))
	out := slices.Repeat(items, k)
	if _, ok := seq.(*Tuple); ok {
		return &Tuple{Items: out}
	}
	return &List{out}
}

func arithmetic(op string, a, b Value) Value {
	_, f1 := a.(float64)
	_, f2 := b.(float64)
	if f1 || f2 {
		x, _ := toFloat(a)
		y, _ := toFloat(b)
		return floatArithmetic(op, x, y)
	}
	if x, ok := small(a); ok {
		if y, ok := small(b); ok {
			const half = 1 << 31
			switch op {
			case "+":
				if s := x + y; (s > x) == (y > 0) {
					return s
				}
			case "-":
				if s := x - y; (s < x) == (y > 0) {
					return s
				}
			case "*":
				if x > -half && x < half && y > -half && y < half {
					return x * y
				}
			}
		}
	}
	x, _ := toBig(a)
	y, _ := toBig(b)
	z := new(big.Int)
	switch op {
	case "+":
		z.Add(x, y)
	case "-":
		z.Sub(x, y)
	case "*":
		z.Mul(x, y)
	case "/":
		if y.Sign() == 0 {
			throw("ZeroDivisionError", "division by zero")
		}
		f, _ := new(big.Rat).SetFrac(x, y).Float64()
		if math.IsInf(f, 0) {
			throw("OverflowError", "integer division result too large for a float")
		}
		return f
	case "//", "%":
		if y.Sign() == 0 {
			if op == "%" {
				throw("ZeroDivisionError", "integer modulo by zero")
			}
			throw("ZeroDivisionError", "integer division or modulo by zero")
		}
		m := new(big.Int)
		z.QuoRem(x, y, m)
		if m.Sign() != 0 && m.Sign() != y.Sign() {
			z.Sub(z, big.NewInt(1))
			m.Add(m, y)
		}
		if op == "%" {
			z = m
		}
	case "**":
		if y.Sign() < 0 {
			p, _ := toFloat(a)
			q, _ := toFloat(b)
			return floatArithmetic(op, p, q)
		}
		if x.BitLen() <= 1 { // -1, 0 or 1: the parity decides
			if y.Sign() > 0 {
				y = big.NewInt(2 + int64(y.Bit(0)))
			}
		} else if !y.IsInt64() || y.Int64() > maxBits/int64(x.BitLen()-1) {
			throw("LimitError", "the template makes an integer of more than %d bits", maxBits)
		}
		z.Exp(x, y, nil)
	}
	return normInt(z)
}

func floatArithmetic(op string, x, y float64) Value {
	switch op {
	case "+":
		return x + y
	case "-":
		return x - y
	case "*":
		return x * y
	case "/":
		if y == 0 {
			throw("ZeroDivisionError", "float division by zero")
		}
		return x / y
	case "//", "%":
		if y == 0 {
			if op == "%" {
				throw("ZeroDivisionError", "float modulo")
			}
			throw("ZeroDivisionError", "float floor division by zero")
		}
		// As in CPython's float_divmod.
		mod := math.Mod(x, y)
		div := (x - mod) / y
		if mod != 0 {
			if (y < 0) != (mod < 0) {
				mod += y
				div--
			}
		} else {
			mod = math.Copysign(0, y)
		}
		if op == "%" {
			return mod
		}
		if div == 0 {
			return math.Copysign(0, x/y)
		}
		floor := math.Floor(div)
		if div-floor > 0.5 {
			floor++
		}
		return floor
	}
	// **
	if x == 0 && y < 0 {
		throw("ZeroDivisionError", "0.0 cannot be raised to a negative power")
	}
	if x < 0 && y != math.Trunc(y) && !math.IsInf(x, 0) {
		throw("TypeError", "complex numbers are not supported")
	}
	z := math.Pow(x, y)
	if math.IsInf(z, 0) && !math.IsInf(x, 0) && !math.IsInf(y, 0) {
		throw("OverflowError", "(34, 'Numerical result out of range')")
	}
	return z
}

// Comparison.

// equal is ==.
func (r *run) equal(a, b Value) bool { return r.equalAt(a, b, 0) }

func (r *run) equalAt(a, b Value, depth int) bool {
	checkDepth(depth)
	r.step()
	if s, ok := text(a); ok {
		t, ok := text(b)
		if !ok || len(s) != len(t) {
			return false
		}
		r.work(len(s))
		return s == t
	}
	if isNumber(a) {
		return isNumber(b) && compareNumbers(a, b) == 0
	}
	switch x := a.(type) {
	case nil:
		return b == nil
	case *List:
		y, ok := b.(*List)
		return ok && r.equalItems(x.Items, y.Items, depth)
	case *Tuple:
		y, ok := b.(*Tuple)
		return ok && r.equalItems(x.Items, y.Items, depth)
	case *Dict:
		y, ok := b.(*Dict)
		if !ok || x.Len() != y.Len() {
			return false
		}
		for _, e := range x.entries {
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
			r.work(min(len(s), len(t)))
			return strings.Compare(s, t)
		}
	}
	if u, ok := a.(*Undefined); ok {
		u.use()
	}
	if u, ok := b.(*Undefined); ok {
		u.use()
	}
	var p, q []Value
	ok := false
	switch x := a.(type) {
	case *List:
		var y *List
		if y, ok = b.(*List); ok {
			p, q = x.Items, y.Items
		}
	case *Tuple:
		var y *Tuple
		if y, ok = b.(*Tuple); ok {
			p, q = x.Items, y.Items
		}
	}
	if !ok {
		throw("TypeError", "%s not supported between instances of %s and %s", quote(op), quote(typeName(a)), quote(typeName(b)))
	}
	for i := range min(len(p), len(q)) {
		if !r.equalAt(p[i], q[i], depth+1) {
			return r.compare(op, p[i], q[i], depth+1)
		}
	}
	return cmp.Compare(len(p), len(q))
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

// sortStable sorts n items by less, which compares their indices, and passes the order
// to apply.
func (r *run) sortStable(n int, less func(i, j int) bool, apply func(order []int)) {
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int {
		switch {
		case less(i, j):
			return -1
		case less(j, i):
			return 1
		}
		return 0
	})
	apply(order)
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
		r.work(len(s))
		return strings.Contains(s, sub)
	case *Dict:
		_, ok := x.Get(item)
		return ok
	case *View:
		if x.kind == "dict_keys" {
			_, ok := x.d.Get(item)
			return ok
		}
	case *Range:
		if n, ok := small(item); ok {
			d := n - x.start
			return x.n > 0 && d%x.step == 0 && d/x.step >= 0 && d/x.step < x.n
		}
	}
	it := maybeIter(in)
	if it == nil {
		throw("TypeError", "argument of type %s is not iterable", quote(typeName(in)))
	}
	for {
		v, ok := it.next()
		if !ok {
			return false
		}
		if v == item || r.equal(v, item) {
			return true
		}
	}
}

// Attributes and items.

// getattr is obj.name in the sandbox.
func (r *run) getattr(obj Value, name string) Value {
	if u, ok := obj.(*Undefined); ok {
		u.use()
	}
	if v, ok := attribute(obj, name); ok {
		return v
	}
	if d, ok := obj.(*Dict); ok {
		if v, ok := d.GetString(name); ok {
			return v
		}
	}
	return undefined(obj, name)
}

// getitem is obj[key] in the sandbox.
func (r *run) getitem(obj, key Value) Value {
	if u, ok := obj.(*Undefined); ok {
		u.use()
	}
	if v, ok := r.item(obj, key); ok {
		return v
	}
	if name, ok := text(key); ok {
		if v, ok := attribute(obj, name); ok {
			return v
		}
	}
	return undefined(obj, key)
}

// item is Python's obj[key], if there is one.
func (r *run) item(obj, key Value) (Value, bool) {
	if d, ok := obj.(*Dict); ok {
		if !hashable(key) {
			return nil, false
		}
		return d.Get(key)
	}
	i, ok := small(key)
	if !ok {
		return nil, false
	}
	if s, ok := text(obj); ok {
		r.work(len(s))
	}
	n, ok := length(obj)
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
	case *List:
		return x.Items[i], true
	case *Tuple:
		return x.Items[i], true
	case *Range:
		return x.start + i*x.step, true
	case string:
		return runeSlice(x, int(i), int(i)+1), true
	case Markup:
		return Markup(runeSlice(string(x), int(i), int(i)+1)), true
	}
	return nil, false
}

// runeSlice returns characters [from,to) of s.
func runeSlice(s string, from, to int) string {
	if from >= to {
		return ""
	}
	start, n := len(s), 0
	for i := range s {
		if n == from {
			start = i
		}
		if n == to {
			return s[start:i]
		}
		n++
	}
	return s[start:]
}

// slice is x[start:stop:step].
func (r *run) slice(x Value, bounds [3]Value) Value {
	switch u := x.(type) {
	case *Undefined:
		u.use()
	case string, Markup, *List, *Tuple, *Range:
	case *Dict:
		throw("TypeError", "unhashable type: 'slice'")
	default:
		throw("TypeError", "%s object is not subscriptable", quote(typeName(x)))
	}
	n, _ := length(x)
	index := func(v Value) int64 {
		i, ok := small(v)
		if !ok {
			b, ok := toBig(v)
			if !ok {
				throw("TypeError", "slice indices must be integers or None or have an __index__ method")
			}
			i = math.MaxInt64 / 4 * int64(b.Sign())
		}
		return i
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
		count = (stop - start + step - 1) / step
	} else if step < 0 && start > stop {
		count = (start - stop - step - 1) / -step
	}
	pick := func(items []Value) []Value {
		r.chargeItems(int(count))
		if step == 1 {
			return slices.Clone(items[start : start+count])
		}
		out := make([]Value, count)
		for i := range out {
			out[i] = items[start+int64(i)*step]
		}
		return out
	}
	switch v := x.(type) {
	case *List:
		return &List{pick(v.Items)}
	case *Tuple:
		return &Tuple{Items: pick(v.Items)}
	case *Range:
		return &Range{v.start + start*v.step, v.start + stop*v.step, v.step * step, count}
	}
	s, _ := text(x)
	r.work(len(s))
	var out string
	if step == 1 {
		out = runeSlice(s, int(start), int(start+count))
	} else {
		runes := []rune(s)
		picked := make([]rune, count)
		for i := range picked {
			picked[i] = runes[start+int64(i)*step]
		}
		out = string(picked)
	}
	r.charge(len(out))
	if _, marked := x.(Markup); marked {
		return Markup(out)
	}
	return out
}
