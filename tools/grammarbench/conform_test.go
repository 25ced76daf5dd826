package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"talf/internal/demo"
	"talf/text/grammar"
	"talf/text/grammar/grammartest"
	"talf/text/grammar/schema"
)

var schemas = flag.Int("schemas", 200, "random schemas to compare with the validator")

// pick returns one of xs.
func pick[T any](r *rand.Rand, xs ...T) T { return xs[r.IntN(len(xs))] }

// small draws a schema that tells small values apart.
func small(r *rand.Rand, depth int) any {
	if depth == 0 || r.IntN(8) == 0 {
		return pick[any](r, true, false, map[string]any{}, map[string]any{"type": pick(r, "integer", "string", "number", "null", "boolean")})
	}
	sub := func() any { return small(r, depth-1) }
	subs := func() (out []any) {
		for range 1 + r.IntN(3) {
			out = append(out, sub())
		}
		return out
	}
	name := func() string { return pick(r, "a", "b") }
	named := func() map[string]any {
		out := map[string]any{}
		for range 1 + r.IntN(2) {
			out[name()] = sub()
		}
		return out
	}
	keywords := map[string]func() any{
		"type": func() any {
			return pick[any](r, "integer", "number", "string", "object", "array", []string{"null", "array", "number"})
		},
		"enum":                 func() any { return pick(r, []any{1, "a"}, []any{0.5, true, nil}, []any{"b", "", 2}) },
		"const":                func() any { return pick[any](r, 1, "ab", false) },
		"minimum":              func() any { return r.IntN(3) },
		"exclusiveMaximum":     func() any { return pick[any](r, 1, 1.5, 2) },
		"minLength":            func() any { return r.IntN(3) },
		"maxLength":            func() any { return r.IntN(2) },
		"pattern":              func() any { return pick(r, "^a", "b", "^(ab|b)*$") },
		"minItems":             func() any { return r.IntN(2) },
		"maxItems":             func() any { return r.IntN(3) },
		"items":                sub,
		"prefixItems":          func() any { return subs() },
		"properties":           func() any { return named() },
		"required":             func() any { return []string{name()} },
		"additionalProperties": sub,
		"patternProperties":    func() any { return map[string]any{"^a": sub()} },
		"propertyNames":        func() any { return map[string]any{"pattern": "^[ab]$"} },
		"maxProperties":        func() any { return r.IntN(2) },
		"anyOf":                func() any { return subs() },
		"oneOf":                func() any { return subs() },
		"allOf":                func() any { return subs() },
		"not":                  sub,
		"if":                   sub,
		"then":                 sub,
		"else":                 sub,
		"dependentRequired":    func() any { return map[string]any{"a": []string{"b"}} },
		"dependentSchemas":     func() any { return named() },
	}
	all := slices.Sorted(maps.Keys(keywords))
	out := map[string]any{}
	for range 1 + r.IntN(3) {
		k := pick(r, all...)
		out[k] = keywords[k]()
	}
	return out
}

// values are all JSON values of some size, by which small schemas differ.
func values() []string {
	flat := []string{"null", "true", "false", "0", "1", "2", "-1", "0.5", "1.5", `""`, `"a"`, `"b"`, `"ab"`, `"ba"`, `"c"`}
	out := append(slices.Clone(flat), "[]", "{}")
	for _, x := range append(flat, "[]", "{}", "[1]") {
		out = append(out, "["+x+"]", `{"a":`+x+`}`, `{"b":`+x+`}`, `{"c":`+x+`}`, `["a",`+x+`]`, `{"a":1,"b":`+x+`}`, `{"a":`+x+`,"c":"a"}`)
	}
	return append(out, `[1,1,1]`, `[1,"a",null]`, `{"a":1,"b":1,"c":1}`)
}

func compiled(c schema.Config, text []byte) (*grammar.Grammar, error) {
	b := grammar.NewBuilder()
	e, err := c.Compile(b, text)
	if err != nil {
		return nil, err
	}
	return b.Compile(e)
}

// automaton is that of a grammar over bytes; nil for none.
func automaton(t *testing.T, g *grammar.Grammar) *grammar.Automaton {
	t.Helper()
	if g == nil {
		return nil
	}
	a, err := grammar.NewAutomaton(g, grammartest.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// What a small schema allows is what a validator calls valid, value by value: every valid one can
// be written, and no other; by default only some of them can.
func TestSmallSchemasAllowWhatIsValid(t *testing.T) {
	r := rand.New(rand.NewPCG(20, 26))
	var docs []any
	for _, text := range values() {
		v, err := decodeJSON([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		docs = append(docs, v)
	}
	supported, decided, valid := 0, 0, 0
	why := map[string]int{}
	for range *schemas {
		raw, err := json.Marshal(small(r, 3))
		if err != nil {
			t.Fatal(err)
		}
		g, err := compiled(everything, raw)
		if err != nil && !errors.Is(err, grammar.ErrNothing) {
			why[reason(err)]++
			continue
		}
		narrow, err := compiled(schema.Config{}, raw)
		if (narrow == nil) != (g == nil) {
			t.Errorf("%s: with other properties there are texts: %v, without them %v", raw, g != nil, err)
		}
		oracle, err := validator(raw)
		if err != nil {
			t.Fatalf("%s: %v", raw, err)
		}
		a, fewer := automaton(t, g), automaton(t, narrow)
		supported++
		for _, v := range docs {
			ok, sure := false, true
			if a != nil {
				ok, sure = (&reader{a: a, order: order(raw)}).allows(v)
			}
			if !sure {
				continue
			}
			decided++
			want := validate(oracle, v) == nil
			if want {
				valid++
			}
			if ok != want {
				t.Errorf("%s: %v is allowed: %v, valid: %v", raw, quoted(v), ok, want)
			}
			if fewer != nil && !want {
				if ok, _ := (&reader{a: fewer, order: order(raw)}).allows(v); ok {
					t.Errorf("%s: %v is not valid, and allowed by default", raw, quoted(v))
				}
			}
		}
	}
	if t.Logf("%d of %d schemas are supported, %d of %d values are valid; refused: %v", supported, *schemas, valid, decided, why); supported < *schemas/2 || valid < decided/10 || valid > 9*decided/10 {
		t.Error("that tests too little")
	}
}

// What differs is counted: a schema that is refused, and values that the grammar and the suite see
// differently.
func TestConformCounts(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "draft7")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"a.json": `[{"description":"d","schema":{"items":[{"type":"integer"}]},"tests":[
			{"description":"fits","data":[1,"x"],"valid":true},{"description":"does not","data":["x"],"valid":false},
			{"description":"a mistake of this file","data":["y"],"valid":true}]}]`,
		"Set---b.json": `{"schema":{"uniqueItems":true},"tests":[]}`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	var out strings.Builder
	if err := run([]string{"conform", "-v", "-random", "5", dir}, nil, &out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`a: d: valid, not written: a mistake of this file ["y"]`,
		"| draft7 | 1 | 1 | 0 | 1 | 3 | 2 | 1 | 0 | 0 |", "| Set | 1 | 0 | 1 | 0 | 0 |", `| the keyword "uniqueItems" is not supported | 1 |`,
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("want %q in\n%s", want, out.String())
		}
	}
	for _, args := range [][]string{nil, {"x"}, {"conform"}, {"conform", filepath.Join(dir, "none")}} {
		if err := run(args, nil, &out); err == nil {
			t.Errorf("%v is accepted", args)
		}
	}
}

// The draft is the directory's, however that is named, unless the schema says another.
func TestDirectoriesDeclareDrafts(t *testing.T) {
	const schema = `{"type":"null"}`
	for path, want := range map[string]string{
		"draft4/a.json": "draft-04", filepath.Join("tests", "draft7", "optional", "a.json"): "draft-07", "/x/draft6/a.json": "draft-06", "draft2020-12/a.json": "", "mydraft4/a.json": "",
	} {
		got := string(declared(json.RawMessage(schema), path))
		if want == "" && got != schema || want != "" && !strings.Contains(got, `"$schema":"http://json-schema.org/`+want) {
			t.Errorf("%s: %s", path, got)
		}
	}
}

// Numbers are looked for in the spellings that grammars have.
func TestSpellings(t *testing.T) {
	for text, want := range map[string]string{"1e2": "[1e2 100]", "1.50": "[1.50 1.5]", "-2.0": "[-2.0 -2]", "3": "[3]"} {
		if got := fmt.Sprint(spellings(json.Number(text))); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

// Masks are timed along an answer, and an answer that is not allowed is reported.
func TestMasksAreTimed(t *testing.T) {
	v := grammartest.Bytes()
	var ids []int32
	for _, c := range []byte(`{"a":"xyz"}`) {
		ids = append(ids, int32(c))
	}
	got, err := measure(v, job{Schema: json.RawMessage(`{"type":"object","required":["a"]}`), IDs: ids})
	if err != nil || !got.Accepted || len(got.Cold) != len(ids) || len(got.Warm) != len(ids) || got.Allowed[0] != 1 || got.Compile <= 0 {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := measure(v, job{Schema: json.RawMessage(`{"type":"array"}`), IDs: ids}); err == nil {
		t.Error("an object is allowed for an array")
	}
	if _, err := measure(v, job{Schema: json.RawMessage(`{"contains":{}}`)}); err == nil {
		t.Error("a schema that is not supported compiles")
	}
}

// A model writes a value of each schema, which is valid where it comes to its end.
func TestAnswersOfAModelAreValid(t *testing.T) {
	dir, model := t.TempDir(), filepath.Join(t.TempDir(), "model")
	if err := demo.Unpack(model); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"a": `{"schema":{"type":"object","properties":{"n":{"type":"integer","minimum":10,"maximum":99}},"required":["n"],"additionalProperties":false},"tests":[]}`,
		"b": `{"schema":{"enum":["red","green"]},"tests":[]}`,
		"c": `{"schema":{"uniqueItems":true},"tests":[]}`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name+".json"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var out strings.Builder
	if err := run([]string{"answers", "-methods", "pld,static:binary-4", "-max", "30", model, dir}, nil, &out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"2 schemas, and 1 that are refused", "| pld | 1 | 1 | 1 | 0 | 0 |", "| static:binary-4 | 1 | 1 | 1 | 0 | 0 |", "| all | 2 | 2 | 2 | 0 | 0 |"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("want %q in\n%s", want, out.String())
		}
	}
	if err := run([]string{"answers", dir}, nil, &out); err == nil {
		t.Error("no schemas are accepted")
	}
}
