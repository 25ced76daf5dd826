package jinja

// toStr is Python's str().
func (r *run) toStr(v Value) string {
	switch x := v.(type) {
	case string:
		return x
	case Markup:
		return string(x)
	case *Undefined:
		return ""
	}
	return r.repr(v, 0)
}

// repr is Python's repr().
func (r *run) repr(v Value, depth int) string {
	b := buf{r: r}
	b.repr(v, depth)
	return b.text()
}

// repr adds Python's repr() of a value.
func (b *buf) repr(v Value, depth int) {
	checkDepth(depth)
	r := b.r
	r.step()
	list := func(open string, items []Value, end string) {
		b.str(open)
		for i, x := range items {
			r.step()
			if i > 0 {
				b.str(", ")
			}
			b.repr(x, depth+1)
		}
		b.str(end)
	}
	switch x := v.(type) {
	case nil:
		b.str("None")
	case bool:
		if x {
			b.str("True")
		} else {
			b.str("False")
		}
	case int64:
		b.int(x)
	case Big:
		b.str(string(x))
	case float64:
		b.str(floatRepr(x))
	case string:
		b.quote(x)
	case Markup:
		b.str("Markup(")
		b.quote(string(x))
		b.byte(')')
	case *List:
		list("[", x.Items, "]")
	case *Tuple:
		if len(x.Items) == 1 {
			list("(", x.Items, ",)")
		} else {
			list("(", x.Items, ")")
		}
	case *Dict:
		b.byte('{')
		for i, e := range x.entries {
			r.step()
			if i > 0 {
				b.str(", ")
			}
			b.repr(e.key, depth+1)
			b.str(": ")
			b.repr(e.val, depth+1)
		}
		b.byte('}')
	case *View:
		b.str(x.kind)
		list("([", r.drain(r.view(x)), "])")
	case *Range:
		b.str("range(")
		b.int(x.start)
		b.str(", ")
		b.int(x.stop)
		if x.step != 1 {
			b.str(", ")
			b.int(x.step)
		}
		b.byte(')')
	case *Namespace:
		b.str("<Namespace ")
		b.repr(x.attrs, depth+1)
		b.byte('>')
	case *Undefined:
		b.str("Undefined")
	case *Macro:
		b.str("<Macro ")
		b.quote(x.node.name)
		b.byte('>')
	case *Loop:
		b.str("<LoopContext ")
		b.int(x.index0 + 1)
		b.byte('/')
		b.int(x.len())
		b.byte('>')
	default:
		b.str("<")
		b.str(typeName(v))
		b.str(" object>")
	}
}
