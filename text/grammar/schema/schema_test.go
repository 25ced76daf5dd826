package schema_test

import (
	"encoding/json"
	"errors"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"talf/internal/leak"
	"talf/internal/limits"
	"talf/text/grammar"
	"talf/text/grammar/grammartest"
	"talf/text/grammar/schema"
)

func TestMain(m *testing.M) { os.Exit(leak.Main(m.Run)) }

func compile(text string) (*grammar.Grammar, error) { return compileAs(schema.Config{}, text) }

func compileAs(c schema.Config, text string) (*grammar.Grammar, error) {
	b := grammar.NewBuilder()
	e, err := c.Compile(b, []byte(text))
	if err != nil {
		return nil, err
	}
	return b.Compile(e)
}

// Every text that a small schema allows is reached, and no other: blanks aside, what is
// enumerated is the list.
func TestEveryTextOfASchemaIsReached(t *testing.T) {
	for _, c := range []struct {
		schema string
		most   int
		want   []string
	}{
		{`{"type":"null"}`, 9, []string{"null"}},
		{`{"type":["null","boolean"]}`, 9, []string{"false", "null", "true"}},
		{`{"enum":["a",1,"ab",null,[1,{"x":"\n"}],true]}`, 20, []string{`"a"`, `"ab"`, `1`, `[1,{"x":"\n"}]`, `null`, `true`}},
		{`{"const":1.50}`, 9, []string{"1.50"}},
		{`{"enum":["a",1,2.5,"abc",[]],"type":["string","integer","array"],"maxLength":2}`, 9, []string{`"a"`, "1", "[]"}},
		{`{"enum":[1,2,3],"allOf":[{"enum":[3.0,2]},{"minimum":2.5}]}`, 9, []string{"3"}},
		{`{"type":"integer","minimum":-3,"maximum":12}`, 4, []string{"-0", "-1", "-2", "-3", "0", "1", "10", "11", "12", "2", "3", "4", "5", "6", "7", "8", "9"}},
		{`{"type":"integer","exclusiveMinimum":97,"exclusiveMaximum":100.5,"multipleOf":2}`, 4, []string{"100", "98"}},
		{`{"type":"integer","minimum":5,"maximum":-5}`, 4, nil},
		{`{"type":"integer","exclusiveMaximum":-8,"minimum":-11}`, 4, []string{"-10", "-11", "-9"}},
		{`{"type":"number","minimum":0.25,"exclusiveMaximum":0.5,"multipleOf":0.05}`, 5, []string{"0.25", "0.250", "0.3", "0.30", "0.300", "0.35", "0.350", "0.4", "0.40", "0.400", "0.45", "0.450"}},
		{`{"type":"number","minimum":-0.2,"maximum":1e-1,"multipleOf":1e-1}`, 4, []string{"-0", "-0.0", "-0.1", "-0.2", "0", "0.0", "0.00", "0.1", "0.10"}},
		{`{"type":"string","maxLength":2,"pattern":"^[ab]*$"}`, 9, []string{`""`, `"a"`, `"aa"`, `"ab"`, `"b"`, `"ba"`, `"bb"`}},
		{`{"type":"string","pattern":"^[\"\\\\\n\u0001é]$"}`, 9, []string{`"\""`, `"\\"`, `"\n"`, `"\u0001"`, `"é"`}},
		{`{"type":"string","allOf":[{"pattern":"a"},{"pattern":"^.b"},{"maxLength":3}],"pattern":"^[abc]*$"}`, 9, []string{`"ab"`, `"aba"`, `"abb"`, `"abc"`, `"bba"`, `"cba"`}},
		{`{"type":"string","maxLength":2,"pattern":"^(?!^a*$)(?=.*b|a)[ab]*$"}`, 9, []string{`"ab"`, `"b"`, `"ba"`, `"bb"`}},
		{`{"type":"string","maxLength":2,"pattern":"^(?!^[-+.]*$)[+-]?0*\\d*\\.?\\d*$","not":{"pattern":"[1-9]"}}`, 9, []string{`"+0"`, `"-0"`, `".0"`, `"0"`, `"0."`, `"00"`}}, // pydantic's Decimal
		{`{"type":"string","maxLength":2,"minLength":1,"pattern":"^[ab]{0,7}$"}`, 9, []string{`"a"`, `"aa"`, `"ab"`, `"b"`, `"ba"`, `"bb"`}},
		{`{"type":"string","minLength":2,"pattern":"^(?:é){1,3}$"}`, 9, []string{`"éé"`, `"ééé"`}},
		{`{"type":"string","maxLength":1,"pattern":"^[ab]{2,}$"}`, 9, nil},
		{`{"type":"string","minLength":2,"maxLength":3,"pattern":"^(é|ab|éé)$"}`, 12, []string{`"ab"`, `"éé"`}},
		{`{"type":"string","maxLength":1,"pattern":"^(é|ab|éé)$"}`, 12, []string{`"é"`}},
		{`{"type":"string","maxLength":1,"pattern":"^(a|ab)$"}`, 9, []string{`"a"`}},
		{`{"type":"string","maxLength":3,"minLength":1,"pattern":"^(é|ab)?$"}`, 12, []string{`"ab"`, `"é"`}},
		{`{"type":"array","items":{"const":1},"minItems":1,"maxItems":3}`, 9, []string{"[1,1,1]", "[1,1]", "[1]"}},
		{`{"type":"array","prefixItems":[{"const":1},{"const":2}],"items":{"const":3},"maxItems":3}`, 9, []string{"[1,2,3]", "[1,2]", "[1]", "[]"}},
		{`{"type":"array","prefixItems":[{"const":1},{"const":2}],"items":false,"minItems":1}`, 9, []string{"[1,2]", "[1]"}},
		{`{"type":"array","prefixItems":[{"const":1},false],"minItems":0}`, 9, []string{"[1]", "[]"}},
		{`{"type":"array","items":false}`, 9, []string{"[]"}},
		{`{"type":"object","properties":{"a":{"const":1},"b":{"const":2},"c":{"const":3}},"required":["b"],"additionalProperties":false}`, 30, []string{
			`{"a":1,"b":2,"c":3}`, `{"a":1,"b":2}`, `{"b":2,"c":3}`, `{"b":2}`,
		}},
		{`{"type":"object","properties":{"a":{"const":1},"b":{"const":2},"c":{"const":3}},"additionalProperties":false,"minProperties":1,"maxProperties":2}`, 30, []string{
			`{"a":1,"b":2}`, `{"a":1,"c":3}`, `{"a":1}`, `{"b":2,"c":3}`, `{"b":2}`, `{"c":3}`,
		}},
		{`{"type":"object","additionalProperties":{"const":1},"propertyNames":{"enum":["x","y"]},"maxProperties":1}`, 30, []string{`{"x":1}`, `{"y":1}`, `{}`}},
		{`{"type":"object","patternProperties":{"^[xy]$":{"type":"integer","minimum":0,"maximum":1},"^[yz]$":{"enum":[1,5]}},"additionalProperties":false,"minProperties":1,"maxProperties":1}`, 30, []string{
			`{"x":-0}`, `{"x":0}`, `{"x":1}`, `{"y":1}`, `{"z":1}`, `{"z":5}`,
		}},
		{`{"type":"object","properties":{"a":{"const":1}},"patternProperties":{"^b$":{"const":2}},"required":["b","a"],"additionalProperties":false}`, 30, []string{`{"a":1,"b":2}`}},
		{`{"allOf":[{"properties":{"a":{"enum":[1,2]}},"required":["a"]},{"properties":{"a":{"enum":[2,3]}},"additionalProperties":false}],"type":"object"}`, 30, []string{`{"a":2}`}},
		{`{"anyOf":[{"const":1},{"type":"boolean"}],"$comment":"x"}`, 9, []string{"1", "false", "true"}},
		{`{"oneOf":[{"type":"object","properties":{"k":{"const":"a"}},"required":["k"],"additionalProperties":false},{"type":"object","properties":{"k":{"const":"b"}},"required":["k"],"additionalProperties":false}]}`, 30, []string{
			`{"k":"a"}`, `{"k":"b"}`,
		}},
		{`{"$ref":"#/$defs/n","$defs":{"n":{"type":"array","items":{"$ref":"#/$defs/n"},"maxItems":1}}}`, 6, []string{"[[[]]]", "[[]]", "[]"}},
		{`{"type":"array","items":{"$ref":"#"},"maxItems":2}`, 6, []string{"[[[]]]", "[[]]", "[]"}},
		{`{"$ref":"#x","$defs":{"a":{"$anchor":"x","const":7}}}`, 6, []string{"7"}},
		{`{"type":"object","properties":{"a":{"$ref":"#"}},"required":["a"]}`, 9, nil},
		{`{"$ref":"other#/$defs/y","$id":"http://x/root","$defs":{"a":{"$id":"other","$defs":{"y":{"$ref":"#z"},"z":{"$anchor":"z","const":8}}}}}`, 6, []string{"8"}},
		{`{"$schema":"http://json-schema.org/draft-07/schema#","definitions":{"a":{"const":7}},"$ref":"#/definitions/a","type":"string"}`, 6, []string{"7"}},
		{`{"$schema":"http://json-schema.org/draft-07/schema#","type":"array","items":[{"const":1}],"additionalItems":{"const":2},"maxItems":2}`, 6, []string{"[1,2]", "[1]", "[]"}},
		{`{"$schema":"http://json-schema.org/draft-04/schema#","id":"x","type":"integer","minimum":1,"exclusiveMinimum":true,"maximum":3,"exclusiveMaximum":false}`, 6, []string{"2", "3"}},
		{`{"type":"integer","minimum":1,"maximum":4,"not":{"enum":[2,"x"]}}`, 6, []string{"1", "3", "4"}},
		{`{"enum":["a","ab",1,null,true],"not":{"anyOf":[{"type":"integer"},{"pattern":"b"},{"const":true}]}}`, 6, []string{`"a"`}},
		{`{"type":"number","not":{"type":"integer"},"minimum":0,"maximum":1,"multipleOf":0.5}`, 4, []string{"0.5", "0.50"}},
		{`{"enum":[0,1,2,3],"oneOf":[{"maximum":1},{"minimum":1}]}`, 6, []string{"0", "2", "3"}},
		{`{"enum":["a","b",1],"if":{"type":"string"},"then":{"const":"b"},"else":{"const":1}}`, 6, []string{`"b"`, "1"}},
		{`{"enum":["a","b",1],"not":{"if":{"type":"string"},"then":{"const":"b"},"else":{"const":2}}}`, 6, []string{`"a"`, "1"}},
		{`{"enum":[1],"not":{"then":{"const":2}}}`, 6, nil},
		{`{"type":"object","properties":{"a":{"const":1},"b":{"const":2}},"additionalProperties":false,"dependentRequired":{"a":["b"]}}`, 30, []string{`{"a":1,"b":2}`, `{"b":2}`, `{}`}},
		{`{"type":"object","properties":{"a":{"const":1},"b":{"enum":[2,3]}},"additionalProperties":false,"dependencies":{"a":{"properties":{"b":{"const":3}}}},"required":["b"]}`, 30, []string{
			`{"a":1,"b":3}`, `{"b":2}`, `{"b":3}`,
		}},
		{`{"type":"object","properties":{"a":{"const":1},"b":{"const":2}},"additionalProperties":false,"not":{"required":["a","b"]}}`, 30, []string{`{"a":1}`, `{"b":2}`, `{}`}},
		{`{"const":1,"Note":{"$ref":5},"_format":"x","readonly":true}`, 6, []string{"1"}},
		{`false`, 9, nil},
		{`{"type":"object","properties":{"a":false,"b":{"const":1}},"additionalProperties":false}`, 9, []string{`{"b":1}`, `{}`}},
	} {
		g, err := compile(c.schema)
		if err != nil {
			if c.want != nil || !strings.Contains(err.Error(), "no text") {
				t.Errorf("%s: %v", c.schema, err)
			}
			continue
		}
		got, err := compact(g, c.most)
		slices.Sort(c.want)
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, %v, want %q", c.schema, got, err, c.want)
		}
	}
}

// An object that names some of its properties has no others, unless the schema says so, or the one who asks.
func TestObjectsHaveNoInventedProperties(t *testing.T) {
	for _, c := range []struct {
		schema string
		others bool // of the one who asks
		yes    string
		no     string // texts, separated by blanks
	}{
		{`{"properties":{"a":{"const":1}}}`, false, `{"a":1} {}`, `{"x":1} {"a":1,"x":2} {"a":1,"a":1}`},
		{`{"properties":{"a":{"const":1}}}`, true, `{"a":1} {} {"x":1} {"a":1,"x":2}`, `{"a":2} {"a":1,"a":1}`},
		{`{"properties":{"a":{"const":1}},"additionalProperties":true}`, false, `{"a":1} {} {"x":1} {"a":1,"x":2}`, `{"a":2}`},
		{`{"properties":{"a":{"const":1}},"additionalProperties":{"const":2}}`, false, `{"a":1} {"a":1,"x":2}`, `{"a":1,"x":3}`},
		{`{"required":["a"]}`, false, `{"a":{"x":1}} {"a":null}`, `{} {"a":1,"x":2}`},
		{`{"properties":{"a":{"properties":{"b":{"const":1}}}}}`, false, `{"a":{"b":1}} {"a":{}}`, `{"a":{"x":1}} {"a":{"b":1},"x":1}`},
		{`{"items":{"properties":{"b":{"const":1}}}}`, false, `[{"b":1},{}]`, `[{"x":1}]`},
		{`{"allOf":[{"properties":{"a":{"const":1}}},{"properties":{"b":{"const":2}}}]}`, false, `{"a":1,"b":2} {"b":2}`, `{"b":2,"x":1}`},
		{`{"allOf":[{"properties":{"a":{"const":1}}},{"additionalProperties":{"enum":[1,2]}}]}`, false, `{"a":1} {"a":1,"x":2} {"x":1}`, `{"x":3}`},
		{`{"anyOf":[{"properties":{"a":{"const":1}},"required":["a"]},{"properties":{"b":{"const":2}}}]}`, false, `{"a":1} {"b":2} {}`, `{"a":1,"b":2} {"x":1}`},
		{`{"properties":{"a":{"const":1}},"patternProperties":{"^x":{"const":2}}}`, false, `{"a":1} {"x":2} {"a":1,"xy":2}`, `{"y":2}`},
		{`{"properties":{"a":{"const":1}},"propertyNames":{"pattern":"^[ax]$"}}`, false, `{"a":1}`, `{"x":1}`},
		// Without others there would be too few.
		{`{"properties":{"a":{"const":1},"b":false},"required":["a"],"minProperties":2}`, false, `{"a":1,"x":1}`, `{"a":1} {"a":1,"b":1}`},
		// Nothing is named, so that nothing is invented.
		{`{"type":"object"}`, false, `{} {"x":1}`, `1`},
		{`{"propertyNames":{"const":"x"}}`, false, `{} {"x":1}`, `{"y":1}`},
		{`{"enum":[{"a":1,"x":2}],"properties":{"a":{}}}`, false, `{"a":1,"x":2}`, `{"a":1}`},
	} {
		g, err := compileAs(schema.Config{Others: c.others}, c.schema)
		if err != nil {
			t.Errorf("%s: %v", c.schema, err)
			continue
		}
		a, err := grammar.NewAutomaton(g, grammartest.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		for want, texts := range map[bool]string{true: c.yes, false: c.no} {
			for text := range strings.FieldsSeq(texts) {
				if s := a.Read(a.Start(), []byte(text)); (s != nil && s.Accepting()) != want {
					t.Errorf("%s, others %v: %s is allowed: %v", c.schema, c.others, text, !want)
				}
			}
		}
	}
}

// Between tokens there are at most two blanks; or, for those who ask, a space, or a line with its indentation.
func TestBlanksBetweenTokensAreFew(t *testing.T) {
	for _, c := range []struct {
		blanks bool
		text   string
		want   bool
	}{
		{false, `{"a":1}`, true},
		{false, `{"a": 1}`, true},
		{false, "{\n \"a\":\t 1 \n}", true},
		{false, `{  "a"  :  1  }`, true},
		{false, `{   "a":1}`, false},
		{false, "{\n  \"a\":1}", false},
		{false, `{"a":   1}`, false},
		{false, ` {"a":1}`, false},
		{false, `{"a":1} `, false},
		{true, `{"a":1}`, true},
		{true, "{\n        \"a\": 1\n}", true},
		{true, `{  "a":1}`, false},
	} {
		for _, text := range []string{`{"properties":{"a":{"const":1}},"type":"object"}`, `{"const":{"a":1}}`, `{}`} {
			g, err := compileAs(schema.Config{Blanks: c.blanks}, text)
			if err != nil {
				t.Fatal(err)
			}
			a, err := grammar.NewAutomaton(g, grammartest.Bytes())
			if err != nil {
				t.Fatal(err)
			}
			if s := a.Read(a.Start(), []byte(c.text)); (s != nil && s.Accepting()) != c.want {
				t.Errorf("%s, blanks %v: %q is allowed: %v", text, c.blanks, c.text, !c.want)
			}
		}
	}
}

// compact enumerates the texts of g that have no blanks.
func compact(g *grammar.Grammar, most int) ([]string, error) {
	a, err := grammar.NewAutomaton(g, grammartest.Bytes())
	if err != nil {
		return nil, err
	}
	var out []string
	var walk func(s *grammar.State, text []byte) error
	walk = func(s *grammar.State, text []byte) error {
		if s.Accepting() {
			out = append(out, string(text))
		}
		mask, err := a.Mask(s)
		if err != nil || len(text) == most {
			return err
		}
		for c := range int32(256) {
			if c != ' ' && c != '\n' && c != '\t' && mask.Has(c) {
				if err := walk(a.Next(s, c), append(text, byte(c))); err != nil {
					return err
				}
			}
		}
		return nil
	}
	err = walk(a.Start(), nil)
	slices.Sort(out)
	return out, err
}

func TestFormatsAreWhatTheySay(t *testing.T) {
	for format, c := range map[string]struct{ in, out []string }{
		"date":                  {[]string{"2024-02-29", "2000-02-29", "1999-12-31"}, []string{"2023-02-29", "1900-02-29", "2024-04-31", "2024-13-01", "24-01-01"}},
		"time":                  {[]string{"23:59:59Z", "00:00:00.123+05:30"}, []string{"24:00:00Z", "12:00:00", "12:60:00Z"}},
		"date-time":             {[]string{"2024-02-29T12:30:00Z", "2024-01-01T00:00:00.5-08:00"}, []string{"2024-02-29 12:30:00Z", "2024-02-30T12:30:00Z"}},
		"duration":              {[]string{"P1D", "PT5M", "P1Y2M3DT4H5M6S", "P3W"}, []string{"P", "PT", "1D", "P1DT", "P1H"}},
		"email":                 {[]string{"a@b.c", "first.last+x@sub.example.org"}, []string{"a@", "@b.c", "a b@c.d", "a..b@c.d"}},
		"hostname":              {[]string{"a", "example.org", "x-1.de", strings.Repeat("a", 63), "ab-c.d--e"}, []string{"-a", "a-", "a..b", "", "xn--a", "ab--c", strings.Repeat("a", 64)}},
		"ipv4":                  {[]string{"0.0.0.0", "255.249.99.1"}, []string{"256.1.1.1", "1.2.3", "01.2.3.4"}},
		"ipv6":                  {[]string{"::", "::1", "1::", "2001:db8::ff00:42:8329", "1:2:3:4:5:6:7:8", "1:2:3:4:5:6:7::", "::ffff:192.0.2.1", "1:2:3:4:5:6:1.2.3.4", "1::2:1.2.3.4"}, []string{":::", "1::2::3", "1:2:3:4:5:6:7", "12345::", "1:2:3:4:5:6:7:8:9", "1:2:3:4:5:6:7:1.2.3.4", "1:2:3:4:5::6:1.2.3.4", "::1.2.3"}},
		"uri":                   {[]string{"https://example.org/a?b=c#d", "mailto:a@b.c", "x:y", "file:///a/b", "http://u:p@[::1]:80/%20", "urn:a:b"}, []string{"example.org", "://x", "http://a b", "http://a/%2", "/a", "http://[1]/"}},
		"uri-reference":         {[]string{"", "a", "/a/b", "//h/p", "#f", "?q", "x:y", "./a:b"}, []string{"\\", "1a:b", "a b"}},
		"iri":                   {[]string{"http://é.fr/ü?ß"}, []string{"é", "http://a b"}},
		"uri-template":          {[]string{"/a{b}/{?c,d*}", "{+x:3}", ""}, []string{"{", "{}", "{a", "a}", "{x:0}"}},
		"json-pointer":          {[]string{"", "/a", "/a~0b//~1"}, []string{"a", "/~", "/~2"}},
		"relative-json-pointer": {[]string{"0", "1/a", "2#"}, []string{"/a", "01", "-1/a", "1#/a"}},
		"byte":                  {[]string{"", "YQ==", "YWI=", "YWJj"}, []string{"Y", "YQ=", "YQ==YQ=="}},
		"uuid":                  {[]string{"123e4567-e89b-12d3-a456-426614174000"}, []string{"123e4567e89b12d3a456426614174000", "123e4567-e89b-12d3-a456-42661417400g"}},
	} {
		g, err := compile(`{"type":"string","format":"` + format + `"}`)
		if err != nil {
			t.Errorf("%s: %v", format, err)
			continue
		}
		a, err := grammar.NewAutomaton(g, grammartest.Bytes())
		if err != nil {
			t.Errorf("%s: %v", format, err)
			continue
		}
		for want, texts := range map[bool][]string{true: c.in, false: c.out} {
			for _, x := range texts {
				s := a.Read(a.Start(), []byte(`"`+x+`"`))
				if got := s != nil && s.Complete(); got != want {
					t.Errorf("%s allows %q: %v", format, x, got)
				}
			}
		}
	}
}

func TestWhatIsNotSupportedIsRefusedByName(t *testing.T) {
	for text, want := range map[string]string{
		`{`:                                    "unexpected",
		`[]`:                                   "want a schema",
		`{"type":"object"} x`:                  "something follows",
		`{"a":1,"a":2}`:                        "twice",
		`{"not":{"multipleOf":2}}`:             `"multipleOf" cannot be negated`,
		`{"type":"array","uniqueItems":true}`:  `"uniqueItems" is not supported`,
		`{"properties":{"a":{"contains":{}}}}`: `#/properties/a: the keyword "contains"`,
		`{"minlength":3}`:                      `want "minLength"`,
		`{"$schema":"http://x/y"}`:             "want one of draft 4",
		`{"not":{"oneOf":[{"$ref":"#"},{}]}}`:  "negat",
		`{"$schema":"http://json-schema.org/draft-06/schema#","exclusiveMinimum":true}`: "want a number",
		`{"type":"text"}`: `#/type: is "text", want a type`,
		`{"properties":{"` + strings.Repeat("é/", 200) + `":{"type":"text"}}}`:          "#/properties/" + strings.Repeat("é~1", 33) + "…/type: is \"text\", want a type",
		strings.Repeat(`{"items":`, 100) + `{"type":"text"}` + strings.Repeat("}", 100): "#/…/items/items/",
		`{"minLength":-1}`:                              "want a count",
		`{"minLength":99999999}`:                        "beyond the limit",
		`{"format":"color"}`:                            `"color" is not supported`,
		`{"pattern":"(?=a)"}`:                           "lookaround",
		`{"items":[{}]}`:                                "#/items: want a schema",
		`{"$ref":"http://x/y"}`:                         "only places in the same schema",
		`{"$ref":"#/$defs/x"}`:                          "no such place",
		`{"oneOf":[{"multipleOf":3},{"multipleOf":5}]}`: "branches 0 and 1",
		`{"multipleOf":0}`:                              "above 0",
		`{"multipleOf":0.123457}`:                       "fewer digits",
		`{"minimum":1e999999999}`:                       "exponent",
		`{"type":"object","minProperties":3}`:           "minProperties 3",
		`{"properties":[]}`:                             "object of schemas",
		`{"patternProperties":{"(":{}}}`:                "without )",
		strings.Repeat(`{"items":`, 600) + "{}" + strings.Repeat("}", 600): "nested",
	} {
		if _, err := compile(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.80s: %v, want an error with %q", text, err, want)
		}
	}
}

// Alternatives double with every anyOf of two.
func TestHostileSchemasEndAtALimit(t *testing.T) {
	many := `{"anyOf":[{"minimum":1},{"maximum":5}]}`
	text := `{"allOf":[` + strings.Repeat(many+",", 40) + `{}]}`
	if _, err := compile(text); err == nil || !strings.Contains(err.Error(), "combinations") {
		t.Errorf("2^40 alternatives: %v", err)
	}
	for _, text := range []string{hostile["nested URIs"], hostile["long URI"]} {
		if _, err := compile(text); !errors.Is(err, limits.ErrTooLarge) || !strings.Contains(err.Error(), "URIs") {
			t.Errorf("%.50s: %v", text, err)
		}
	}
	if _, err := compile(`{"$ref":"#"}`); err != nil {
		t.Errorf("a schema that is itself: %v", err)
	}
	if _, err := compile(`{"$defs":{"a":{"$ref":"#/$defs/b"},"b":{"allOf":[{"$ref":"#/$defs/a"}],"type":"null"}},"$ref":"#/$defs/a"}`); err != nil {
		t.Errorf("schemas that refer to each other: %v", err)
	}
}

var typical = `{"type":"object","properties":{
 "name":{"type":"string","minLength":1,"maxLength":200},"age":{"type":"integer","minimum":0,"maximum":150},
 "email":{"type":"string","format":"email"},"tags":{"type":"array","items":{"type":"string"},"maxItems":5},
 "address":{"$ref":"#/$defs/address"},"kind":{"enum":["person","company"]},"when":{"type":"string","format":"date-time"},
 "parent":{"anyOf":[{"$ref":"#"},{"type":"null"}]}},
 "required":["name","kind"],"additionalProperties":false,
 "$defs":{"address":{"type":"object","properties":{"street":{"type":"string"},"zip":{"type":"string","pattern":"^\\d{5}$"}},"required":["street"]}}}`

// Random texts of a schema are JSON, and have what is required.
func TestRandomTextsAreValid(t *testing.T) {
	g, err := compile(typical)
	if err != nil {
		t.Fatal(err)
	}
	a, err := grammar.NewAutomaton(g, grammartest.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(3, 4))
	ended := 0
	for range 300 {
		s := a.Start()
		var text []byte
		for len(text) < 4000 && !s.Complete() {
			mask, err := a.Mask(s)
			if err != nil {
				t.Fatal(err)
			}
			c := int32('"') // which ends strings, so that texts end
			if !mask.Has(c) || r.IntN(3) == 0 {
				for c = r.Int32N(256); !mask.Has(c); c = (c + 1) % 256 {
				}
			}
			text, s = append(text, byte(c)), a.Next(s, c)
		}
		if !s.Complete() {
			continue
		}
		ended++
		var v struct {
			Name *string `json:"name"`
			Kind string  `json:"kind"`
			Age  int     `json:"age"`
		}
		if err := json.Unmarshal(text, &v); err != nil || v.Name == nil || *v.Name == "" || v.Kind != "person" && v.Kind != "company" || v.Age < 0 || v.Age > 150 {
			t.Fatalf("%s: %v, %+v", text, err, v)
		}
	}
	if ended < 50 {
		t.Errorf("%d of 300 texts ended", ended)
	}
}

func FuzzCompile(f *testing.F) {
	f.Add(typical)
	f.Add(`{"oneOf":[{"type":"integer","multipleOf":3},{"const":"x"}]}`)
	f.Add(`{"type":"object","patternProperties":{"^a":{"type":"null"}},"minProperties":1}`)
	f.Fuzz(func(t *testing.T, text string) {
		g, err := compile(text)
		if err != nil {
			return
		}
		a, err := grammar.NewAutomaton(g, grammartest.Words("{", "}", `"`, "a", `":`, "1", ",", "[", "]"))
		if err != nil {
			return
		}
		s := a.Start()
		for range 8 {
			mask, err := a.Mask(s)
			if err != nil || !mask.Any() {
				return
			}
			for id := range int32(9) {
				if mask.Has(id) {
					if s = a.Next(s, id); s == nil {
						t.Fatalf("%q: token %d is allowed and leads nowhere", text, id)
					}
					break
				}
			}
		}
	})
}

func BenchmarkCompile(b *testing.B) {
	for b.Loop() {
		if _, err := compile(typical); err != nil {
			b.Fatal(err)
		}
	}
}
