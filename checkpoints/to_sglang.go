package checkpoints

import (
	"slices"

	"talf/internal/spec"
	"talf/model/arch"
	"talf/model/safetensors"
)

// sglang is SGLang: llama_eagle.py, llama_eagle3.py and llama.py, and for block heads sglangBlock's.
func sglang() Format {
	return Format{
		Line:   spec.Line{Name: "sglang", Doc: "SGLang, --speculative-algorithm EAGLE, EAGLE3, DFLASH or DSPARK"},
		Reader: "SGLang's loader", tokenMap: true, problems: sglangProblems, serve: `python -m sglang.launch_server --model-path TARGET --speculative-algorithm ALGORITHM --speculative-draft-model-path DIR`, eagle: asSGLang, eagle3: asSpecForge, block: asItIs,
	}
}

func sglangProblems(d *Draft, c *ExportConfig) (out []Problem) {
	switch {
	case d.Spec.Block.On:
		return d.sglangBlock()
	case d.Spec.Eagle3.On:
		return d.eagle3SGLang(c)
	}
	if d.Spec.MLPBias {
		out = append(out, refuse("it has no biases in the feed-forward network (LlamaMLP)"))
	}
	if d.Vocab != nil {
		out = append(out, note("SGLang must be started with --speculative-token-map and the path of %s; otherwise it drafts from all %d tokens, of which this head knows %d", tokenMapFile, d.Spec.Vocab, len(d.Vocab)))
	}
	if !d.Spec.FCBias {
		out = append(out, note("an all-zero fc.bias is written: SGLang always has one, and without it would draft with random values"))
	}
	return out
}

// asSGLang converts a head to the form that LlamaForCausalLMEagle reads. That class
// always has an fc.bias, which keeps its random initial values if the file has none. It
// reads "bias" as attention biases.
func asSGLang(d *Draft, c *ExportConfig, conf map[string]any, ts []safetensors.Tensor) (map[string]any, []safetensors.Tensor) {
	conf["architectures"], conf["bias"] = []string{"LlamaForCausalLMEagle"}, false
	ts = d.withEmbed(c, ts)
	if !d.Spec.FCBias {
		none := safetensors.F32(d.Spec.Bias(arch.FC, 0), make([]float32, d.Spec.Hidden), d.Spec.Hidden)
		if dtypeOf(ts) == "bfloat16" {
			none = safetensors.BF16(none.Name, make([]float32, d.Spec.Hidden), d.Spec.Hidden)
		}
		ts = append(slices.Clone(ts), none)
	}
	return conf, ts
}
