package jsonl

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
)

// Plain describes what is wrong with a JSON value without naming Go's types.
func Plain(err error) error {
	var wrong *json.UnmarshalTypeError
	if !errors.As(err, &wrong) {
		return err
	}
	want := "an object"
	switch wrong.Type.Kind() {
	case reflect.Int, reflect.Int32:
		want = "a whole number of " + strconv.Itoa(wrong.Type.Bits()) + " bits"
	case reflect.Slice:
		want = "a list"
	case reflect.String:
		want = "a text"
	}
	if wrong.Field == "" {
		return fmt.Errorf("%s, want %s", wrong.Value, want)
	}
	return fmt.Errorf("%s is a %s, want %s", wrong.Field, wrong.Value, want)
}
