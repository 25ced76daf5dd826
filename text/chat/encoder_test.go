package chat_test

import (
	"slices"
	"testing"

	"talf/text/chat"
)

// around is a tokenizer of bytes that puts ids before and after a text. "<s>" stands
// for the first of the ids before it.
type around struct{ before, after []int32 }

func (a around) Encode(text string, special bool) (ids []int32, err error) {
	if special {
		ids = append(ids, a.before...)
	}
	for len(text) > 0 {
		if len(text) >= 3 && text[:3] == "<s>" {
			ids, text = append(ids, 256), text[3:]
			continue
		}
		ids, text = append(ids, int32(text[0])), text[1:]
	}
	if special {
		ids = append(ids, a.after...)
	}
	return ids, nil
}

func TestPromptsHaveOneBeginningTokenAndNoEndToken(t *testing.T) {
	for name, c := range map[string]struct {
		tok  around
		text string
		want []int32
	}{
		"nothing":                          {around{}, "ab", []int32{'a', 'b'}},
		"a beginning":                      {around{before: []int32{256}}, "a", []int32{256, 'a'}},
		"a beginning and an end":           {around{before: []int32{256}, after: []int32{257}}, "a", []int32{256, 'a'}},
		"an end":                           {around{after: []int32{257}}, "a", []int32{'a'}},
		"the text has its beginning token": {around{before: []int32{256}, after: []int32{257}}, "<s>a", []int32{256, 'a'}},
		"the text has it twice":            {around{before: []int32{256}}, "<s><s>a", []int32{256, 256, 'a'}},
		"the text is its beginning":        {around{before: []int32{256}}, "<s>", []int32{256}},
		"an empty text":                    {around{before: []int32{256}, after: []int32{257}}, "", []int32{256}},
		"a beginning that is not one":      {around{}, "<s>a", []int32{256, 'a'}},
	} {
		e, err := chat.NewEncoder(c.tok)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := e.Encode(c.text); err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, %v, want %v", name, got, err, c.want)
		}
		if got, err := e.Prompt(t.Context(), chat.Prompt{Text: "<s>a"}); err != nil || !slices.Equal(got, []int32{256, 'a'}) {
			t.Errorf("%s: a template's output became %v, %v", name, got, err)
		}
		if !slices.Equal(e.Before(), c.tok.before) {
			t.Errorf("%s: %v before, want %v", name, e.Before(), c.tok.before)
		}
	}
}
