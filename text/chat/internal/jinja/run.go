// Package jinja implements the part of Jinja2 that chat templates are written in, with
// Python's values. It corresponds to the environment that transformers uses:
// ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True) with loop
// controls, {% generation %}, and its own tojson, raise_exception and strftime_now.
// Names, messages and quirks follow jinja2 3.1.6 and Python 3.11.
//
// Inside the package errors travel as panics, as in text/template; outside it they are
// of type *Error.
//
// A template is untrusted input. Each text, list, dict and number that it makes is made by
// alloc.go, text.go, textcase.go, number.go or value.go, which charge the run's meter first; the other
// files are written in terms of what those offer, and of Go's operations that take constant
// time.
package jinja

import (
	"context"
	"errors"
	"fmt"
	"time"

	"talf/internal/limits"
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

// catch turns a panic into an error. A fault of this package becomes an error too,
// whatever its value is: a template must not crash the program.
func catch(err *error) {
	switch p := recover().(type) {
	case nil:
	case thrown:
		*err = p.err
	default:
		*err = &Error{Kind: "InternalError", Message: fmt.Sprintf("%T: %v", p, p)}
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
	meter *limits.Meter // nil: nothing is charged
	due   int           // units of work that the meter does not know of
	owed  int           // bytes that the meter does not know of
	vars  *Dict
	now   func() time.Time
	root  *frame
	out   []byte // of the innermost captured block
	top   *[]byte
	spans []Span
	depth int
	calls int
	line  int // of the node being evaluated
	fold  casers
}

// Render renders a template. The variables are not changed.
func (t *Template) Render(ctx context.Context, vars *Dict, o Options) (Output, error) {
	return t.renderWithin(ctx, vars, o, limits.Budget{Steps: limits.TemplateSteps, Bytes: limits.TemplateMade})
}

func (t *Template) renderWithin(ctx context.Context, vars *Dict, o Options, b limits.Budget) (out Output, err error) {
	if err := ctx.Err(); err != nil {
		return Output{}, err
	}
	r := &run{meter: limits.NewMeter(ctx, b), vars: vars, now: o.Now, root: &frame{}}
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
	return Output{r.textOf(r.out), r.spans}, nil
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
	s := r.textOf(r.out)
	r.out, r.top = outer, top
	return s
}

// nest guards one level of evaluation.
func (r *run) nest() {
	r.depth++
	if r.depth > limits.TemplateDepth {
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
