package origin

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"talf/model/arch"
	"talf/model/identity"
)

func target(theta, weights string) *identity.Function {
	return &identity.Function{
		Model:   identity.Model{Spec: identity.Spec{"rope_theta": []byte(theta)}, Tensors: "t"},
		Weights: weights, KV: "f32", Arithmetic: "cpu",
	}
}

// A run goes on from its own checkpoints, and from no other's.
func TestARunGoesOnFromItsOwnCheckpoints(t *testing.T) {
	quantised := target("10000", "q8")
	quantised.Tensors, quantised.DerivedFrom = "u", "t"
	renamed := target("10000", "f32")
	renamed.DerivedFrom = "s"
	spec := func(change func(*arch.Spec)) *arch.Spec {
		s := arch.Llama()
		s.Vocab, s.Hidden, s.Layers, s.Heads, s.KVHeads, s.HeadDim, s.FFN, s.MaxPos = 40, 16, 2, 2, 1, 8, 24, 128
		change(s)
		return s
	}
	same := func(*arch.Spec) {}
	docs := [][]int32{{1, 2}, {3}}
	head := Head(target("10000", "f32"), "d", "")
	lm := LM(spec(same), docs, 4)
	for _, c := range []struct {
		name      string
		now, then Origin
		want      string // of the refusal; "": none
	}{
		{"the same", head, head, ""},
		{"another claim of what it derives from", Head(renamed, "d", ""), head, ""},
		{"another configuration", Head(target("500000", "f32"), "d", ""), head, "rope_theta is 500000, the run began with 10000"},
		{"other types", Head(target("10000", "q8"), "d", ""), head, "the type of weights is q8, the run began with f32"},
		{"a quantised copy", Head(quantised, "d", ""), head, "the type of weights is q8, the run began with f32"},
		{"other data", Head(target("10000", "f32"), "e", ""), head, `"data":"d"`},
		{"another vocabulary", Head(target("10000", "f32"), "d", "v"), head, `"draft_vocab":"v"`},
		{"the same model", lm, lm, ""},
		{"another field", LM(spec(func(s *arch.Spec) { s.NormEps = 1e-6 }), docs, 4), lm, "rms_norm_eps is 0.000001, the run began with 0.00001"},
		{"other text", LM(spec(same), docs[:1], 4), lm, `"docs":`},
		{"another window", LM(spec(same), docs, 5), lm, `"window":5`},
		{"a model and a head", lm, head, "began with another"},
	} {
		err := c.now.Check(c.then.JSON())
		if (err == nil) != (c.want == "") || err != nil && (!errors.Is(err, ErrOther) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
	for name, then := range map[string]string{
		"a later schema": `{"schema":3}`,
		"no schema":      `{"kind":"head","target":"t","data":"d"}`,
		"a later field":  strings.Replace(string(head.JSON()), `"kind"`, `"more":1,"kind"`, 1),
		"nonsense":       `[`,
	} {
		if err := head.Check(json.RawMessage(then)); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
}
