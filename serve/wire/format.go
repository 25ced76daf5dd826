package wire

import (
	"encoding/json"
	"strings"
)

// A Format is what an answer has to match. The zero value is any text.
type Format struct {
	Kind  string // "json", "json-schema", "regex" or "gbnf", as in package constrain
	Text  string // the schema, the expression or the rules
	Param string // the field that asks for it, for errors
	// Blanks and Others widen "json" and "json-schema", as in package schema.
	Blanks, Others bool
}

// maxWords bounds the texts that an answer may be one of.
const maxWords = 1024

// set keeps a format. Only one may be asked for.
func (o *object) set(f *Format, kind, name, text string) {
	if o.err != nil {
		return
	}
	if f.Kind != "" {
		o.fail(name, "is given beside %s, want one format", f.Param)
		return
	}
	f.Kind, f.Text, f.Param = kind, text, o.at+name
}

// format reads a format of OpenAI's API: schema is the field of a schema, or of the object that has
// it.
func (o *object) format(f *Format, schema string) {
	switch t := o.text("type"); t {
	case "text":
	case "json_object":
		if _, ok := o.has("schema"); ok { // llama.cpp's
			o.schema(f, "schema")
		} else {
			o.set(f, "json", "type", "")
		}
	case "json_schema":
		in, name := o, schema
		if schema == "json_schema" { // of chat, which has it one level deeper
			if in = o.object(schema); in == nil {
				o.fail(schema, "is missing, want an object with a schema")
				return
			}
			name = "schema"
			in.boolean("strict") // what is not strict may be enforced, too
			defer o.take(in)
		} else {
			o.boolean("strict")
		}
		in.schema(f, name)
	default:
		if o.err == nil {
			o.unsupported("type", "is %q, want \"text\", \"json_object\" or \"json_schema\"", t)
		}
	}
}

// schema reads a JSON Schema, as an object or as its text.
func (o *object) schema(f *Format, name string) {
	v, ok := o.has(name)
	switch {
	case !ok:
		o.fail(name, "is missing, want a JSON Schema")
	case v[0] == '"':
		o.set(f, "json-schema", name, o.text(name))
	default:
		o.set(f, "json-schema", name, string(v))
	}
}

// guided reads the formats that vLLM and llama.cpp add.
func (o *object) guided(f *Format) {
	in := []struct {
		o       *object
		prefix  string
		json    string
		grammar string
	}{{o, "guided_", "guided_json", "guided_grammar"}}
	if s := o.object("structured_outputs"); s != nil {
		in = append(in, struct {
			o       *object
			prefix  string
			json    string
			grammar string
		}{s, "", "json", "grammar"})
		if s.boolean("json_object") {
			s.set(f, "json", "json_object", "")
		}
		s.refuse("structural_tag", "this server cannot enforce tags")
		if p := s.optionalBoolean("disable_any_whitespace"); p != nil {
			if f.Blanks = !*p; *p {
				s.unsupported("disable_any_whitespace", "is true: this server allows up to two blanks between the tokens of JSON")
			}
		}
		if p := s.optionalBoolean("disable_additional_properties"); p != nil {
			f.Others = !*p
		}
		defer o.take(s)
	}
	for _, x := range in {
		if _, ok := x.o.has(x.json); ok {
			x.o.schema(f, x.json)
		}
		if s := x.o.text(x.prefix + "regex"); s != "" {
			x.o.set(f, "regex", x.prefix+"regex", s)
		}
		if s := x.o.text(x.grammar); s != "" {
			x.o.set(f, "gbnf", x.grammar, s)
		}
		x.o.choice(f, x.prefix+"choice")
	}
	if s := o.text("grammar"); s != "" {
		o.set(f, "gbnf", "grammar", s)
	}
	if _, ok := o.has("json_schema"); ok {
		o.schema(f, "json_schema")
	}
}

// choice reads texts of which the answer has to be one.
func (o *object) choice(f *Format, name string) {
	if _, ok := o.has(name); !ok {
		return
	}
	var words []string
	for _, v := range o.list(name, maxWords) {
		var s string
		if err := json.Unmarshal(v, &s); err != nil || s == "" {
			o.fail(name, "has %s, want texts", kind(v))
			return
		}
		words = append(words, gbnfText.Replace(s))
	}
	if o.err == nil && len(words) == 0 {
		o.fail(name, "is empty, want texts")
	}
	o.set(f, "gbnf", name, `root ::= "`+strings.Join(words, `" | "`)+`"`)
}

// gbnfText escapes a text for a literal in GBNF.
var gbnfText = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`, "\r", `\r`)
