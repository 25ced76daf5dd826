package arch

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
)

// Canonical lists every field of the specification by the name that its tag gives, in
// JSON: equal specifications give equal lists, and a field that changes what a model
// computes cannot be left out. A field of value zero is left out if its tag ends in
// ",omitzero". A new field's does, and its zero stands for what was computed before
// it, so that the lists of other models stay as they are. Terms follow from Arch and
// from the form of the files, and are not listed.
func (s *Spec) Canonical() map[string]json.RawMessage {
	all := make(map[string]json.RawMessage)
	list(all, "", reflect.ValueOf(*s))
	if eps := "rms_norm_eps"; s.LayerNorm { // the name in configurations with LayerNorm
		all["layer_norm_eps"] = all[eps]
		delete(all, eps)
	}
	return all
}

// list adds the fields of a struct. Those of a struct in it are listed beside its own, after its
// name and a point if it has a name.
func list(all map[string]json.RawMessage, prefix string, v reflect.Value) {
	for i := range v.NumField() {
		f, x := v.Type().Field(i), v.Field(i)
		tag, given := f.Tag.Lookup("config")
		name, option, _ := strings.Cut(tag, ",")
		switch {
		case !given || name == "" && x.Kind() != reflect.Struct:
			panic(fmt.Sprintf("arch: field %s.%s has the tag %q, want config:\"NAME\"", v.Type(), f.Name, f.Tag))
		case name == "-" || option == "omitzero" && (x.IsZero() || x.Kind() == reflect.Slice && x.Len() == 0):
		case x.Kind() == reflect.Struct:
			if name != "" {
				name += "."
			}
			list(all, prefix+name, x)
		default:
			raw, err := json.Marshal(plain(x))
			if err != nil {
				panic("arch: " + err.Error()) // fields are numbers, texts and lists of them
			}
			if all[prefix+name] != nil {
				panic(fmt.Sprintf("arch: two fields are called %q", prefix+name))
			}
			all[prefix+name] = raw
		}
	}
}

// plain returns the value of a field, the name of one that has a name.
func plain(v reflect.Value) any {
	if s, ok := v.Interface().(fmt.Stringer); ok {
		return strings.ToLower(s.String())
	}
	return v.Interface()
}
