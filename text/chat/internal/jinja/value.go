package jinja

import (
	"iter"
	"math"
)

// A Value is the value of an expression. The Go types represent Python's types:
//
//	nil None, bool, int64 and Big int, float64, string, Markup, *List, *Tuple,
//	*Dict, *Undefined, *Range, *Iter, *View (of a dict), *Namespace, *Func, *Macro, *Loop
type Value = any

// A Big is an int outside of int64: its decimal digits, with a minus. It can be written and compared with ==, but
// nothing is computed with it.
type Big string

// Markup is a text that was marked safe.
type Markup string

// A List is a Python list.
type List struct{ Items []Value }

// NewList returns a list of items. It retains the slice.
func NewList(items ...Value) *List { return &List{Items: items} }

// A Tuple is a Python tuple.
type Tuple struct{ Items []Value }

// itemsOf returns the items of a list or tuple.
func itemsOf(v Value) ([]Value, bool) {
	switch x := v.(type) {
	case *List:
		return x.Items, true
	case *Tuple:
		return x.Items, true
	}
	return nil, false
}

// bothItems returns the items of two lists, or of two tuples.
func bothItems(a, b Value) (p, q []Value, ok bool) {
	p, _ = itemsOf(a)
	q, ok = itemsOf(b)
	return p, q, ok && typeName(a) == typeName(b)
}

// listLike returns items as a tuple if self is one, otherwise as a list.
func listLike(self Value, items []Value) Value {
	if _, ok := self.(*Tuple); ok {
		return &Tuple{Items: items}
	}
	return &List{items}
}

// A Range is Python's range.
type Range struct{ start, stop, step, n int64 }

// A Namespace is an object whose attributes a template may assign.
type Namespace struct{ attrs *Dict }

// A View is dict.keys(), values() or items().
type View struct {
	d    *Dict
	kind string // "dict_keys", "dict_values", "dict_items"
}

// An Iter yields values once.
type Iter struct{ next func() (Value, bool) }

// Undefined is the value of a name, attribute or item that does not exist.
type Undefined struct {
	name    string
	message string
	kind    string // the exception on use; "" is UndefinedError
	param   bool   // of a macro
	of      *absentItem
}

// An absentItem is an item or attribute that an object does not have.
type absentItem struct{ obj, key Value }

// A Func is a function or a bound method.
type Func struct {
	name string
	call func(r *run, a *args) Value
}

// A Dict is a Python dict: it keeps the order of insertion.
type Dict struct {
	entries []entry
	index   map[any]int // by hash; nil while the dict is small
}

type entry struct {
	hash     any
	key, val Value
}

// smallDict is the number of entries up to which look-up is linear.
const smallDict = 8

// NewDict returns an empty dict.
func NewDict() *Dict { return &Dict{} }

// Len returns the number of entries.
func (d *Dict) Len() int { return len(d.entries) }

// All yields keys and values in order of insertion.
func (d *Dict) All() iter.Seq2[Value, Value] {
	return func(yield func(k, v Value) bool) {
		for _, e := range d.entries {
			if !yield(e.key, e.val) {
				return
			}
		}
	}
}

// Clone returns a copy that shares keys and values.
func (d *Dict) Clone() *Dict {
	c := &Dict{entries: make([]entry, len(d.entries), len(d.entries)+4)}
	copy(c.entries, d.entries)
	if len(c.entries) > smallDict {
		c.reindex()
	}
	return c
}

func (d *Dict) reindex() {
	d.index = make(map[any]int, 2*len(d.entries))
	for i, e := range d.entries {
		d.index[e.hash] = i
	}
}

func (d *Dict) find(h any) int {
	if d.index != nil {
		if i, ok := d.index[h]; ok {
			return i
		}
		return -1
	}
	for i := range d.entries {
		if d.entries[i].hash == h {
			return i
		}
	}
	return -1
}

// GetString returns the value of a text key.
func (d *Dict) GetString(key string) (Value, bool) {
	if d.index == nil {
		for i := range d.entries {
			if s, ok := d.entries[i].hash.(string); ok && s == key {
				return d.entries[i].val, true
			}
		}
		return nil, false
	}
	if i, ok := d.index[key]; ok {
		return d.entries[i].val, true
	}
	return nil, false
}

// Set sets the value of a key, which must be hashable. An existing key keeps its place.
// It is for values that do not come from a template: nothing is charged.
func (d *Dict) Set(key, val Value) { (&run{}).put(d, key, val) }

// add adds a key that the dict does not have.
func (d *Dict) add(h any, key, val Value) {
	d.entries = append(d.entries, entry{h, key, val})
	switch {
	case d.index != nil:
		d.index[h] = len(d.entries) - 1
	case len(d.entries) > smallDict:
		d.reindex()
	}
}

// SetString is Set for texts.
func (d *Dict) SetString(key, val string) { d.Set(key, val) }

// Hash keys of values that are not comparable in Go, or that equal values of another
// type.
type (
	floatHash uint64
	undefHash struct{}
	noneHash  struct{}
)

// hash returns a comparable value that is equal for values that Python's == calls
// equal. It throws a TypeError for unhashable values.
func (r *run) hash(v Value) any {
	switch x := v.(type) {
	case string:
		r.scanKey(x)
		return x
	case Markup:
		r.scanKey(string(x))
		return string(x)
	case nil:
		return noneHash{}
	case bool:
		if x {
			return int64(1)
		}
		return int64(0)
	case int64:
		return x
	case float64:
		if x == math.Trunc(x) && !math.IsInf(x, 0) {
			if math.Abs(x) < 1<<63 {
				return int64(x)
			}
		}
		return floatHash(math.Float64bits(x))
	case *Undefined:
		return undefHash{}
	case *Tuple:
		throw("TypeError", "a tuple as a key is not supported")
	case *View:
		if x.kind != "dict_values" {
			throw("TypeError", "unhashable type: %s", quote(x.kind))
		}
	case *List, *Dict:
		throw("TypeError", "unhashable type: %s", quote(typeName(v)))
	}
	return v
}

// hashable reports whether hash does not throw a TypeError.
func hashable(v Value) bool {
	switch x := v.(type) {
	case *List, *Dict, *Tuple:
		return false
	case *View:
		return x.kind == "dict_values"
	}
	return true
}

// typeName is the name of a value's type in Python.
func typeName(v Value) string {
	switch x := v.(type) {
	case nil:
		return "NoneType"
	case bool:
		return "bool"
	case int64, Big:
		return "int"
	case float64:
		return "float"
	case string:
		return "str"
	case Markup:
		return "Markup"
	case *List:
		return "list"
	case *Tuple:
		return "tuple"
	case *Dict:
		return "dict"
	case *Undefined:
		return "Undefined"
	case *Range:
		return "range"
	case *Iter:
		return "generator"
	case *View:
		return x.kind
	case *Namespace:
		return "TemplateNamespace"
	case *Func:
		return "function"
	case *Macro:
		return "Macro"
	case *Loop:
		return "LoopContext"
	}
	return "object"
}

// describe is jinja2's object_type_repr.
func describe(v Value) string {
	switch v.(type) {
	case nil:
		return "None"
	case Markup:
		return "markupsafe.Markup object"
	case *Undefined, *Macro, *Loop:
		return "jinja2.runtime." + typeName(v) + " object"
	case *Namespace:
		return "transformers.utils.chat_template_utils._cached_compile_jinja_template.<locals>.TemplateNamespace object"
	}
	return typeName(v) + " object"
}

// text returns the text of a str, whether marked safe or not.
func text(v Value) (string, bool) {
	switch x := v.(type) {
	case string:
		return x, true
	case Markup:
		return string(x), true
	}
	return "", false
}

// truth is Python's bool().
func truth(v Value) bool {
	switch x := v.(type) {
	case nil:
		return false
	case bool:
		return x
	case int64:
		return x != 0
	case Big:
		return true
	case float64:
		return x != 0
	case string:
		return x != ""
	case Markup:
		return x != ""
	case *List:
		return len(x.Items) > 0
	case *Tuple:
		return len(x.Items) > 0
	case *Dict:
		return x.Len() > 0
	case *View:
		return x.d.Len() > 0
	case *Range:
		return x.n > 0
	case *Undefined:
		return false
	}
	return true
}
