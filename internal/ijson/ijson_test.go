package ijson_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"talf/internal/ijson"
	"talf/internal/limits"
)

func TestAmbiguousJSONIsRefused(t *testing.T) {
	deep := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	many := func(last string) string {
		var b strings.Builder
		for i := range 40 {
			fmt.Fprintf(&b, `"k%d": %d, `, i, i)
		}
		return "{" + b.String() + last + "}"
	}
	for _, c := range []struct {
		in    string
		field string
		err   error
	}{
		{`{"a":1,"b":{"a":1},"c":[{"a":1},{"a":2}]}`, "", nil},
		{` [ 1 , -2.5e+3 , true , null , "x" , { } , [ ] ] `, "", nil},
		{`"a\"b\\"`, "", nil},
		{`{"a":1}{}`, "", ijson.ErrAfter},
		{"1 x", "", ijson.ErrAfter},
		{`{"a\"}":"\\","b":"\u00e4\ud83d\ude00\\ud800"}`, "", nil},
		{`{"a":1,"a":2}`, "a", ijson.ErrTwice},
		{`{"te\u0078t":1,"text":2}`, "text", ijson.ErrTwice},
		{`{"":1,"":2}`, "", ijson.ErrTwice},
		{`{"m":[0,{"x":{"k":1,"l":[],"k":[{}]}}]}`, "m[1].x.k", ijson.ErrTwice},
		{`{"a":{"b":1},"b":{"b":1}}`, "", nil},
		{`{"a":1,"A":2}`, "", nil},
		{many(`"k":1`), "", nil},
		{many(`"k7":1`), "k7", ijson.ErrTwice},
		{many(`"k39":1`), "k39", ijson.ErrTwice},
		{many(`"k16":1`), "k16", ijson.ErrTwice},
		{`[[{"a":1,"a":2}]]`, "[0][0].a", ijson.ErrTwice},
		{`{"m":[{"c":"\ud83d"}]}`, "m[0].c", ijson.ErrSurrogate},
		{`{"m":["a","x\udc00\ud83d"]}`, "m[1]", ijson.ErrSurrogate},
		{`"\ud83d\u0041"`, "", ijson.ErrSurrogate},
		{`{"a":{"\ude00":1}}`, "a", ijson.ErrSurrogate},
		{"{\"a\":[\"\xff\"]}", "a[0]", ijson.ErrUTF8},
		{"{\"a\":\"\xed\xa0\x80\"}", "a", ijson.ErrUTF8},
		{deep(limits.JSONDepth), "", nil},
		{`{"a":` + deep(limits.JSONDepth) + "}", "a" + strings.Repeat("[0]", limits.JSONDepth-1), limits.ErrTooLarge},
	} {
		err := ijson.Check([]byte(c.in))
		if !errors.Is(err, c.err) {
			t.Errorf("%.80s: %v, want %v", c.in, err, c.err)
			continue
		}
		var e *ijson.Error
		if errors.As(err, &e) && e.Field != c.field {
			t.Errorf("%.80s: field %q, want %q", c.in, e.Field, c.field)
		}
	}
	for _, bad := range []string{"", "{", `{"a" 1}`, "[1,]", "\"\x01\"", "nul", "{'a':1}"} {
		var syntax *json.SyntaxError
		if err := ijson.Check([]byte(bad)); !errors.As(err, &syntax) {
			t.Errorf("%q: %v, want an error of syntax", bad, err)
		}
	}
}

type inner struct {
	Parents []int   `json:"parents"`
	Weight  float64 `json:"weight,omitempty"`
}

type outer struct {
	IDs   []int32           `json:"ids"`
	Tree  *inner            `json:"tree"`
	Parts []inner           `json:"parts"`
	Text  *string           `json:"text"`
	Map   map[string]string `json:"map"`
	Raw   json.RawMessage   `json:"raw"`
	Plain bool
	Own   string `json:"-"`
}

func TestKeysMatchExactly(t *testing.T) {
	text := "x"
	for in, want := range map[string]outer{
		`{}`:                                 {},
		`{"TEXT":"y","text":"x","Text":"z"}`: {Text: &text},
		`{"Ids":[2],"ids":[1,-1]}`:           {IDs: []int32{1, -1}},
		`{"tree":{"parents":[-1,0],"Weight":2},"Tree":null}`:                   {Tree: &inner{Parents: []int{-1, 0}}},
		`{"tree":null,"parts":null,"text":null}`:                               {},
		`{"parts":[{"weight":2},{"WEIGHT":1}]}`:                                {Parts: []inner{{Weight: 2}, {}}},
		`{"map":{"A":"1","a":"2"},"raw":{"B":[1]},"Plain":true,"plain":false}`: {Map: map[string]string{"A": "1", "a": "2"}, Raw: json.RawMessage(`{"B":[1]}`), Plain: true},
		`{"Own":"x","-":"y","own":"z"}`:                                        {},
	} {
		var got outer
		if err := ijson.Unmarshal([]byte(in), &got); err != nil {
			t.Errorf("%s: %v", in, err)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s: %s", in, d)
		}
	}
}

func TestErrorsNameTheField(t *testing.T) {
	for in, want := range map[string]string{
		`{"ids":[1.5]}`:                   `field "ids": a number 1.5, want a whole number of 32 bits`,
		`{"ids":[[]]}`:                    `field "ids": a list, want a whole number of 32 bits`,
		`{"ids":true}`:                    `field "ids": a boolean, want a list`,
		`{"ids":3}`:                       `field "ids": a number, want a list`,
		`{"tree":{"parents":[0],"x":1}}`:  `field "tree.x": there is no such field`,
		`{"Tree":{}}`:                     `field "Tree": there is no such field`,
		`{"tree":[]}`:                     `field "tree": a list, want an object`,
		`{"parts":{}}`:                    `field "parts": an object, want a list`,
		`{"parts":[{},{"weight":"x"}]}`:   `field "parts[1].weight": a text, want a number`,
		`{"text":1}`:                      `field "text": a number, want a text`,
		`{"Plain":1}`:                     `field "Plain": a number, want true or false`,
		`{"text":"a","tree":{},"text":1}`: `field "text": it occurs twice`,
		`{"map":{"a":1}}`:                 `field "map": a number, want a text`,
		`null`:                            `null, want an object`,
		`"x"`:                             `a text, want an object`,
		`[`:                               `unexpected end of JSON input`,
	} {
		if err := ijson.UnmarshalKnown([]byte(in), new(outer)); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", in, err, want)
		}
	}
}

func TestMembersKeepTheirOrder(t *testing.T) {
	got, err := ijson.Members([]byte(` { "b" : 1 , "a\n" : { "x" : [ 2 ] } , "c":"}" } `))
	if err != nil {
		t.Fatal(err)
	}
	want := []ijson.Member{{Key: "b", Value: json.RawMessage("1")}, {Key: "a\n", Value: json.RawMessage(`{ "x" : [ 2 ] }`)}, {Key: "c", Value: json.RawMessage(`"}"`)}}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if _, err := ijson.Members([]byte("[1]")); err == nil || err.Error() != "a list, want an object" {
		t.Errorf("a list: %v", err)
	}
}

// What Check takes, encoding/json reads as it stands: the same keys, and all text unchanged.
func FuzzCheck(f *testing.F) {
	for _, s := range []string{`{"a":[1,"\ud83d\ude00",{"b":null}],"c":"\\"}`, `{"a":1,"a":2}`, `"\ud800"`, "[[[]]]", "\"\xff\"", " 1 ", `{"\u0000":{}}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		err := ijson.Check(b)
		if err != nil {
			return
		}
		if !utf8.Valid(b) {
			t.Fatalf("%q is not UTF-8", b)
		}
		v := decode(t, b)
		// U+FFFD comes from the text alone.
		n := strings.Count(string(b), "\ufffd") + strings.Count(strings.ToLower(string(b)), `\ufffd`)
		if got := broken(v); got > n {
			t.Errorf("%q: %d characters were replaced", b, got-n)
		}
		list, err := ijson.Members(b)
		o, object := v.(map[string]any)
		if object != (err == nil) {
			t.Fatalf("%q: %v", b, err)
		}
		if len(list) != len(o) {
			t.Fatalf("%q: %d members, want %d", b, len(list), len(o))
		}
		for _, m := range list {
			if x := decode(t, m.Value); !cmp.Equal(x, o[m.Key]) {
				t.Errorf("%q: %q is %v, want %v", b, m.Key, x, o[m.Key])
			}
		}
	})
}

func decode(t *testing.T, b []byte) (v any) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber() // there are numbers that no float64 holds
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%q: %v", b, err)
	}
	return v
}

// broken counts U+FFFD in a value.
func broken(v any) (n int) {
	switch x := v.(type) {
	case string:
		return strings.Count(x, "\ufffd")
	case []any:
		for _, y := range x {
			n += broken(y)
		}
	case map[string]any:
		for k, y := range x {
			n += broken(k) + broken(y)
		}
	}
	return n
}

func BenchmarkCheck(b *testing.B) {
	line := []byte(`{"messages":[` + strings.Repeat(`{"role":"user","content":"`+strings.Repeat("some words \\n and more, ", 40)+`"},`, 20) + `{}]}`)
	b.SetBytes(int64(len(line)))
	for b.Loop() {
		if err := ijson.Check(line); err != nil {
			b.Fatal(err)
		}
	}
}

func TestObjectsOfTooManyKeysAreRefused(t *testing.T) {
	b := []byte{'{'}
	for i := range limits.JSONKeys + 1 {
		b = fmt.Appendf(b, `"%d":0,`, i)
	}
	b[len(b)-1] = '}'
	if err := ijson.Check(b); !errors.Is(err, ijson.ErrKeys) || !errors.Is(err, limits.ErrTooLarge) {
		t.Errorf("%v, want ErrKeys", err)
	}
}
