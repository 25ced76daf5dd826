package jinja

type (
	textNode  string
	printNode struct {
		line int
		x    expr
	}
	jumpNode signal
	forNode  struct {
		line         int
		target       target
		iter, cond   expr
		recursive    bool
		body, orelse []stmt
	}
	ifNode struct {
		cond         expr
		body, orelse []stmt
	}
	setNode struct {
		line   int
		target target
		x      expr
	}
	setBlock struct {
		line   int
		target target
		filter expr // nil or a chain of filterNodes
		body   []stmt
	}
	macroNode struct {
		line                    int
		name                    string
		args                    []string
		defaults                []expr
		body                    []stmt
		varargs, kwargs, caller bool // whether the body uses them
		callerArg               bool // whether a parameter has that name
	}
	defNode   struct{ m *macroNode }
	callBlock struct {
		line int
		call *callNode
		m    *macroNode
	}
	filterBlock struct {
		line   int
		filter expr
		body   []stmt
	}
	withNode struct {
		line    int
		targets []target
		values  []expr
		body    []stmt
	}
	generationNode struct {
		line int
		body []stmt
	}

	loaderNode int // {% include %} and similar tags, by line

	nameTarget  string
	attrTarget  struct{ object, name string }
	tupleTarget []target
)

func (r *run) exec(body []stmt, f *frame) signal {
	r.nest()
	for _, s := range body {
		r.step()
		if sig := s.exec(r, f); sig != sigNone {
			r.depth--
			return sig
		}
	}
	r.depth--
	return sigNone
}

func (n textNode) exec(r *run, _ *frame) signal {
	r.write(string(n))
	return sigNone
}

func (n *printNode) exec(r *run, f *frame) signal {
	v := r.eval(n.x, f)
	r.line = n.line
	r.write(r.toStr(v))
	return sigNone
}

func (n jumpNode) exec(*run, *frame) signal { return signal(n) }

func (n loaderNode) exec(r *run, _ *frame) signal {
	r.line = int(n)
	throw("TypeError", "no loader for this environment specified")
	return sigNone
}

func (n *ifNode) exec(r *run, f *frame) signal {
	if truth(r.eval(n.cond, f)) {
		return r.exec(n.body, f)
	}
	return r.exec(n.orelse, f)
}

func (n *setNode) exec(r *run, f *frame) signal {
	r.line = n.line
	n.target.check(r, f)
	v := r.eval(n.x, f)
	r.line = n.line
	n.target.assign(r, f, v)
	return sigNone
}

func (n *setBlock) exec(r *run, f *frame) signal {
	var v Value = r.capture(func() { r.exec(n.body, r.scope(f)) })
	if n.filter != nil {
		v = n.filter.(*filterNode).applyChain(r, f, v)
	}
	r.line = n.line
	n.target.assign(r, f, v)
	return sigNone
}

// applyChain runs a chain of filters over the text of a block.
func (n *filterNode) applyChain(r *run, f *frame, x Value) Value {
	if inner, ok := n.x.(*filterNode); ok {
		x = inner.applyChain(r, f, x)
	}
	return n.apply(r, f, x)
}

func (n *filterBlock) exec(r *run, f *frame) signal {
	inner := r.scope(f)
	s := r.capture(func() { r.exec(n.body, inner) })
	r.write(r.toStr(n.filter.(*filterNode).applyChain(r, inner, s)))
	return sigNone
}

func (n *withNode) exec(r *run, f *frame) signal {
	inner := r.scope(f)
	vals := r.evalAll(n.values, f)
	r.line = n.line
	for i, t := range n.targets {
		r.step()
		t.assign(r, inner, vals[i])
	}
	return r.exec(n.body, inner)
}

func (n *generationNode) exec(r *run, f *frame) signal {
	start := len(*r.top)
	s := r.capture(func() { r.exec(n.body, r.scope(f)) })
	r.span(start, start+len(s))
	r.write(s)
	return sigNone
}

func (nameTarget) check(*run, *frame) {}

func (t *attrTarget) check(r *run, f *frame) { t.namespace(r, f) }

func (t tupleTarget) check(r *run, f *frame) {
	for _, x := range t {
		r.step()
		x.check(r, f)
	}
}

func (t *attrTarget) namespace(r *run, f *frame) *Namespace {
	ns, ok := r.lookup(f, t.object).(*Namespace)
	if !ok {
		throw("TemplateRuntimeError", "cannot assign attribute on non-namespace object")
	}
	return ns
}

func (t nameTarget) assign(r *run, f *frame, v Value) { r.set(f, string(t), v) }

func (t *attrTarget) assign(r *run, f *frame, v Value) {
	r.setAttr(t.namespace(r, f), t.name, v)
}

func (t tupleTarget) assign(r *run, f *frame, v Value) {
	items := r.collectAs(v, func() { throw("TypeError", "cannot unpack non-iterable %s object", typeName(v)) })
	switch {
	case len(items) < len(t):
		throw("ValueError", "not enough values to unpack (expected %d, got %d)", len(t), len(items))
	case len(items) > len(t):
		throw("ValueError", "too many values to unpack (expected %d)", len(t))
	}
	for i, x := range t {
		r.step()
		x.assign(r, f, items[i])
	}
}

// Loops.

// A Loop is the loop variable of a for.
type Loop struct {
	r       *run
	src     Value
	it      *Iter
	recurse func(Value) Value // nil: the loop is not recursive
	depth0  int

	index0    int64
	length    int64 // -1: not known yet
	current   Value
	before    Value
	after     Value
	haveAfter bool
	ended     bool
}

// advance moves to the next item.
func (l *Loop) advance() bool {
	var v Value
	if l.haveAfter {
		v, l.haveAfter, l.after = l.after, false, nil
	} else {
		var ok bool
		if l.ended {
			return false
		}
		if v, ok = l.it.next(); !ok {
			l.ended = true
			return false
		}
	}
	l.r.step()
	l.index0++
	l.before, l.current = l.current, v
	return true
}

// peek looks at the item after the current one.
func (l *Loop) peek() (Value, bool) {
	if !l.haveAfter && !l.ended {
		v, ok := l.it.next()
		if !ok {
			l.ended = true
			return nil, false
		}
		l.after, l.haveAfter = v, true
	}
	return l.after, l.haveAfter
}

func (l *Loop) len() int64 {
	if l.length < 0 {
		if n, ok := l.r.length(l.src); ok {
			l.length = n
		} else {
			rest := l.r.drain(l.it)
			l.it = l.r.each(rest)
			l.length = int64(len(rest)) + l.index0 + 1
			if l.haveAfter {
				l.length++
			}
		}
	}
	return l.length
}

// attr returns an attribute of the loop.
func (l *Loop) attr(name string) (Value, bool) {
	switch name {
	case "index":
		return l.index0 + 1, true
	case "index0":
		return l.index0, true
	case "revindex":
		return l.len() - l.index0, true
	case "revindex0":
		return l.len() - l.index0 - 1, true
	case "first":
		return l.index0 == 0, true
	case "last":
		_, more := l.peek()
		return !more, true
	case "length":
		return l.len(), true
	case "depth":
		return int64(l.depth0 + 1), true
	case "depth0":
		return int64(l.depth0), true
	case "previtem":
		if l.index0 == 0 {
			return l.r.undef(Undefined{message: "there is no previous item"}), true
		}
		return l.before, true
	case "nextitem":
		if v, ok := l.peek(); ok {
			return v, true
		}
		return l.r.undef(Undefined{message: "there is no next item"}), true
	case "cycle":
		return l.r.fn("cycle", func(_ *run, a *args) Value {
			if len(a.pos) == 0 {
				throw("TypeError", "no items for cycling given")
			}
			return a.pos[l.index0%int64(len(a.pos))]
		}), true
	}
	return nil, false
}

func (n *forNode) exec(r *run, f *frame) signal {
	v := r.eval(n.iter, f)
	r.line = n.line
	if n.recursive {
		r.write(r.toStr(n.recurse(r, f, v, 0)))
		return sigNone
	}
	n.loop(r, f, v, nil, 0)
	return sigNone
}

// recurse renders a recursive loop over v.
func (n *forNode) recurse(r *run, f *frame, v Value, depth int) Value {
	r.call()
	s := r.capture(func() {
		n.loop(r, f, v, func(v Value) Value { return n.recurse(r, f, v, depth+1) }, depth)
	})
	r.calls--
	return s
}

func (n *forNode) loop(r *run, f *frame, v Value, recurse func(Value) Value, depth int) {
	r.charge(loopBytes)
	l := &Loop{r: r, src: v, it: r.iterate(v), recurse: recurse, depth0: depth, index0: -1, length: -1}
	if n.cond != nil {
		inner := l.it
		l.it = r.iter(func() (Value, bool) {
			for {
				v, ok := inner.next()
				if !ok {
					return nil, false
				}
				r.step()
				g := r.scope(f)
				n.target.assign(r, g, v)
				if truth(r.eval(n.cond, g)) {
					return v, true
				}
			}
		})
		l.src = l.it
	}
	// As in jinja2's compiled code, else runs unless the body reached its end at least
	// once.
	finished := false
	for l.advance() {
		g := r.scope(f)
		r.set(g, "loop", l)
		n.target.assign(r, g, l.current)
		sig := r.exec(n.body, g)
		if sig == sigBreak {
			break
		}
		finished = finished || sig == sigNone
	}
	if !finished {
		r.exec(n.orelse, r.scope(f))
	}
}

// Macros.

// A Macro is a macro, or the body of a call block.
type Macro struct {
	node *macroNode
	home *frame // where it was defined
}

func (n *defNode) exec(r *run, f *frame) signal {
	r.set(f, n.m.name, r.macro(n.m, f))
	return sigNone
}

func (n *callBlock) exec(r *run, f *frame) signal {
	fn := r.eval(n.call.fn, f)
	a := r.arguments(&n.call.args, f)
	r.addKeyword(a, "caller", r.macro(n.m, f))
	r.line = n.line
	r.write(r.toStr(r.invoke(fn, a)))
	return sigNone
}

// macro returns a macro that is defined in a scope.
func (r *run) macro(n *macroNode, home *frame) *Macro {
	r.charge(funcBytes)
	return &Macro{n, home}
}

func (r *run) callMacro(m *Macro, a *args) Value {
	n := m.node
	f := r.scope(m.home)
	kw := r.keywords(a)
	foundCaller := len(a.pos) >= len(n.args) && n.callerArg
	given := r.flags(len(n.args))
	for i, name := range n.args {
		r.step()
		if i < len(a.pos) {
			r.set(f, name, a.pos[i])
			given[i] = true
			continue
		}
		if name == "caller" {
			foundCaller = true
		}
		if v, ok := kw.take(name); ok {
			r.set(f, name, v)
			given[i] = true
		}
	}
	if n.caller && !foundCaller {
		v, ok := kw.take("caller")
		if !ok || v == nil {
			v = r.undef(Undefined{name: "caller", message: "No caller defined"})
		}
		r.set(f, "caller", v)
	}
	if n.kwargs {
		r.set(f, "kwargs", kw.rest())
	} else if name, ok := kw.first(); ok {
		if kw.has("caller") {
			throw("TypeError", "macro %s was invoked with two values for the special caller argument. This is most likely a bug.", quote(n.name))
		}
		throw("TypeError", "macro %s takes no keyword argument %s", quote(n.name), quote(name))
	}
	if n.varargs {
		r.set(f, "varargs", r.tuple(a.pos[min(len(a.pos), len(n.args)):]...))
	} else if len(a.pos) > len(n.args) {
		throw("TypeError", "macro %s takes not more than %d argument(s)", quote(n.name), len(n.args))
	}
	r.call()
	s := r.capture(func() {
		for i, name := range n.args {
			r.step()
			if given[i] {
				continue
			}
			if n.defaults[i] != nil {
				r.set(f, name, r.eval(n.defaults[i], f))
			} else {
				r.set(f, name, r.undef(Undefined{name: name, param: true}))
			}
		}
		r.exec(n.body, f)
	})
	r.calls--
	return s
}
