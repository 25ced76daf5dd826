package command

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
)

// bytesText writes n as a person reads it: "3.2 GiB".
func bytesText(n uint64) string {
	const unit = 1024
	if n < unit {
		return fmt.Sprintf("%d B", n)
	}
	v, i := float64(n)/unit, 0
	for v >= unit && i < 4 {
		v /= unit
		i++
	}
	return fmt.Sprintf("%.1f %ciB", v, "KMGTP"[i])
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K {
	return slices.Sorted(maps.Keys(m))
}

// plainJSON says what is wrong with a value without the names of Go's types.
func plainJSON(err error) error {
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
