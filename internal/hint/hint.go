// Package hint says, beside an error, which option would help. The error's own text names none, since
// a library has other options than a command line: that adds the hint, with the names of its flags.
package hint

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// An Error is an error that an option would help with.
type Error struct {
	Err  error
	Hint string // a clause in which {name} is the option called name
}

func (e *Error) Error() string { return e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

// Errorf returns an error with a hint.
func Errorf(hint, format string, args ...any) error {
	return &Error{Err: fmt.Errorf(format, args...), Hint: hint}
}

// Text returns err's text with the hints of all errors that it wraps, in which options are flags.
func Text(err error) string {
	parts := []string{err.Error()}
	var add func(err error)
	add = func(err error) {
		if e, ok := err.(*Error); ok {
			parts = append(parts, Flags(e.Hint))
		}
		switch e := err.(type) {
		case interface{ Unwrap() []error }:
			for _, err := range e.Unwrap() {
				add(err)
			}
		default:
			if err := errors.Unwrap(err); err != nil {
				add(err)
			}
		}
	}
	add(err)
	return strings.Join(parts, ": ")
}

var option = regexp.MustCompile(`\{([a-z][a-z-]*)\}`)

// Flags returns a hint in which options are flags.
func Flags(hint string) string { return option.ReplaceAllString(hint, "--$1") }
