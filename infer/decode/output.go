package decode

import (
	"fmt"

	"talf/infer/constrain"
	"talf/internal/hint"
	"talf/internal/limits"
)

// An Output is what the flags of commands say of the format of answers. At most one is given.
type Output struct {
	JSON    bool
	Schema  string // file
	Regex   string
	Grammar string // file
}

// Flags declares the flags with functions such as those of a pflag.FlagSet.
func (o *Output) Flags(text func(p *string, name, value, usage string), truth func(p *bool, name string, value bool, usage string)) {
	truth(&o.JSON, "json-object", false, "allow only answers that are a JSON object")
	text(&o.Schema, "json-schema", "", "allow only answers that match the JSON Schema (draft 2020-12) in this `file`")
	text(&o.Regex, "regex", "", "allow only answers that match this regular `expression` (ECMA-262) as a whole")
	text(&o.Grammar, "grammar", "", "allow only answers that match the rules of this `file` in llama.cpp's GBNF")
}

// Format returns the format, and reads the file if it is in one.
func (o *Output) Format() (f constrain.Format, err error) {
	given := 0
	file := ""
	if o.JSON {
		f.Kind = constrain.JSON
		given++
	}
	if o.Schema != "" {
		f.Kind, file = constrain.Schema, o.Schema
		given++
	}
	if o.Regex != "" {
		f.Kind, f.Text = constrain.Regex, o.Regex
		given++
	}
	if o.Grammar != "" {
		f.Kind, file = constrain.GBNF, o.Grammar
		given++
	}
	if given > 1 {
		return f, hint.Errorf("{json-object}, {json-schema}, {regex} and {grammar} exclude each other", "%d formats are asked for, want one", given)
	}
	if file != "" {
		raw, err := limits.ReadFile(file, limits.GrammarBytes)
		if err != nil {
			return f, fmt.Errorf("%s: %w", map[constrain.Kind]string{constrain.Schema: "json-schema", constrain.GBNF: "grammar"}[f.Kind], err)
		}
		f.Text = string(raw)
	}
	return f, nil
}
