package infer

import (
	"errors"
	"fmt"
	"runtime/debug"

	"talf/internal/mapped"
)

// A PanicError is a panic of code that a request brought along, or of a model. It ends what
// called it and nothing else.
type PanicError struct {
	Op    string // what was called, such as "verify"
	Value any    // what panic was called with
	Stack []byte // of the goroutine, where it panicked
}

func (e *PanicError) Error() string { return fmt.Sprintf("%s: panic: %v", e.Op, e.Value) }

// Unwrap returns the value if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// catch turns a panic into an error. It must be deferred itself.
func catch(op string, err *error) {
	if v := recover(); v != nil {
		if fault := mapped.Fault(v); fault != nil { // of an embedding that stays in its file
			v = fault
		}
		*err = &PanicError{Op: op, Value: v, Stack: debug.Stack()}
	}
}

// panicked reports whether err is a panic, or wraps one.
func panicked(err error) bool {
	var p *PanicError
	return errors.As(err, &p)
}

// named is err with the operation, which a panic names already.
func named(op string, err error) error {
	if _, ok := err.(*PanicError); ok {
		return err
	}
	return fmt.Errorf("%s: %w", op, err)
}
