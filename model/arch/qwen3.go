package arch

// qwen3Terms are Llama's tensors and the norms of queries and keys.
var qwen3Terms = after(llamaTerms, V, headNorms...)

// parseQwen3 reads Qwen2's shape with a norm of every head's queries and keys in
// place of their biases.
func parseQwen3(c *config, s *Spec) {
	c.llamaLike(s, missing{kvHeads: 32, headDim: 128, maxPos: 32768})
	c.mustBe("mlp_bias", false)
	s.Terms = qwen3Terms
	c.attentionBias(s)
	c.qwenWindows(s)
}
