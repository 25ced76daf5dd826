package jsonl

import (
	"encoding/json"
	"errors"
	"testing"
)

func TestPlainNamesNoTypeOfGo(t *testing.T) {
	type value struct {
		IDs  []int32        `json:"ids"`
		Seed uint64         `json:"seed"`
		Rate float64        `json:"rate"`
		Echo bool           `json:"echo"`
		Text *string        `json:"text"`
		More map[string]int `json:"more"`
	}
	for in, want := range map[string]string{
		`3`:                 "number, want an object",
		`{"ids":3}`:         "ids is a number, want a list",
		`{"ids":["a"]}`:     "ids is a string, want a whole number of 32 bits",
		`{"seed":"a"}`:      "seed is a string, want a whole number of 64 bits",
		`{"rate":"a"}`:      "rate is a string, want a number",
		`{"echo":1}`:        "echo is a number, want true or false",
		`{"text":1}`:        "text is a number, want a text",
		`{"more":1}`:        "more is a number, want an object",
		`{"more":{"a":""}}`: "more is a string, want a whole number of 64 bits",
	} {
		if err := Plain(json.Unmarshal([]byte(in), new(value))); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", in, err, want)
		}
	}
	if other := errors.New("other"); Plain(other) != other {
		t.Error("another error has changed")
	}
}
