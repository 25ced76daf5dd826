package draft

import (
	"errors"

	"talf/infer"
	"talf/infer/draft/method"
	"talf/infer/draft/suffix"
	"talf/internal/spec"
	"talf/tree"
)

// suffixDepth bounds the memory of a tree's window and the time that a token takes.
const suffixDepth = 256

func suffixMethod() Method {
	return Method{
		Line: spec.Line{
			Name: "suffix", Doc: "SuffixDecoding: what followed the newest tokens, as far as its counts make it likely",
			Params: []spec.Param{
				spec.Int("max_tree_depth", 24, 2, suffixDepth, "most tokens of a match and what follows it"),
				spec.Int("max_spec_tokens", 24, 1, tree.MaxNodes-1, "most tokens to draft"),
				spec.Float("max_spec_factor", 1, spec.Closed(0, 100), "most tokens to draft, for each token of the match"),
				spec.Float("max_spec_offset", 0, spec.Closed(-100, 100), "tokens to draft in addition to these"),
				spec.Float("min_token_prob", 0.1, spec.Closed(0, 1), "least probability of a token"),
				spec.Switch("use_tree_spec", true, "on drafts trees, off chains"),
				spec.Choice("table", "fresh drafts from the request alone, keep from earlier outputs, too", "fresh", "keep"),
				spec.Int("max_cached_requests", 10000, 1, 1<<20, "outputs that table=keep keeps, the newest"),
			},
		},
		Open: func(v spec.Values, _ Env) (Maker, error) {
			c := suffix.Config{
				MaxTreeDepth: v.Int("max_tree_depth"), MaxSpecTokens: v.Int("max_spec_tokens"),
				MaxSpecFactor: v.Float32("max_spec_factor"), MaxSpecOffset: v.Float32("max_spec_offset"),
				MinTokenProb: v.Float32("min_token_prob"), UseTreeSpec: v.On("use_tree_spec"),
			}
			if v.Given("max_cached_requests") && !method.Keeps(v) {
				return Maker{}, errors.New("max_cached_requests is for table=keep, and the table is fresh")
			}
			var cache *suffix.Cache
			if method.Keeps(v) {
				cache = suffix.NewCache(c, v.Int("max_cached_requests"))
			}
			return Maker{Chain: !c.UseTreeSpec, Learns: method.Keeps(v), New: func() infer.Drafter { return suffix.New(c, cache) }}, nil
		},
	}
}
