package arch

// qwen3Terms are Llama's tensors and the norms of queries and keys.
var qwen3Terms = after(llamaTerms, V,
	Term{Role: QNorm, Name: "model.layers.%d.self_attn.q_norm", Rows: HeadSize},
	Term{Role: KNorm, Name: "model.layers.%d.self_attn.k_norm", Rows: HeadSize},
)

// parseQwen3 reads Qwen2's shape with a norm of every head's queries and keys in
// place of their biases.
func parseQwen3(c *config, s *Spec) {
	c.llamaLike(s, missing{kvHeads: 32, headDim: 128, maxPos: 32768})
	c.mustBe("mlp_bias", false)
	s.Terms = qwen3Terms
	s.QKVBias = c.bool("attention_bias", false)
	s.OBias = s.QKVBias
	c.qwenWindows(s)
}
