package arch

// parseQwen3 reads Qwen2's shape with a norm of every head's queries and keys in
// place of their biases.
func parseQwen3(c *config, s *Spec) {
	c.llamaLike(s, missing{kvHeads: 32, headDim: 128, maxPos: 32768})
	c.mustBe("mlp_bias", false)
	s.Names.QNorm, s.Names.KNorm = "self_attn.q_norm", "self_attn.k_norm"
	s.QKVBias = c.bool("attention_bias", false)
	s.OBias = s.QKVBias
	s.QKNorm = true
	c.qwenWindows(s)
}
