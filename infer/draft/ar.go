package draft

import (
	"talf/infer"
	"talf/internal/spec"
)

func arMethod() Method {
	return Method{
		Line: spec.Line{Name: "ar", Doc: "no draft: plain decoding, the baseline of every speed-up"},
		Open: func(spec.Values, Env) (Maker, error) {
			return Maker{New: func() infer.Drafter { return ar{} }}, nil
		},
	}
}

// ar leaves the root alone: one token per pass.
type ar struct{}

func (ar) Start([]int32) error { return nil }

func (ar) Grow(*infer.Proposal, []infer.Row, infer.Chance) ([]int, error) { return nil, nil }

func (ar) Observe(infer.Proposal, infer.Verdict, infer.Scores) error { return nil }

func (ar) Traits() infer.Traits { return infer.Traits{} }
