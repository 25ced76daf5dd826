package draft

import (
	"talf/infer"
	"talf/internal/spec"
)

func ar() Method {
	return Method{
		Line: spec.Line{Name: "ar", Doc: "no draft: plain decoding, the baseline of every speed-up"},
		Open: func(spec.Values, Env) (Maker, error) {
			return Maker{New: func() infer.Drafter { return plain{} }}, nil
		},
	}
}

// plain leaves the root alone: one token per pass.
type plain struct{}

func (plain) Start([]int32) error { return nil }

func (plain) Grow(*infer.Proposal, []infer.Row, infer.Chance) ([]int, error) { return nil, nil }

func (plain) Observe(infer.Proposal, infer.Verdict, infer.Scores) error { return nil }

func (plain) Traits() infer.Traits { return infer.Traits{} }
