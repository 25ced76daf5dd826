package arch

import (
	"encoding/json"

	"talf/compute"
)

// gptOSSTerms are Llama's tensors with sinks, and experts with biases. Published files have the
// experts of a layer in one tensor; package safetensors takes them apart.
var gptOSSTerms = func() []Term {
	const layer = "model.layers.%d."
	terms := mixed(after(llamaTerms, V, Term{Role: Sinks, Name: layer + "self_attn.sinks", Rows: headCount, Bare: true}),
		layer+"mlp.router", layer+"mlp.experts.%d.gate_proj", layer+"mlp.experts.%d.up_proj", layer+"mlp.experts.%d.down_proj")
	for i := range terms {
		switch terms[i].Role {
		case Router, ExpertGate, ExpertUp, ExpertDown:
			terms[i].Bias = yes
		}
	}
	return terms
}()

// parseGPTOSS reads gpt-oss (OpenAI 2025): sinks that attention may look at instead of a
// position, windows in every second layer, and experts with a clamped SwiGLU.
func parseGPTOSS(c *config, s *Spec) {
	c.mxfp4()
	if !c.has("rope_scaling") && !c.has("rope_parameters") {
		c.m["rope_scaling"] = json.RawMessage(`{"rope_type": "yarn", "factor": 32, "original_max_position_embeddings": 4096, "truncate": false}`)
	}
	c.common(s, missing{kvHeads: 8, headDim: 64, maxPos: 131072, eps: 1e-5, theta: 150000})
	s.Terms, s.Act = gptOSSTerms, compute.ClampedSwiGLU
	c.activation("hidden_act", "hidden_act", "silu")
	s.QKVBias = c.bool("attention_bias", true)
	s.OBias = s.QKVBias
	s.ActLimit = float32(c.float("swiglu_limit", 7))
	if c.err == nil && !(s.ActLimit > 0) {
		c.fail("swiglu_limit is %v, want more than 0", s.ActLimit)
	}
	s.Mixture = Mixture{Experts: c.int("num_local_experts", 128), Top: c.int("num_experts_per_tok", 4), FFN: s.FFN, Renorm: true}
	c.windows(s, 128, func(i int) bool { return i%2 == 0 })
}

// mxfp4 accepts weights of experts in MXFP4 (OCP Microscaling Formats 1.0), which is how gpt-oss is
// published: the tensors say which those are.
func (c *config) mxfp4() {
	o := c.object("quantization_config")
	if o == nil {
		return
	}
	if method := o.string("quant_method", ""); o.err == nil && method != "mxfp4" {
		o.fail("quant_method is %.100q, want \"mxfp4\", or no quantization_config for weights in F32, F16 or BF16", method)
	}
	c.take(o)
	delete(c.m, "quantization_config")
}
