// Package panics turns panics into errors.
package panics

import (
	"errors"
	"fmt"
	"runtime/debug"
)

// An Error is a panic of code that a request brought along, or of a model. It ends what
// called it and nothing else.
type Error struct {
	Op    string // what was called, such as "verify"
	Value any    // what panic was called with
	Stack []byte // of the goroutine, where it panicked
}

func (e *Error) Error() string { return fmt.Sprintf("%s: panic: %v", e.Op, e.Value) }

// Unwrap returns the value if it is an error.
func (e *Error) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// Catch turns a panic into an error. It must be deferred itself.
func Catch(op string, err *error) {
	if v := recover(); v != nil {
		*err = &Error{Op: op, Value: v, Stack: debug.Stack()}
	}
}

// Is reports whether err is a panic, or wraps one.
func Is(err error) bool {
	var p *Error
	return errors.As(err, &p)
}

// Named is err with the operation, which a panic names already.
func Named(op string, err error) error {
	if _, ok := err.(*Error); ok {
		return err
	}
	return fmt.Errorf("%s: %w", op, err)
}
