package decode_test

import (
	"path/filepath"
	"strings"
	"testing"

	"talf/infer/constrain"
	"talf/infer/decode"
)

func TestAtMostOneFormatIsGiven(t *testing.T) {
	file := filepath.Join(t.TempDir(), "f")
	write(t, file, "root")
	for _, c := range []struct {
		o    decode.Output
		want constrain.Format
		err  string
	}{
		{decode.Output{}, constrain.Format{}, ""},
		{decode.Output{JSON: true}, constrain.Format{Kind: constrain.JSON}, ""},
		{decode.Output{Schema: file}, constrain.Format{Kind: constrain.Schema, Text: "root"}, ""},
		{decode.Output{Regex: "a"}, constrain.Format{Kind: constrain.Regex, Text: "a"}, ""},
		{decode.Output{Grammar: file}, constrain.Format{Kind: constrain.GBNF, Text: "root"}, ""},
		{decode.Output{JSON: true, Regex: "a"}, constrain.Format{}, "2 formats are asked for, want one"},
		{decode.Output{Schema: file, Grammar: file}, constrain.Format{}, "2 formats are asked for, want one"},
		{decode.Output{Schema: file + "x"}, constrain.Format{}, "json-schema: "},
		{decode.Output{Grammar: file + "x"}, constrain.Format{}, "grammar: "},
	} {
		got, err := c.o.Format()
		if c.err == "" && (err != nil || got != c.want) || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
			t.Errorf("%+v: %+v, %v, want %+v and an error with %q", c.o, got, err, c.want, c.err)
		}
	}
}
