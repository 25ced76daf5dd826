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
		Line:   spec.Line{Name: "speculators", Doc: "the speculators library: 0.9 for EAGLE-3, up to 0.4 for EAGLE-1 and EAGLE-2"},
		Reader: "the speculators library", problems: speculatorsProblems, serve: vllmServe, eagle: asSpeculators, eagle3: asSpeculators3,
	}
}

func speculatorsProblems(d *Draft, c *ExportConfig) (out []Problem) {
	switch {
	case c.TargetName == "":
		out = append(out, note("the verifier's name is left empty: vLLM wants speculators_config.verifier.name_or_path"))
	case len(c.TargetClasses) == 0:
		out = append(out, note("the verifier's architectures are unknown"))
	}
	s := d.Spec
	if e := &s.Eagle3; e.On {
		if f := set(e, "norm_before_residual"); f != nil {
			out = append(out, note("%s needs version 0.9 of the library, and vLLM of mid 2026 or later (pull requests 38111, 46488)", strings.Join(f, " and ")))
		}
		if s.FCBias || s.Hidden != s.TargetHidden() {
			out = append(out, refuse("it has no bias of fc, and no hidden size other than the target's"))
		}
		if s.QKVBias != s.OBias {
			out = append(out, refuse("it has biases of queries, keys, values and output or none"))
		}
		return out
	}
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
	c.speculators(out, "eagle", "0.3.0")
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
func (c *ExportConfig) speculators(out map[string]any, algorithm, version string) {
	classes := c.TargetClasses
	if classes == nil {
		classes = []string{}
	}
	var name any
	if c.TargetName != "" {
		name = c.TargetName
	}
	out["speculators_version"] = version
	out["speculators_config"] = map[string]any{
		"algorithm": algorithm, "default_proposal_method": "greedy",
		"proposal_methods": []any{map[string]any{
			"proposal_type": "greedy", "speculative_tokens": c.DraftTokens, "verifier_accept_k": 1, "accept_tolerance": json.RawMessage("0.0"),
		}},
		"verifier": map[string]any{"name_or_path": name, "architectures": classes},
	}
}

// asSpeculators3 converts a head to the form that Eagle3DraftModel reads.
func asSpeculators3(d *Draft, c *ExportConfig, conf map[string]any, ts []safetensors.Tensor) (map[string]any, []safetensors.Tensor) {
	e := &d.Spec.Eagle3
	out := map[string]any{
		"architectures": []string{"Eagle3DraftModel"}, "speculators_model_type": "eagle3", "draft_vocab_size": conf["draft_vocab_size"],
		"torch_dtype": conf["torch_dtype"], "tie_word_embeddings": false, "embed_requires_grad": false,
		"target_hidden_size": conf["target_hidden_size"], "eagle_aux_hidden_state_layer_ids": nil,
	}
	if e.Taps != nil {
		out["eagle_aux_hidden_state_layer_ids"] = e.Taps
	}
	// All of them: if norm_before_residual is missing, vLLM assumes true.
	for name, value := range flags(e) {
		out[name] = value
	}
	layer := maps.Clone(conf)
	for _, key := range append([]string{"eagle_config", "torch_dtype", "bias"}, besideLayer...) {
		delete(layer, key)
	}
	layer["architectures"] = []string{"LlamaForCausalLM"}
	if e.QKNorm {
		layer["architectures"], layer["model_type"] = []string{"Qwen3ForCausalLM"}, "qwen3"
	}
	out["transformer_layer_config"] = layer
	c.speculators(out, "eagle3", "0.9.0")
	var renamed []safetensors.Tensor
	for _, t := range ts {
		t.Name = strings.Replace(t.Name, "midlayer.", "layers.0.", 1)
		renamed = append(renamed, t)
	}
	return out, renamed
}
