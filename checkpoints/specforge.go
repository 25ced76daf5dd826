package checkpoints

import (
	"maps"
	"slices"
	"strings"

	"talf/model/arch"
	"talf/model/safetensors"
)

// flags lists the variations of an EAGLE-3 head by their keys.
func flags(e *arch.Eagle3) map[string]bool {
	return map[string]bool{
		"norm_before_residual": e.NormBeforeResidual, "norm_before_fc": e.NormBeforeFC, "fc_norm": e.FCNorm, "norm_output": e.NormOutput,
	}
}

// set returns the flags that are set, sorted, without those that a reader knows.
func set(e *arch.Eagle3, known ...string) (out []string) {
	for _, name := range slices.Sorted(maps.Keys(flags(e))) {
		if flags(e)[name] && !slices.Contains(known, name) {
			out = append(out, name)
		}
	}
	return out
}

// hasBiases reports whether a layer of the head has biases.
func hasBiases(s *arch.Spec) bool { return s.QKVBias || s.OBias || s.MLPBias }

// sharedProblems returns the problems that SGLang and vLLM have alike with an EAGLE-3 head.
func (d *Draft) sharedProblems(c *ExportConfig) (out []Problem) {
	e := &d.Spec.Eagle3
	if e.Count() != 3 {
		out = append(out, note("it reads %d hidden states of the target: older versions always expect three", e.Count()))
	}
	if d.Spec.FCBias {
		out = append(out, refuse("fc has a bias, which it does not expect or takes for one of attention"))
	}
	if e.TargetLMHead && d.Vocab != nil && c.LMHead == nil {
		out = append(out, refuse("lm_head.weight is missing, and it does not use rows of the target's: give the target's directory"))
	}
	if _, ok := d.Tensor("embed_tokens.weight"); !ok {
		out = append(out, note("embed_tokens.weight is missing: the target's is used"))
	}
	return out
}

// eagle3SGLang returns the problems of SGLang's llama_eagle3.py with an EAGLE-3 head.
func (d *Draft) eagle3SGLang(c *ExportConfig) (out []Problem) {
	e := &d.Spec.Eagle3
	out = d.sharedProblems(c)
	if f := set(e, "norm_before_fc", "norm_output"); f != nil {
		out = append(out, misread("it ignores %s", strings.Join(f, " and ")))
	}
	if e.NormBeforeFC || e.NormOutput {
		out = append(out, note("norm_before_fc and norm_output need SGLang of June 2026 or later (pull request 32334); older versions draft something else"))
	}
	if e.Taps != nil {
		out = append(out, note("the ids of the hidden states are boundaries: SGLang before May 2026 (pull request 25454) reads each one layer too high"))
	}
	if d.Spec.Layers > 1 {
		out = append(out, misread("its layers after the first have other names and norms, and it ignores tensors that it does not know"))
	}
	if hasBiases(d.Spec) || e.QKNorm {
		out = append(out, misread("it ignores biases of the layer and norms of queries and keys"))
	}
	return out
}

// eagle3VLLM returns the problems of vLLM's llama_eagle3.py with an EAGLE-3 head.
func (d *Draft) eagle3VLLM(c *ExportConfig) (out []Problem) {
	e := &d.Spec.Eagle3
	out = d.sharedProblems(c)
	if f := set(e, "norm_before_residual"); f != nil {
		out = append(out, note("%s needs vLLM of mid 2026 or later (pull requests 38111, 42143, 42764, 46488); older versions draft something else", strings.Join(f, " and ")))
	}
	if e.TargetLMHead && d.Vocab == nil {
		out = append(out, note("lm_head.weight is missing: vLLM since its pull request 28549 uses the target's"))
	}
	return out
}

// asSpecForge converts a head to SpecForge's layout, which SGLang and vLLM read.
func asSpecForge(d *Draft, _ *ExportConfig, conf map[string]any, ts []safetensors.Tensor) (map[string]any, []safetensors.Tensor) {
	delete(conf, "bias") // SGLang would add attention biases
	if d.Spec.Eagle3.TargetLMHead && d.Vocab == nil {
		conf["draft_vocab_size"] = nil // SGLang uses the target's LM head only then
	}
	return conf, ts
}

// asVLLM3 is asSpecForge with the class that has norms of queries and keys, if the head has.
func asVLLM3(d *Draft, c *ExportConfig, conf map[string]any, ts []safetensors.Tensor) (map[string]any, []safetensors.Tensor) {
	conf, ts = asSpecForge(d, c, conf, ts)
	if d.Spec.Eagle3.QKNorm {
		conf["architectures"], conf["model_type"] = []string{"Eagle3Qwen3ForCausalLM"}, "qwen3"
	}
	return conf, ts
}

// eagle3EAGLE returns the problems of EAGLE's own cnets.py with an EAGLE-3 head. It loads
// without strict checks: what it does not know is ignored.
func (d *Draft) eagle3EAGLE(c *ExportConfig) (out []Problem) {
	s, e := d.Spec, &d.Spec.Eagle3
	if f := set(e); f != nil {
		out = append(out, misread("it ignores %s", strings.Join(f, " and ")))
	}
	if e.Taps != nil {
		want, err := []int(nil), error(nil)
		if c.Target != nil {
			want, err = arch.DefaultTaps(c.Target.Layers)
		}
		switch {
		case c.Target == nil:
			out = append(out, note("it always reads the target's hidden states 2, n/2 and n−3, and this head %v: give the target's directory to compare them", e.Taps))
		case err != nil:
			out = append(out, refuse("%v", err))
		case !slices.Equal(want, e.Taps):
			out = append(out, misread("it always reads the target's hidden states %v, and this head %v", want, e.Taps))
		}
	}
	if hasBiases(s) || s.FCBias || e.QKNorm || s.Layers > 1 {
		out = append(out, misread("it knows no biases, norms of queries and keys, or layers after the first"))
	}
	if e.TargetLMHead && (d.Vocab == nil || c.LMHead == nil) {
		out = append(out, misread("lm_head.weight is missing, and it drafts with random values in its place"))
	}
	if c.unindexed {
		out = append(out, note("the target's weights are one file without %s, through which EAGLE finds the embedding: the head is written with the target's, and target_hidden_size, so that EAGLE reads it from there", WeightsFile+".index.json"))
	}
	return append(out, d.eagleShape()...)
}

// asEagle3 converts a head to the form of EAGLE's own code, which reads the embedding through the
// target's index unless target_hidden_size is there (cnets.py, Model.__init__): then it is the head's.
func asEagle3(d *Draft, c *ExportConfig, conf map[string]any, ts []safetensors.Tensor) (map[string]any, []safetensors.Tensor) {
	delete(conf, "bias")
	d.eagleRope(conf)
	if c.unindexed {
		conf["target_hidden_size"] = d.Spec.TargetHidden()
		ts = d.withEmbed(c, ts)
	}
	return conf, ts
}
