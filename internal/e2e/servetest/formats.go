package servetest

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"

	"talf/infer/constrain"
)

// values are schemas of values that stand alone, one or more for each keyword that says what a value is.
var values = []string{
	`{"type":"boolean"}`,
	`{"type":"null"}`,
	`{"type":"integer"}`,
	`{"type":"integer","minimum":-20,"maximum":117}`,
	`{"type":"integer","exclusiveMinimum":999,"multipleOf":25}`,
	`{"type":"number"}`,
	`{"type":"number","minimum":0.25,"exclusiveMaximum":3.5}`,
	`{"type":"number","multipleOf":0.05,"maximum":2,"minimum":0}`,
	`{"type":"string"}`,
	`{"type":"string","maxLength":12}`,
	`{"type":"string","minLength":40,"maxLength":90}`,
	`{"type":"string","pattern":"^[A-Z][a-z]+( [A-Z][a-z]+){0,2}$"}`,
	`{"type":"string","pattern":"^(?:[α-ω]{2,5}|[あ-ん]{1,4}|😀+)$"}`,
	`{"type":"string","pattern":"^\\d{3}-\\d{4}$","description":"a telephone number"}`,
	`{"type":"string","pattern":"colou?r","maxLength":30}`,
	`{"type":"string","format":"date"}`,
	`{"type":"string","format":"time"}`,
	`{"type":"string","format":"date-time"}`,
	`{"type":"string","format":"duration"}`,
	`{"type":"string","format":"email"}`,
	`{"type":"string","format":"ipv4"}`,
	`{"type":"string","format":"ipv6"}`,
	`{"type":"string","format":"uuid"}`,
	`{"type":"string","format":"uri"}`,
	`{"type":"string","format":"hostname"}`,
	`{"type":"string","format":"json-pointer"}`,
	`{"enum":["red","green","blue"]}`,
	`{"enum":["é","日本","a\"b\\c","",0,-1.5e3,null,true,["x",{"y":1}]]}`,
	`{"const":"the only text that may stand here, and a rather long one"}`,
	`{"const":{"kind":"fixed","list":[1,2,3]}}`,
	`{"type":["integer","null","string"],"maxLength":4}`,
	`{"not":{"type":["object","array","string"]}}`,
	`true`,
}

// formats are what drawn answers have to match; DrawFormat makes more of values.
var formats = []constrain.Format{
	{Kind: constrain.JSON},
	schema(`{"type":"object","properties":{"name":{"type":"string","maxLength":9},"n":{"type":"integer","minimum":1,"maximum":99},` +
		`"tags":{"type":"array","items":{"enum":["a","bc",null]},"maxItems":3},"next":{"anyOf":[{"$ref":"#"},{"type":"null"}]}},"required":["name","n"],"additionalProperties":false}`),
	// A tree, a list that links to its next, and an expression: rules that contain themselves.
	schema(`{"$ref":"#/$defs/tree","$defs":{"tree":{"type":"object","properties":{"value":{"type":"integer","minimum":0,"maximum":9},` +
		`"children":{"type":"array","items":{"$ref":"#/$defs/tree"},"maxItems":2}},"required":["value"],"additionalProperties":false}}}`),
	schema(`{"type":["object","null"],"properties":{"item":{"type":"string","maxLength":6},"rest":{"$ref":"#"}},"required":["item","rest"],"additionalProperties":false}`),
	schema(`{"$defs":{"e":{"oneOf":[{"type":"integer","minimum":0,"maximum":99},{"type":"object","properties":{"op":{"enum":["+","−","×"]},` +
		`"args":{"type":"array","prefixItems":[{"$ref":"#/$defs/e"},{"$ref":"#/$defs/e"}],"minItems":2,"maxItems":2}},"required":["op","args"],"additionalProperties":false}]}},"$ref":"#/$defs/e"}`),
	// Unions that a property tells apart, parts that are put together, conditions.
	schema(`{"oneOf":[{"type":"object","properties":{"shape":{"const":"circle"},"radius":{"type":"number","minimum":0,"maximum":10}},"required":["shape","radius"],"additionalProperties":false},` +
		`{"type":"object","properties":{"shape":{"const":"square"},"side":{"type":"number","minimum":0,"maximum":10}},"required":["shape","side"],"additionalProperties":false}]}`),
	schema(`{"allOf":[{"type":"object","properties":{"id":{"type":"integer","minimum":1,"maximum":999}},"required":["id"]},{"properties":{"name":{"type":"string","maxLength":8}},"required":["name"]}],"maxProperties":3}`),
	schema(`{"type":"object","properties":{"paid":{"type":"boolean"},"sum":{"type":"integer","minimum":1,"maximum":500}},"required":["paid"],"additionalProperties":false,"if":{"properties":{"paid":{"const":true}}},"then":{"required":["sum"]}}`),
	schema(`{"type":"object","properties":{"card":{"type":"string","pattern":"^[0-9]{4}$"},"address":{"type":"string","maxLength":10}},"dependentRequired":{"card":["address"]},"additionalProperties":false}`),
	// Objects whose names are not listed.
	schema(`{"type":"object","additionalProperties":{"type":"integer","minimum":0,"maximum":9},"maxProperties":3,"minProperties":1}`),
	schema(`{"type":"object","patternProperties":{"^x_[a-z]{1,4}$":{"type":"boolean"}},"additionalProperties":false,"minProperties":1}`),
	schema(`{"type":"object","propertyNames":{"pattern":"^[a-f]{2}$"},"additionalProperties":{"enum":[1,2]},"maxProperties":4}`),
	schema(`{"type":"object","properties":{"größe":{"type":"number","minimum":0,"maximum":250},"名前":{"type":"string","maxLength":5},"a/b~c \"d\"":{"type":"null"}},"required":["größe","名前","a/b~c \"d\""]}`),
	schema(`{"type":"array","prefixItems":[{"enum":["GET","PUT"]},{"type":"string","format":"uri-reference","maxLength":20}],"items":{"type":"integer","minimum":100,"maximum":599},"minItems":3,"maxItems":5}`),
	{Kind: constrain.Regex, Text: `(Yes|No), because [a-z ]{3,30}\.`},
	{Kind: constrain.Regex, Text: `[+-]?(0|[1-9]\d{0,5})(\.\d{1,4})?([eE][+-]?\d{1,2})?`},
	{Kind: constrain.Regex, Text: `(?:\p{Lu}\p{Ll}{1,8} ){2,5}[^\x00-\x7f]{1,3}`},
	{Kind: constrain.Regex, Text: `\{"move": "[a-h][1-8]-[a-h][1-8]", "why": "[^"\\\x00-\x1f]{10,60}"\}`},
	{Kind: constrain.GBNF, Text: "root ::= item (\", \" item)*\nitem ::= [a-z]+ | \"(\" root \")\""},
	{Kind: constrain.GBNF, Text: "root ::= expr\nexpr ::= term ([-+] term)*\nterm ::= factor ([*/] factor)*\nfactor ::= [0-9]{1,3} | \"(\" expr \")\""},
	{Kind: constrain.GBNF, Text: "root ::= \"- \" [^\\n]{4,40} \"\\n\" (\"- \" [^\\n]{4,40} \"\\n\"){1,3}"},
	{Kind: constrain.GBNF, Text: "root ::= (\"日\" | \"é\" | \"😀\" | [\u0400-\u04ff]){3,12} \"!\"?"},
}

func schema(text string) constrain.Format {
	return constrain.Format{Kind: constrain.Schema, Text: text}
}

// Formats returns the formats that questions are drawn from, and one for each kind of value.
func Formats() []constrain.Format {
	out := append([]constrain.Format(nil), formats...)
	for _, v := range values {
		out = append(out, schema(`{"type":"object","properties":{"value":`+v+`},"required":["value"],"additionalProperties":false}`))
	}
	return out
}

// DrawFormat draws a format: one of Formats, or a schema of objects, arrays and unions two to three levels
// deep.
func DrawFormat(rng *rand.Rand) constrain.Format {
	if rng.IntN(3) == 0 {
		all := Formats()
		return all[rng.IntN(len(all))]
	}
	return schema(drawSchema(rng, 1+rng.IntN(3)))
}

// drawSchema draws a schema that is nested so deep.
func drawSchema(rng *rand.Rand, depth int) string {
	if depth == 0 {
		return values[rng.IntN(len(values))]
	}
	sub := func() string { return drawSchema(rng, depth-1) }
	switch rng.IntN(6) {
	case 0:
		lo := rng.IntN(3)
		return fmt.Sprintf(`{"type":"array","items":%s,"minItems":%d,"maxItems":%d}`, sub(), lo, lo+rng.IntN(3))
	case 1:
		return fmt.Sprintf(`{"anyOf":[%s,%s]}`, sub(), sub())
	}
	names := []string{"id", "name", "created_at", "tags", "größe", "is \"quoted\"", "名前", "n", "nested", "description of the thing"}
	rng.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	names = names[:1+rng.IntN(4)]
	var properties, required []string
	for _, n := range names {
		quoted, err := json.Marshal(n)
		if err != nil {
			panic(fmt.Sprintf("servetest: %v", err)) // of a text
		}
		properties = append(properties, string(quoted)+":"+sub())
		if rng.IntN(3) > 0 {
			required = append(required, string(quoted))
		}
	}
	more := []string{`false`, `true`, `{"type":"integer","minimum":0,"maximum":99}`}[rng.IntN(3)]
	return fmt.Sprintf(`{"type":"object","properties":{%s},"required":[%s],"additionalProperties":%s}`,
		strings.Join(properties, ","), strings.Join(required, ","), more)
}
