package papers

import (
	"talf/infer"
	"talf/infer/draft/method"
	"talf/infer/draft/papers/lookahead"
	"talf/internal/spec"
	"talf/tree"
)

func lookaheadMethod() method.Method {
	return method.Method{
		Line: spec.Line{
			Name: "lookahead", Doc: "Lookahead: collects n-grams by Jacobi iteration in the same pass that verifies them",
			Params: []spec.Param{
				spec.Int("W", 15, 1, tree.MaxNodes, "columns of the window, the last token's included"),
				spec.Int("N", 5, 3, tree.MaxNodes, "tokens of an n-gram; the window has N-1 levels"),
				spec.Int("G", 15, 1, tree.MaxNodes, "most n-grams verified in a pass, and kept per first token"),
				spec.Switch("bonus", false, "on: an n-gram that is right throughout is followed by the target's own token"),
				spec.Switch("slide", false, "on: columns move with the tokens that a round emits"),
				spec.Switch("prompt", false, "on: n-grams of the prompt and the output, too"),
			},
		},
		Open: func(v spec.Values, _ method.Env) (method.Maker, error) {
			c := lookahead.Config{W: v.Int("W"), N: v.Int("N"), G: v.Int("G"), Bonus: v.On("bonus"), Slide: v.On("slide"), Prompt: v.On("prompt")}
			if err := c.Validate(); err != nil {
				return method.Maker{}, err
			}
			return method.Maker{New: func() infer.Drafter { return lookahead.New(c) }}, nil
		},
	}
}
