package checkpoints

import (
	"slices"

	"talf/internal/spec"
	"talf/model/arch"
	"talf/model/safetensors"
)

// vllmServe serves a head with vLLM.
const vllmServe = `vllm serve TARGET --speculative-config '{"method": "METHOD", "model": "DIR", "num_speculative_tokens": TOKENS}'`

// vllm is vLLM: llama_eagle.py, llama_eagle3.py, and for block heads vllmBlock's.
func vllm() Format {
	return Format{
		Line:   spec.Line{Name: "vllm", Doc: `vLLM, --speculative-config '{"method": "eagle", …}', eagle3, dflash or dspark`},
		Reader: "vLLM's loader", problems: vllmProblems, serve: vllmServe, eagle: asVLLM, eagle3: asVLLM3, block: asItIs,
	}
}

func vllmProblems(d *Draft, c *ExportConfig) (out []Problem) {
	switch {
	case d.Spec.Block.On:
		return d.vllmBlock(c)
	case d.Spec.Eagle3.On:
		return d.eagle3VLLM(c)
	}
	out = d.noVocab()
	if d.Spec.FCBias {
		out = append(out, misread("its fc has no bias (LlamaModel.__init__), and this head's is not zero: train heads for vLLM without one"))
	}
	return out
}

// asVLLM converts a head to the form that EagleLlamaForCausalLM reads. That class never
// has an fc.bias, and reads "bias" as attention biases.
func asVLLM(d *Draft, c *ExportConfig, conf map[string]any, ts []safetensors.Tensor) (map[string]any, []safetensors.Tensor) {
	conf["bias"] = false
	ts = slices.DeleteFunc(slices.Clone(ts), func(t safetensors.Tensor) bool { return t.Name == d.Spec.Bias(arch.FC, 0) })
	return conf, d.withEmbed(c, ts)
}
