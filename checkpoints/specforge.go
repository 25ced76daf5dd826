package checkpoints

import (
	"maps"
	"strings"

	"talf/model/safetensors"
)

// eagle3Problems returns the problems that readers of SpecForge's layout have with d.
func eagle3Problems(d *Draft) (out []Problem) {
	if opts := d.Eagle3.Options; len(opts) > 0 {
		out = append(out, misread("%s of the speculators library makes a different network from EAGLE-3's", strings.Join(opts, ", ")))
	}
	if _, ok := d.Tensor("embed_tokens.weight"); !ok {
		out = append(out, note("embed_tokens.weight is missing: the target's is used"))
	}
	return out
}

// eagle3Config is the configuration of an EAGLE-3 head as one object, without the
// speculators library's own fields.
func (d *Draft) eagle3Config() object {
	conf, err := d.flat(d.Dir)
	if err != nil {
		panic("checkpoints: " + err.Error()) // OpenDraft has read it
	}
	conf = maps.Clone(conf)
	for key := range conf {
		if strings.HasPrefix(key, "speculators_") {
			delete(conf, key)
		}
	}
	return conf
}

func anyOf(conf object) map[string]any {
	out := make(map[string]any)
	for key, v := range conf {
		out[key] = v
	}
	return out
}

// asSpecForge converts a head to SpecForge's layout, which both SGLang and vLLM read.
func asSpecForge(d *Draft, _ *ExportConfig, conf object, ts []safetensors.Tensor) (map[string]any, []safetensors.Tensor) {
	e := d.Eagle3
	out := anyOf(conf)
	out["architectures"], out["draft_vocab_size"] = []string{"LlamaForCausalLMEagle3"}, e.DraftVocab
	out["torch_dtype"] = dtypeOf(ts)
	delete(out, "bias") // SGLang would add attention biases
	if e.TargetHidden != e.Spec.Hidden {
		out["target_hidden_size"] = e.TargetHidden
	}
	if e.Taps != nil {
		out["eagle_config"] = map[string]any{"use_aux_hidden_state": true, "eagle_aux_hidden_state_layer_ids": e.Taps}
	}
	return out, ts
}
