package ijson

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
)

// A decoder decodes checked JSON. It walks through structs, and lists of them, itself, and leaves
// everything else to encoding/json.
type decoder struct {
	known bool // keys that no field has are errors
}

func (d decoder) value(b []byte, v reflect.Value, path string) error {
	if !hasFields(v.Type()) {
		return located(path, json.Unmarshal(b, v.Addr().Interface()))
	}
	null := string(b) == "null"
	switch v.Kind() {
	case reflect.Pointer:
		if null {
			v.SetZero()
			return nil
		}
		if v.IsNil() {
			v.Set(reflect.New(v.Type().Elem()))
		}
		return d.value(b, v.Elem(), path)
	case reflect.Slice:
		var list []json.RawMessage
		if err := json.Unmarshal(b, &list); err != nil || null {
			v.SetZero()
			return located(path, err)
		}
		v.Set(reflect.MakeSlice(v.Type(), len(list), len(list)))
		for i, raw := range list {
			if err := d.value(raw, v.Index(i), fmt.Sprintf("%s[%d]", path, i)); err != nil {
				return err
			}
		}
		return nil
	}
	list, err := members(b)
	if err != nil {
		return located(path, err)
	}
	for _, m := range list {
		at := join(path, m.Key)
		f := field(v.Type(), m.Key)
		if f < 0 {
			if d.known {
				return &Error{at, ErrUnknown}
			}
			continue
		}
		if err := d.value(m.Value, v.Field(f), at); err != nil {
			return err
		}
	}
	return nil
}

// hasFields reports whether values of a type are structs, or pointers to or lists of them, that
// do not decode themselves.
func hasFields(t reflect.Type) bool {
	if t.Implements(reflect.TypeFor[json.Unmarshaler]()) || reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()) {
		return false
	}
	switch t.Kind() {
	case reflect.Struct:
		return true
	case reflect.Pointer, reflect.Slice:
		return hasFields(t.Elem())
	}
	return false
}

// field returns the index of the field that a key names, or -1.
func field(t reflect.Type, key string) int {
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" {
			name = f.Name
		}
		if f.Anonymous {
			panic("ijson: " + t.String() + " embeds a type, which is not supported")
		}
		if f.IsExported() && f.Tag.Get("json") != "-" && name == key {
			return i
		}
	}
	return -1
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// located adds where a value is to its error, which names no type of Go's.
func located(path string, err error) error {
	if err == nil {
		return nil
	}
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) {
		got := "a " + wrong.Value // a number has its value
		switch wrong.Value {
		case "array":
			got = "a list"
		case "object":
			got = "an object"
		case "bool":
			got = "a boolean"
		case "string":
			got = "a text"
		}
		err = fmt.Errorf("%s, want %s", got, want(wrong.Type))
	}
	var own *Error
	if errors.As(err, &own) && own.Field == "" {
		err = own.Err
	}
	return &Error{path, err}
}

// want says what JSON a type takes.
func want(t reflect.Type) string {
	switch k := t.Kind(); {
	case k >= reflect.Int && k <= reflect.Uint64:
		return "a whole number of " + strconv.Itoa(t.Bits()) + " bits"
	case k == reflect.Float32 || k == reflect.Float64:
		return "a number"
	case k == reflect.Bool:
		return "true or false"
	case k == reflect.Slice || k == reflect.Array:
		return "a list"
	case k == reflect.String:
		return "a text"
	}
	return "an object"
}
