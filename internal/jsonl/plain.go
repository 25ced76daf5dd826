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
	switch k := wrong.Type.Kind(); {
	case k >= reflect.Int && k <= reflect.Uint64:
		want = "a whole number of " + strconv.Itoa(wrong.Type.Bits()) + " bits"
	case k == reflect.Float32 || k == reflect.Float64:
		want = "a number"
	case k == reflect.Bool:
		want = "true or false"
	case k == reflect.Slice || k == reflect.Array:
		want = "a list"
	case k == reflect.String:
		want = "a text"
	}
	if wrong.Field == "" {
		return fmt.Errorf("%s, want %s", wrong.Value, want)
	}
	return fmt.Errorf("%s is a %s, want %s", wrong.Field, wrong.Value, want)
}
