package checkpoints

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"talf/internal/spec"
	"talf/model/arch"
	"talf/model/safetensors"
)

// speculators is the speculators library: models/eagle.py and models/eagle3.
func speculators() Format {
	return Format{
		Line:   spec.Line{Name: "speculators", Doc: "the speculators library, up to version 0.4 for EAGLE-1 and EAGLE-2"},
		Reader: "the speculators library", problems: speculatorsProblems, eagle: asSpeculators, eagle3: asSpeculators3,
	}
}

func speculatorsProblems(d *Draft, c *ExportConfig) (out []Problem) {
	switch {
	case c.TargetName == "":
		out = append(out, note("the verifier's name is left empty: vLLM wants speculators_config.verifier.name_or_path"))
	case len(c.TargetClasses) == 0:
		out = append(out, note("the verifier's architectures are unknown"))
	}
	if d.Eagle3 != nil {
		return out
	}
	s := d.Spec
	out = append(out, d.noVocab()...)
	out = append(out, note("the library has EagleSpeculator only up to version 0.4, and vLLM read it only for a while: for vLLM itself use the format vllm"))
	if s.Layers != 1 {
		out = append(out, refuse("it builds a single layer, and this head has %d", s.Layers))
	}
	// EagleSpeculator.attach_verifier uses the verifier's rotary_emb.
	switch {
	case c.Target == nil:
		out = append(out, note("the library uses the verifier's rope, not the head's: give the target's directory to compare them"))
	case !sameRope(s, c.Target):
		out = append(out, misread("it uses the verifier's rope, %s, but this head was trained with %s", ropeText(&c.Target.Rope), ropeText(&s.Rope)))
	}
	return out
}

func sameRope(a, b *arch.Spec) bool {
	return a.HeadDim == b.HeadDim && a.Rotated() == b.Rotated() && slices.Equal(a.Rope.Frequencies(a.Rotated()), b.Rope.Frequencies(b.Rotated()))
}

func ropeText(r *arch.Rope) string {
	if r.Type == "default" {
		return fmt.Sprintf("theta %g unscaled", r.Theta)
	}
	return fmt.Sprintf("theta %g scaled by %s %g", r.Theta, r.Type, r.Factor)
}

// asSpeculators converts a head to the form that EagleSpeculator reads. The embedding
// is its verifier's.
func asSpeculators(d *Draft, c *ExportConfig, conf map[string]any, ts []safetensors.Tensor) (map[string]any, []safetensors.Tensor) {
	layer := maps.Clone(conf)
	delete(layer, "bias")
	out := map[string]any{
		"architectures": []string{"EagleSpeculator", "LlamaDecoderLayer"}, "speculators_model_type": "eagle",
		"transformer_layer_architecture": "LlamaDecoderLayer", "transformer_layer_config": layer,
		"layernorms": false, "fusion_bias": d.Spec.FCBias, "torch_dtype": conf["torch_dtype"],
	}
	c.speculators(out, "eagle")
	var renamed []safetensors.Tensor
	for _, t := range ts {
		if t.Name == d.Spec.Weight(arch.Embed, 0) {
			continue
		}
		t.Name = strings.Replace(strings.Replace(t.Name, "fc.", "fusion_fc.", 1), "layers.0.", "transformer.", 1)
		renamed = append(renamed, t)
	}
	return out, renamed
}

// speculators adds the library's record of how the head is used.
func (c *ExportConfig) speculators(out map[string]any, algorithm string) {
	classes := c.TargetClasses
	if classes == nil {
		classes = []string{}
	}
	var name any
	if c.TargetName != "" {
		name = c.TargetName
	}
	out["speculators_version"] = "0.3.0"
	out["speculators_config"] = map[string]any{
		"algorithm": algorithm, "default_proposal_method": "greedy",
		"proposal_methods": []any{map[string]any{
			"proposal_type": "greedy", "speculative_tokens": c.DraftTokens, "verifier_accept_k": 1, "accept_tolerance": json.RawMessage("0.0"),
		}},
		"verifier": map[string]any{"name_or_path": name, "architectures": classes},
	}
}

// asSpeculators3 converts a head to the form that Eagle3Speculator reads.
func asSpeculators3(d *Draft, c *ExportConfig, conf object, ts []safetensors.Tensor) (map[string]any, []safetensors.Tensor) {
	e := d.Eagle3
	layer := anyOf(conf)
	for _, key := range []string{"draft_vocab_size", "target_hidden_size", "eagle_config", "architectures", "torch_dtype", "bias"} {
		delete(layer, key)
	}
	out := map[string]any{
		"architectures": []string{"Eagle3Speculator"}, "speculators_model_type": "eagle3", "draft_vocab_size": e.DraftVocab,
		"transformer_layer_config": layer, "torch_dtype": dtypeOf(ts),
	}
	// If norm_before_residual is missing, vLLM assumes true.
	for _, key := range eagle3Options {
		out[key] = slices.Contains(e.Options, key)
	}
	if e.TargetHidden != e.Spec.Hidden {
		out["target_hidden_size"] = e.TargetHidden
	}
	if e.Taps != nil {
		out["eagle_aux_hidden_state_layer_ids"] = e.Taps
	}
	c.speculators(out, "eagle3")
	var renamed []safetensors.Tensor
	for _, t := range ts {
		t.Name = strings.Replace(t.Name, "midlayer.", "layers.0.", 1)
		renamed = append(renamed, t)
	}
	return out, renamed
}
