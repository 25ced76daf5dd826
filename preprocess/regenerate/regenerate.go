// Package regenerate has the target write the answers that preprocess labels.
package regenerate

import (
	"context"
	"encoding/json"

	"talf/infer"
	"talf/infer/decode"
	"talf/infer/loop"
	"talf/model"
	"talf/model/sample"
	"talf/preprocess"
)

// A Generator answers prompts by plain decoding, all prompts of a batch together. It
// implements preprocess.Generator.
type Generator struct {
	loop   *loop.Loop
	sample sample.Params
}

// New returns a generator that samples from m with parameters p.
func New(m *model.Model, p sample.Params) *Generator {
	l, err := loop.New(&infer.Engine{Target: infer.NewTarget(m, 0), Config: infer.Default()}, loop.Offline())
	if err != nil {
		panic("regenerate: " + err.Error()) // the defaults are valid
	}
	return &Generator{loop: l, sample: p}
}

// Generate implements preprocess.Generator.
func (g *Generator) Generate(ctx context.Context, prompts []preprocess.Prompt) ([][]int32, error) {
	reqs := make([]infer.Request, len(prompts))
	for i, p := range prompts {
		o := decode.Options{Sample: g.sample, MaxTokens: p.Max}
		var err error
		if reqs[i], err = o.Request(nil, nil, p.Tokens, p.Seed); err != nil {
			return nil, err
		}
	}
	seqs, err := g.loop.All(ctx, reqs)
	if err != nil {
		return nil, err
	}
	out := make([][]int32, len(seqs))
	for i, s := range seqs {
		out[i] = s.Tokens()
	}
	return out, nil
}

// Describe returns the description of sampling that shards record: "greedy", or the
// parameters as JSON.
func Describe(p sample.Params) string {
	if p.Temperature == 0 {
		return "greedy"
	}
	b, err := json.Marshal(p)
	if err != nil {
		panic("regenerate: " + err.Error()) // plain values always marshal
	}
	return string(b)
}
