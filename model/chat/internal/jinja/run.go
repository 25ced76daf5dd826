// Package jinja implements the part of Jinja2 that chat templates are written in, with
// Python's values. It corresponds to the environment that transformers uses:
// ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True) with loop
// controls, {% generation %}, and its own tojson, raise_exception and strftime_now.
// Names, messages and quirks follow jinja2 3.1.6 and Python 3.11.
//
// Inside the package errors travel as panics, as in text/template; outside it they are
// of type *Error.
package jinja

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"
)

// An Error is an exception of a template.
type Error struct {
	Kind    string // its class in Python
	Message string
	Line    int  // of the template; 0: unknown
	Raised  bool // by raise_exception
}

func (e *Error) Error() string { return e.Kind + ": " + e.Message }

// thrown is the panic value of an exception.
type thrown struct{ err error }

// throw raises an exception.
func throw(kind, format string, a ...any) {
	panic(thrown{&Error{Kind: kind, Message: fmt.Sprintf(format, a...)}})
}

func throwAt(line int, kind, format string, a ...any) {
	panic(thrown{&Error{Kind: kind, Message: fmt.Sprintf(format, a...), Line: line}})
}

// catch turns a thrown value into an error. A fault of this package becomes an error
// too, because a template must not crash the program.
func catch(err *error) {
	switch p := recover().(type) {
	case nil:
	case thrown:
		*err = p.err
	case runtime.Error:
		*err = &Error{Kind: "InternalError", Message: p.Error()}
	default:
		panic(p)
	}
}

// Bounds of one rendering. Values are charged when they are made and never credited
// back, so the bounds hold no matter what a template keeps.
const (
	maxOutput     = 16 << 20  // bytes of the rendered text, and of any intermediate text
	maxItems      = 1 << 20   // items of one list or dict
	maxBytes      = 512 << 20 // bytes made in total
	maxSteps      = 8 << 20   // nodes evaluated, items visited and KiB of text read
	maxDepth      = 1500      // of nested evaluation
	maxCalls      = 250       // of nested macros, callers and recursive loops
	maxValueDepth = 500       // of nested lists and dicts
	maxBits       = 1 << 16   // of an int
)

// checkDepth bounds recursion over nested values.
func checkDepth(depth int) {
	if depth > maxValueDepth {
		throw("RecursionError", "maximum recursion depth exceeded")
	}
}

// Options are the inputs of a rendering other than its variables.
type Options struct {
	Now func() time.Time // the clock of strftime_now; nil is time.Now
}

// A Span is a range of bytes.
type Span struct{ Start, End int }

// Output is a rendered text and its {% generation %} blocks.
type Output struct {
	Text  string
	Spans []Span
}

// run is one rendering.
type run struct {
	ctx   context.Context
	vars  *Dict
	now   func() time.Time
	root  *frame
	out   []byte // of the innermost captured block
	top   *[]byte
	spans []Span
	steps int64
	bytes int64
	depth int
	calls int
	line  int // of the node being evaluated
}

// Render renders a template. The variables are not changed.
func (t *Template) Render(ctx context.Context, vars *Dict, o Options) (out Output, err error) {
	if err := ctx.Err(); err != nil {
		return Output{}, err
	}
	r := &run{ctx: ctx, vars: vars, now: o.Now, root: &frame{}}
	if r.now == nil {
		r.now = time.Now
	}
	r.top = &r.out
	defer func() {
		var e *Error
		if errors.As(err, &e) && e.Line == 0 {
			e.Line = r.line
		}
	}()
	defer catch(&err)
	r.exec(t.body, r.root)
	return Output{string(r.out), r.spans}, nil
}

// step counts one node or item.
func (r *run) step() {
	r.steps++
	if r.steps&1023 == 0 {
		if err := r.ctx.Err(); err != nil {
			panic(thrown{err})
		}
		r.checkSteps()
	}
}

func (r *run) checkSteps() {
	if r.steps > maxSteps {
		throw("LimitError", "the template takes more than %d steps", maxSteps)
	}
}

// work counts n bytes that are about to be read.
func (r *run) work(n int) {
	if n < 1024 {
		return
	}
	if err := r.ctx.Err(); err != nil {
		panic(thrown{err})
	}
	r.steps += int64(n / 1024)
	r.checkSteps()
}

// charge counts n bytes that are about to be made.
func (r *run) charge(n int) {
	r.checkSize(n)
	r.bytes += int64(n)
	if r.bytes > maxBytes {
		throw("LimitError", "the template makes more than %d MiB of values", maxBytes>>20)
	}
	r.work(n)
}

// checkSize refuses a text of n bytes if it is too long.
func (r *run) checkSize(n int) {
	if n > maxOutput {
		throw("LimitError", "the template makes a text of more than %d MiB", maxOutput>>20)
	}
}

// list charges for a list and returns it.
func (r *run) list(items []Value) *List {
	r.chargeItems(len(items))
	return &List{items}
}

func (r *run) chargeItems(n int) {
	if n > maxItems {
		throw("LimitError", "the template makes a list of more than %d items", maxItems)
	}
	r.charge(16 * n)
}

// str charges for a text and returns it.
func (r *run) str(s string) string {
	r.charge(len(s))
	return s
}

// write adds to the output.
func (r *run) write(s string) {
	r.charge(len(s))
	r.checkSize(len(r.out) + len(s))
	r.out = append(r.out, s...)
}

// capture runs f and returns what it writes.
func (r *run) capture(f func()) string {
	outer, top := r.out, r.top
	if top == &r.out {
		// Output written at the top level stays visible to generation blocks.
		r.top = &outer
	}
	r.out = nil
	f()
	s := string(r.out)
	r.charge(len(s))
	r.out, r.top = outer, top
	return s
}

// nest guards one level of evaluation.
func (r *run) nest() {
	r.depth++
	if r.depth > maxDepth {
		throw("RecursionError", "maximum recursion depth exceeded")
	}
}

// call guards one level of macros.
func (r *run) call() {
	r.calls++
	if r.calls > maxCalls {
		throw("RecursionError", "maximum recursion depth exceeded")
	}
}

// A frame is one scope.
type frame struct {
	parent *frame
	vars   []binding
	few    [3]binding // vars starts here: most scopes have no more
}

type binding struct {
	name string
	val  Value
}

func (f *frame) set(name string, v Value) {
	for i := range f.vars {
		if f.vars[i].name == name {
			f.vars[i].val = v
			return
		}
	}
	if f.vars == nil {
		f.vars = f.few[:0]
	}
	f.vars = append(f.vars, binding{name, v})
}

// lookup resolves a name.
func (r *run) lookup(f *frame, name string) Value {
	for ; f != nil; f = f.parent {
		for i := range f.vars {
			if f.vars[i].name == name {
				return f.vars[i].val
			}
		}
	}
	if v, ok := r.vars.GetString(name); ok {
		return v
	}
	if fn, ok := globals[name]; ok {
		return fn
	}
	return &Undefined{name: name, message: quote(name) + " is undefined"}
}
