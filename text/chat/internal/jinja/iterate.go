package jinja

import "unicode/utf8"

// each returns an iterator over items.
func (r *run) each(items []Value) *Iter {
	i := 0
	return r.iter(func() (Value, bool) {
		if i >= len(items) {
			return nil, false
		}
		i++
		return items[i-1], true
	})
}

// iterable reports whether r.iterate can go over v.
func iterable(v Value) bool {
	switch v.(type) {
	case *List, *Tuple, string, Markup, *Dict, *View, *Range, *Iter, *Undefined, *Loop:
		return true
	}
	return false
}

// iterate is Python's iter().
func (r *run) iterate(v Value) *Iter {
	switch x := v.(type) {
	case *List, *Tuple:
		return r.each(r.collect(x))
	case string, Markup:
		s, _ := text(x)
		return r.iter(func() (Value, bool) {
			if s == "" {
				return nil, false
			}
			_, n := utf8.DecodeRuneInString(s)
			c := s[:n]
			s = s[n:]
			return c, true
		})
	case *Dict:
		return r.view(&View{x, "dict_keys"})
	case *View:
		return r.view(x)
	case *Range:
		i := int64(0)
		return r.iter(func() (Value, bool) {
			if i >= x.n {
				return nil, false
			}
			i++
			return x.start + (i-1)*x.step, true
		})
	case *Iter:
		return x
	case *Undefined:
		return r.each(nil)
	case *Loop:
		return r.iter(func() (Value, bool) {
			if !x.advance() {
				return nil, false
			}
			return r.tuple(x.current, x), true
		})
	}
	throw("TypeError", "%s object is not iterable", quote(typeName(v)))
	return nil
}

// view returns an iterator over a view.
func (r *run) view(v *View) *Iter {
	i := 0
	return r.iter(func() (Value, bool) {
		if i >= len(v.d.entries) {
			return nil, false
		}
		e := v.d.entries[i]
		i++
		switch v.kind {
		case "dict_values":
			return e.val, true
		case "dict_items":
			return r.tuple(e.key, e.val), true
		}
		return e.key, true
	})
}

// drain returns the remaining items of an iterator.
func (r *run) drain(it *Iter) []Value {
	out := vec{r: r}
	for {
		v, ok := it.next()
		if !ok {
			return out.items
		}
		r.step()
		out.add(v)
	}
}

// collect returns the items of an iterable in a slice that must not be changed.
func (r *run) collect(v Value) []Value {
	if items, ok := itemsOf(v); ok {
		return items
	}
	return r.drain(r.iterate(v))
}

// collectAs is collect with a different error.
func (r *run) collectAs(v Value, complain func()) []Value {
	if !iterable(v) {
		complain()
	}
	return r.collect(v)
}
