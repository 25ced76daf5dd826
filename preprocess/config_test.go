package preprocess

import (
	"reflect"
	"testing"

	"talf/data/corpus"
)

// Unfinished sets of earlier versions can be continued, so the fingerprint of their
// options must never change.
func TestTheFingerprintOfOptionsIsStable(t *testing.T) {
	c := Default()
	c.Load.Template, c.Load.AnswerField, c.Load.Limit = "Q: {q}", "a", 40
	for want, in := range map[string]Inputs{
		`{"Load":{"Format":"auto","Template":"Q: {q}","AnswerField":"a","AnswerRemove":"","Skip":0,"Limit":40,"MaxLine":16777216},"MaxLen":99,"EOS":"answers","Shard":256,"Regenerate":false}`:            {},
		`{"Load":{"Format":"auto","Template":"Q: {q}","AnswerField":"a","AnswerRemove":"","Skip":0,"Limit":40,"MaxLine":16777216},"MaxLen":99,"EOS":"answers","Shard":256,"Regenerate":false,"Chat":"h"}`: {ChatHash: "h"},
	} {
		if got, err := c.options(&in, 99); err != nil || string(got) != want {
			t.Errorf("%s, %v, want %s", got, err, want)
		}
	}
	if n := reflect.TypeFor[corpus.Config]().NumField(); n != 8 {
		t.Errorf("corpus.Config has %d fields, want 8: if the new one affects sequences, add it to options, with omitempty", n)
	}
}
