package origin

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
)

// Difference names the alphabetically first field in which a configuration differs from what it was, as checkpoints
// store both.
func Difference(was, is any) string {
	a, b := Fields(was), Fields(is)
	keys := slices.Collect(maps.Keys(a))
	for k := range b {
		if _, ok := a[k]; !ok {
			keys = append(keys, k)
		}
	}
	slices.Sort(keys)
	for _, k := range keys {
		if !reflect.DeepEqual(a[k], b[k]) {
			return fmt.Sprintf("%s was %v, is %v", k, orNotGiven(a[k]), orNotGiven(b[k]))
		}
	}
	return "equal"
}

// Fields returns the fields of a configuration by their JSON names.
func Fields(config any) (fields map[string]any) {
	raw, err := json.Marshal(config)
	if err == nil {
		err = json.Unmarshal(raw, &fields)
	}
	if err != nil {
		panic("origin: " + err.Error()) // all fields are plain
	}
	return fields
}

// orNotGiven returns the value of a field for a message.
func orNotGiven(v any) any {
	if v == nil {
		return "not given"
	}
	return v
}
