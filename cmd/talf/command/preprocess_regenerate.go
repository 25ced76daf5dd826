package command

import (
	"context"
	"encoding/json"

	"talf/infer"
	"talf/infer/decode"
	"talf/model/sample"
	"talf/preprocess"

	"github.com/spf13/pflag"
)

// A regeneration says how answers come from the target itself.
type regeneration struct {
	on     bool
	sample sample.Params
}

func (r *regeneration) flags(f *pflag.FlagSet) {
	f.BoolVar(&r.on, "regenerate", false, "let the model write the answers itself")
	f.Float64Var(&r.sample.Temperature, "temperature", 0, "of --regenerate (0: the most likely token)")
	f.IntVar(&r.sample.TopK, "top-k", 0, "of --regenerate")
	f.Float64Var(&r.sample.TopP, "top-p", 1, "of --regenerate")
}

// String describes r for the shards.
func (r *regeneration) String() string {
	if r.sample.Temperature == 0 {
		return "greedy"
	}
	b, err := json.Marshal(r.sample)
	if err != nil {
		panic("talf: " + err.Error()) // plain values marshal
	}
	return string(b)
}

// A generator answers prompts by plain decoding, all of a batch together.
type generator struct {
	engine *infer.Engine
	sample sample.Params
}

// Generate implements preprocess.Generator.
func (g *generator) Generate(ctx context.Context, prompts []preprocess.Prompt) ([][]int32, error) {
	reqs := make([]infer.Request, len(prompts))
	for i, p := range prompts {
		o := decode.Options{Sample: g.sample, MaxTokens: p.Max}
		var err error
		if reqs[i], err = o.Request(nil, nil, p.Tokens, p.Seed); err != nil {
			return nil, err
		}
	}
	return decode.Together(ctx, g.engine, reqs)
}
