// Package plan is what the checks of all Go clients share: the plan, and the report. See plan.py.
package plan

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"reflect"
)

// A Plan says what to ask, and what the answers are.
type Plan struct {
	Base, Busy, Key, Model string
	Prompt, Text           string
	Stop, Stopped          string
	MaxTokens              int64 `json:"max_tokens"`
	Temperature            float64
	Seed                   int64
	Sampled                []string
}

// Read reads the plan that the first argument of the process names.
func Read() (p Plan) {
	b, err := os.ReadFile(os.Args[1])
	if err == nil {
		err = json.Unmarshal(b, &p)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	return p
}

// Check runs a check and reports what was wrong.
func Check(name string, run func() error) {
	var report struct {
		Check string  `json:"check"`
		Error *string `json:"error"`
	}
	report.Check = name
	func() {
		defer func() {
			if p := recover(); p != nil {
				s := fmt.Sprint("panic: ", p)
				report.Error = &s
			}
		}()
		if err := run(); err != nil {
			s := err.Error()
			report.Error = &s
		}
	}()
	b, err := json.Marshal(report)
	if err != nil {
		panic(err) // strings
	}
	fmt.Println(string(b))
}

// Equal compares what a client has with what it should have.
func Equal[T any](got, want T, what string) error {
	if reflect.DeepEqual(got, want) {
		return nil
	}
	return fmt.Errorf("%s is %#v, want %#v", what, got, want)
}

// UntilBusy asks a server that is nearly always full until it refuses.
func UntilBusy(call func() error) error {
	for range 200 {
		if err := call(); err != nil {
			return err
		}
	}
	return errors.New("no refusal in 200 requests")
}
