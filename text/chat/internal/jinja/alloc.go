package jinja

import (
	"cmp"
	"iter"
	"slices"
	"strings"
	"unicode/utf8"
)

// This file and text.go, number.go and value.go make every text, list, dict and number of
// a rendering, and charge for it first. The other files build values from what these
// offer; TestOnlyTheAllocatorMakesValues holds them to it.

// grow returns b with room for n more bytes.
func (r *run) grow(b []byte, n int) []byte {
	need := len(b) + n
	if need <= cap(b) {
		return b
	}
	checkSize(need)
	size := max(need, min(2*cap(b), maxText), 64)
	r.charge(size)
	return append(make([]byte, 0, size), b...)
}

// textOf returns a text of the bytes in b.
func (r *run) textOf(b []byte) string {
	checkSize(len(b))
	r.charge(len(b))
	return string(b)
}

// write adds to the output.
func (r *run) write(s string) {
	r.out = append(r.grow(r.out, len(s)), s...)
}

// A buf is a text in the making.
type buf struct {
	r *run
	b strings.Builder
}

// room makes room for n more bytes.
func (b *buf) room(n int) {
	if b.b.Cap()-b.b.Len() >= n {
		return
	}
	checkSize(b.b.Len() + n)
	b.r.charge(2*b.b.Cap() + n) // as much as Grow allocates
	b.b.Grow(n)
}

func (b *buf) str(s string) {
	b.room(len(s))
	b.b.WriteString(s)
}

func (b *buf) byte(c byte) {
	b.room(1)
	b.b.WriteByte(c)
}

func (b *buf) rune(c rune) {
	b.room(utf8.UTFMax)
	b.b.WriteRune(c)
}

// text returns the text. Nothing may be added afterwards.
func (b *buf) text() string { return b.b.String() }

// repeat adds s n times.
func (b *buf) repeat(s string, n int) {
	if n <= 0 || s == "" {
		return
	}
	if n > maxText/len(s) {
		checkSize(maxText + 1)
	}
	b.room(n * len(s))
	if k := min(n, 4096/len(s)); k > 1 {
		many := strings.Repeat(s, k)
		for ; n >= k; n -= k {
			b.b.WriteString(many)
		}
	}
	for ; n > 0; n-- {
		b.b.WriteString(s)
	}
}

// joinTexts returns texts one after the other.
func (r *run) joinTexts(parts ...string) string {
	n := 0
	for _, p := range parts {
		n += len(p)
	}
	checkSize(n)
	r.charge(n)
	return strings.Join(parts, "")
}

// A vec is a list in the making.
type vec struct {
	r     *run
	items []Value
}

// add appends a value, which may have been made for the list.
func (v *vec) add(x Value) {
	if n := len(v.items); n == cap(v.items) {
		checkItems(n + 1)
		size := min(max(4, 2*n), maxItems)
		v.r.charge(size * (slotBytes + boxBytes))
		items := make([]Value, n, size)
		v.r.copy(items, v.items)
		v.items = items
	}
	v.items = append(v.items, x)
}

// reverse reverses the order of the items.
func (v *vec) reverse() {
	v.r.work(len(v.items))
	slices.Reverse(v.items)
}

// slots returns room for n values.
func (r *run) slots(n int) []Value {
	checkItems(n)
	r.charge(n * (slotBytes + boxBytes))
	return make([]Value, n)
}

// joined returns the items of lists one after the other.
func (r *run) joined(lists ...[]Value) []Value {
	n := 0
	for _, l := range lists {
		n += len(l)
		checkItems(n)
	}
	r.charge(n * slotBytes)
	out := make([]Value, n)
	n = 0
	for _, l := range lists {
		r.copy(out[n:], l)
		n += len(l)
	}
	return out
}

// copy copies items in parts: memory that was never used before comes slowly.
func (r *run) copy(to, from []Value) {
	const part = 1 << 14
	for len(from) > part {
		r.work(part)
		copy(to, from[:part])
		to, from = to[part:], from[part:]
	}
	copy(to, from)
}

// copies returns items n times.
func (r *run) copies(items []Value, n int) []Value {
	if len(items) == 0 || n <= 0 {
		return nil
	}
	if n > maxItems/len(items) {
		checkItems(maxItems + 1)
	}
	n *= len(items)
	r.charge(n * slotBytes)
	out := make([]Value, n)
	r.copy(out, items)
	for done := len(items); done < n; {
		part := out[done:min(2*done, n)]
		r.copy(part, out[:len(part)])
		done += len(part)
	}
	return out
}

// tuple returns a tuple of a few values.
func (r *run) tuple(items ...Value) *Tuple {
	r.charge(len(items)*(slotBytes+boxBytes) + 64)
	return &Tuple{Items: items}
}

// iter returns an iterator.
func (r *run) iter(next func() (Value, bool)) *Iter {
	r.charge(funcBytes)
	return &Iter{next}
}

// fn returns a function.
func (r *run) fn(name string, call func(r *run, a *args) Value) *Func {
	r.charge(funcBytes)
	return &Func{name, call}
}

// undef returns an undefined value: a variable, or an item of obj.
func (r *run) undef(u Undefined) *Undefined {
	r.charge(funcBytes)
	return &u
}

// scope returns a scope within another.
func (r *run) scope(parent *frame) *frame {
	r.charge(frameBytes)
	return &frame{parent: parent}
}

// A frame is one scope.
type frame struct {
	parent *frame
	vars   []binding
	few    [3]binding     // vars starts here: most scopes have no more
	index  map[string]int // nil while there are few
}

type binding struct {
	name string
	val  Value
}

// few is the number of variables or arguments up to which names are compared one by one.
const few = 16

func (f *frame) find(name string) int {
	if f.index != nil {
		if i, ok := f.index[name]; ok {
			return i
		}
		return -1
	}
	for i := range f.vars {
		if f.vars[i].name == name {
			return i
		}
	}
	return -1
}

// set sets a variable of a scope.
func (r *run) set(f *frame, name string, v Value) {
	r.scan(len(name))
	if i := f.find(name); i >= 0 {
		f.vars[i].val = v
		return
	}
	if f.vars == nil {
		f.vars = f.few[:0]
	}
	if len(f.vars) >= len(f.few) {
		r.charge(entryBytes)
	}
	f.vars = append(f.vars, binding{name, v})
	switch {
	case f.index != nil:
		f.index[name] = len(f.vars) - 1
	case len(f.vars) > few:
		f.index = make(map[string]int, 2*few)
		for i := range f.vars {
			f.index[f.vars[i].name] = i
		}
	}
}

// lookup resolves a name.
func (r *run) lookup(f *frame, name string) Value {
	r.scan(len(name))
	for ; f != nil; f = f.parent {
		if i := f.find(name); i >= 0 {
			return f.vars[i].val
		}
		r.work(2)
	}
	if v, ok := r.vars.GetString(name); ok {
		return v
	}
	if fn, ok := globals[name]; ok {
		return fn
	}
	return r.undef(Undefined{name: name})
}

// get returns the value of a key, which must be hashable.
func (r *run) get(d *Dict, key Value) (Value, bool) {
	if s, ok := key.(string); ok {
		return r.getString(d, s)
	}
	if i := d.find(r.hash(key)); i >= 0 {
		return d.entries[i].val, true
	}
	return nil, false
}

// getString returns the value of a text key.
func (r *run) getString(d *Dict, key string) (Value, bool) {
	r.scanKey(key)
	return d.GetString(key)
}

// put sets the value of a key, which must be hashable. An existing key keeps its place.
func (r *run) put(d *Dict, key, val Value) {
	h := r.hash(key)
	if i := d.find(h); i >= 0 {
		d.entries[i].val = val
		return
	}
	checkItems(d.Len() + 1)
	r.charge(entryBytes)
	d.add(h, key, val)
}

// clone returns a copy of a dict that shares keys and values.
func (r *run) clone(d *Dict) *Dict {
	r.charge(d.Len() * entryBytes)
	return d.Clone()
}

// scanKey charges for comparing a text with the few keys of a small dict, or for hashing
// it.
func (r *run) scanKey(s string) {
	if len(s) >= 64 {
		r.scan(2 * len(s))
	}
}

// sortStable returns the numbers below n in the order of the items that less compares.
func (r *run) sortStable(n int, less func(i, j int) bool) []int {
	r.charge(2 * 8 * n)
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int {
		r.step()
		switch {
		case less(i, j):
			return -1
		case less(j, i):
			return 1
		}
		return 0
	})
	return order
}

// compareInts returns -1, 0 or 1.
func compareInts(a, b int) int { return cmp.Compare(a, b) }

// span adds a generation block.
func (r *run) span(start, end int) {
	r.charge(4 * slotBytes)
	r.spans = append(r.spans, Span{start, end})
}

// Arguments.

// bound returns room for the arguments of a built-in function: args are charged for it.
func bound(n int) []Value { return make([]Value, n) }

// flags returns room for n flags.
func (r *run) flags(n int) []bool {
	r.charge(n)
	return make([]bool, n)
}

// addKeyword adds a keyword argument.
func (r *run) addKeyword(a *args, name string, v Value) {
	r.charge(4 * (slotBytes + boxBytes))
	a.names = append(a.names, name)
	a.kw = append(a.kw, v)
}

// dropKeyword removes keyword argument i without changing the slices.
func (r *run) dropKeyword(a *args, i int) {
	r.charge(len(a.names) * (slotBytes + boxBytes))
	a.names = slices.Concat(a.names[:i], a.names[i+1:])
	a.kw = slices.Concat(a.kw[:i], a.kw[i+1:])
}

// nameSet returns a function that reports whether a name is one of names.
func (r *run) nameSet(names []string) func(string) bool {
	if len(names) <= few {
		return func(name string) bool { return slices.Contains(names, name) }
	}
	r.charge(len(names) * entryBytes)
	set := make(map[string]bool, len(names))
	for _, n := range names {
		r.step()
		set[n] = true
	}
	return func(name string) bool { return set[name] }
}

// getters are functions that follow the paths of attributes.
type getters []func(Value) Value

func (r *run) addGetter(g *getters, f func(Value) Value) {
	r.charge(4 * slotBytes)
	*g = append(*g, f)
}

// keywords are the keyword arguments of a macro that no parameter has taken yet.
type keywords struct {
	r     *run
	a     *args
	taken []bool
	index map[string]int // nil if there are few
}

func (r *run) keywords(a *args) *keywords {
	k := &keywords{r: r, a: a, taken: r.flags(len(a.names))}
	if len(a.names) > few {
		r.charge(len(a.names) * entryBytes)
		k.index = make(map[string]int, len(a.names))
		for i, n := range slices.Backward(a.names) {
			r.step()
			k.index[n] = i // of the first one, if there are two callers
		}
	}
	return k
}

// take removes and returns an argument.
func (k *keywords) take(name string) (Value, bool) {
	i, ok := -1, false
	if k.index != nil {
		i, ok = k.index[name]
	} else if i = slices.Index(k.a.names, name); i >= 0 {
		ok = true
	}
	if !ok || k.taken[i] {
		return nil, false
	}
	k.taken[i] = true
	return k.a.kw[i], true
}

// left returns the arguments that are left.
func (k *keywords) left() iter.Seq2[string, Value] {
	return func(yield func(string, Value) bool) {
		for i, n := range k.a.names {
			k.r.step()
			if !k.taken[i] && !yield(n, k.a.kw[i]) {
				return
			}
		}
	}
}

// first returns the name of the first argument that is left.
func (k *keywords) first() (string, bool) {
	for n := range k.left() {
		return n, true
	}
	return "", false
}

// has reports whether an argument is left.
func (k *keywords) has(name string) bool {
	for n := range k.left() {
		if n == name {
			return true
		}
	}
	return false
}

// rest returns the arguments that are left.
func (k *keywords) rest() *Dict {
	d := NewDict()
	for n, v := range k.left() {
		k.r.put(d, n, v)
	}
	return d
}
