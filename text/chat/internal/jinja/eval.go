package jinja

// An expr is an expression.
type expr interface {
	eval(r *run, f *frame) Value
}

// A stmt is a statement.
type stmt interface {
	exec(r *run, f *frame) signal
}

// A target is the left side of an assignment.
type target interface {
	check(r *run, f *frame) // that it can be assigned to, before the value is computed
	assign(r *run, f *frame, v Value)
}

// A signal is a jump out of a loop's body.
type signal uint8

const (
	sigNone signal = iota
	sigBreak
	sigContinue
)

type (
	constNode struct{ v Value }
	nameNode  struct {
		line int
		name string
	}
	seqNode struct {
		line  int
		items []expr
		tuple bool
	}
	dictNode struct {
		line       int
		keys, vals []expr
	}
	condNode struct {
		line              int
		test, then, other expr
	}
	logicNode struct {
		left, right expr
		or          bool
	}
	notNode struct{ x expr }
	operand struct {
		op string
		x  expr
	}
	compareNode struct {
		line  int
		first expr
		ops   []operand
	}
	binaryNode struct {
		line        int
		op          string
		left, right expr
	}
	unaryNode struct {
		line int
		op   string
		x    expr
	}
	concatNode struct {
		line  int
		items []expr
	}
	attrNode struct {
		line int
		x    expr
		name string
	}
	itemNode struct {
		line int
		x    expr
		key  expr
	}
	sliceNode struct {
		line              int
		x                 expr
		start, stop, step expr
	}
	argList struct {
		pos            []expr
		names          []string
		kw             []expr
		star, starstar expr
	}
	callNode struct {
		line int
		fn   expr
		args argList
	}
	filterNode struct {
		line int
		x    expr // nil: the body of the enclosing block
		name string
		fn   func(r *run, x Value, a *args) Value
		args argList
	}
	testNode struct {
		line int
		x    expr
		name string
		fn   func(r *run, x Value, a *args) bool
		args argList
	}
)

func (r *run) eval(e expr, f *frame) Value {
	r.step()
	r.nest()
	v := e.eval(r, f)
	r.depth--
	return v
}

func (n *constNode) eval(*run, *frame) Value { return n.v }

func (n *nameNode) eval(r *run, f *frame) Value {
	r.line = n.line
	return r.lookup(f, n.name)
}

func (r *run) evalAll(es []expr, f *frame) []Value {
	out := r.slots(len(es))
	for i, e := range es {
		out[i] = r.eval(e, f)
	}
	return out
}

func (n *seqNode) eval(r *run, f *frame) Value {
	items := r.evalAll(n.items, f)
	if n.tuple {
		return &Tuple{Items: items}
	}
	return &List{items}
}

func (n *dictNode) eval(r *run, f *frame) Value {
	d := NewDict()
	for i, k := range n.keys {
		key := r.eval(k, f)
		val := r.eval(n.vals[i], f)
		r.line = n.line
		r.put(d, key, val)
	}
	return d
}

func (n *condNode) eval(r *run, f *frame) Value {
	if truth(r.eval(n.test, f)) {
		return r.eval(n.then, f)
	}
	if n.other != nil {
		return r.eval(n.other, f)
	}
	return r.undef(Undefined{message: "the inline if-expression evaluated to false and no else section was defined."})
}

func (n *logicNode) eval(r *run, f *frame) Value {
	v := r.eval(n.left, f)
	if truth(v) == n.or {
		return v
	}
	return r.eval(n.right, f)
}

func (n *notNode) eval(r *run, f *frame) Value { return !truth(r.eval(n.x, f)) }

func (n *compareNode) eval(r *run, f *frame) Value {
	left := r.eval(n.first, f)
	ok := true
	for _, o := range n.ops {
		right := r.eval(o.x, f)
		r.line = n.line
		switch o.op {
		case "==":
			ok = r.equal(left, right)
		case "!=":
			ok = !r.equal(left, right)
		case "in":
			ok = r.contains(right, left)
		case "not in":
			ok = !r.contains(right, left)
		default:
			ok = r.order(o.op, left, right)
		}
		if !ok {
			break
		}
		left = right
	}
	return ok
}

func (n *binaryNode) eval(r *run, f *frame) Value {
	left := r.eval(n.left, f)
	right := r.eval(n.right, f)
	r.line = n.line
	return r.binary(n.op, left, right)
}

func (n *unaryNode) eval(r *run, f *frame) Value {
	x := r.eval(n.x, f)
	r.line = n.line
	return r.unary(n.op, x)
}

func (n *concatNode) eval(r *run, f *frame) Value {
	b := buf{r: r}
	for _, e := range n.items {
		b.str(r.toStr(r.eval(e, f)))
	}
	return b.text()
}

func (n *attrNode) eval(r *run, f *frame) Value {
	x := r.eval(n.x, f)
	r.line = n.line
	return r.getattr(x, n.name)
}

func (n *itemNode) eval(r *run, f *frame) Value {
	x := r.eval(n.x, f)
	key := r.eval(n.key, f)
	r.line = n.line
	return r.getitem(x, key)
}

func (n *sliceNode) eval(r *run, f *frame) Value {
	x := r.eval(n.x, f)
	bounds := [3]Value{}
	for i, e := range []expr{n.start, n.stop, n.step} {
		if e != nil {
			bounds[i] = r.eval(e, f)
		}
	}
	r.line = n.line
	return r.slice(x, bounds)
}

// args are the arguments of a call.
type args struct {
	pos   []Value
	names []string
	kw    []Value
}

func (r *run) arguments(l *argList, f *frame) *args {
	r.charge(argsBytes)
	a := &args{}
	if len(l.pos) > 0 {
		a.pos = r.evalAll(l.pos, f)
	}
	if len(l.kw) > 0 {
		a.names = l.names[:len(l.names):len(l.names)]
		a.kw = r.evalAll(l.kw, f)
	}
	if l.star != nil {
		v := r.eval(l.star, f)
		a.pos = r.joined(a.pos, r.collectAs(v, func() {
			throw("TypeError", "Value after * must be an iterable, not %s", typeName(v))
		}))
	}
	if l.starstar != nil {
		v := r.eval(l.starstar, f)
		d, ok := v.(*Dict)
		if !ok {
			throw("TypeError", "argument after ** must be a mapping, not %s", typeName(v))
		}
		given := r.nameSet(a.names)
		for k, v := range d.All() {
			r.step()
			name, ok := text(k)
			if !ok {
				throw("TypeError", "keywords must be strings")
			}
			if given(name) {
				throw("TypeError", "got multiple values for keyword argument %s", quote(name))
			}
			r.addKeyword(a, name, v)
		}
	}
	return a
}

// take removes and returns a keyword argument.
func (r *run) take(a *args, name string) (Value, bool) {
	for i, n := range a.names {
		r.work(1)
		if n == name {
			v := a.kw[i]
			r.dropKeyword(a, i)
			return v, true
		}
	}
	return nil, false
}

// missing represents an argument that was not given.
var missing Value = &Undefined{message: "missing"}

// bind matches arguments with a function's parameters. The first required ones must be
// given; others that are not given are missing.
func (a *args) bind(fn string, required int, params ...string) []Value {
	out := bound(len(params))
	if len(a.pos) > len(params) {
		throw("TypeError", "%s() takes at most %d arguments (%d given)", fn, len(params), len(a.pos))
	}
	n := copy(out, a.pos)
	for i := n; i < len(out); i++ {
		out[i] = missing
	}
next:
	for i, name := range a.names {
		for k, p := range params {
			if p != name {
				continue
			}
			if k < n {
				throw("TypeError", "%s() got multiple values for argument %s", fn, quote(name))
			}
			out[k] = a.kw[i]
			continue next
		}
		throw("TypeError", "%s() got an unexpected keyword argument %s", fn, quote(name))
	}
	for i := range required {
		if out[i] == missing {
			throw("TypeError", "%s() missing a required argument: %s", fn, quote(params[i]))
		}
	}
	return out
}

func (n *callNode) eval(r *run, f *frame) Value {
	fn := r.eval(n.fn, f)
	a := r.arguments(&n.args, f)
	r.line = n.line
	return r.invoke(fn, a)
}

// invoke calls a value.
func (r *run) invoke(fn Value, a *args) Value {
	switch x := fn.(type) {
	case *Func:
		return x.call(r, a)
	case *Macro:
		return r.callMacro(x, a)
	case *Loop:
		v := a.bind("loop", 1, "iterable")
		if x.recurse == nil {
			throw("TypeError", "The loop must have the 'recursive' marker to be called recursively.")
		}
		return x.recurse(v[0])
	case *Undefined:
		r.use(x)
	}
	throw("TypeError", "%s object is not callable", quote(typeName(fn)))
	return nil
}

func (n *filterNode) eval(r *run, f *frame) Value {
	return n.apply(r, f, r.eval(n.x, f))
}

// apply runs the filter over a value.
func (n *filterNode) apply(r *run, f *frame, x Value) Value {
	a := r.arguments(&n.args, f)
	r.line = n.line
	if n.fn == nil {
		throw("TemplateRuntimeError", "No filter named %s found.", quote(n.name))
	}
	return n.fn(r, x, a)
}

func (n *testNode) eval(r *run, f *frame) Value {
	x := r.eval(n.x, f)
	a := r.arguments(&n.args, f)
	r.line = n.line
	if n.fn == nil {
		throw("TemplateRuntimeError", "No test named %s found.", quote(n.name))
	}
	return n.fn(r, x, a)
}

// Statements.
