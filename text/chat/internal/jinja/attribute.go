package jinja

// attribute returns an attribute that Python's getattr would find: a method of a
// built-in type, or a field of one of jinja2's objects. An attribute that the sandbox
// forbids is an undefined value that throws a SecurityError when used.
func (r *run) attribute(obj Value, name string) (Value, bool) {
	r.scanKey(name)
	switch x := obj.(type) {
	case *Namespace:
		return r.getString(x.attrs, name)
	case *Loop:
		return x.attr(name)
	case *Macro:
		switch name {
		case "name":
			return x.node.name, true
		case "arguments":
			l := vec{r: r}
			for _, a := range x.node.args {
				r.step()
				l.add(a)
			}
			return &Tuple{Items: l.items}, true
		case "caller":
			return x.node.caller, true
		case "catch_kwargs":
			return x.node.kwargs, true
		case "catch_varargs":
			return x.node.varargs, true
		}
	}
	if forbidden(obj, name) {
		u := r.undefined(obj, name)
		u.kind = "SecurityError"
		return u, true
	}
	var m func(r *run, self Value, a *args) Value
	switch obj.(type) {
	case string, Markup:
		m = strMethods[name]
	case *Dict:
		m = dictMethods[name]
	case *List, *Tuple, *Range:
		m = listMethods[name]
	}
	if m == nil {
		return nil, false
	}
	return r.fn(name, func(r *run, a *args) Value { return m(r, obj, a) }), true
}

// forbidden reports whether the sandbox refuses access to an attribute: the methods that
// change a list or dict, and what every Python object has.
func forbidden(obj Value, name string) bool {
	switch obj.(type) {
	case *List:
		switch name {
		case "append", "clear", "pop", "reverse", "insert", "sort", "extend", "remove":
			return true
		}
	case *Dict:
		switch name {
		case "clear", "pop", "popitem", "setdefault", "update":
			return true
		}
	}
	return dunder[name]
}

// dunder are the attributes that every Python object has.
var dunder = setOf(`__class__ __delattr__ __dir__ __doc__ __eq__ __format__ __ge__ __getattribute__ __gt__
	__hash__ __init__ __init_subclass__ __le__ __lt__ __ne__ __new__ __reduce__ __reduce_ex__ __repr__ __setattr__
	__sizeof__ __str__ __subclasshook__`)
