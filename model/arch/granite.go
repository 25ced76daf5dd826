package arch

// parseGranite reads Granite 3 (Granite Team 2024): Llama's layer with factors of embeddings,
// scores, residuals and logits.
func parseGranite(c *config, s *Spec) {
	c.llamaLike(s, missing{maxPos: 2048})
	c.attentionBias(s)
	s.MLPBias = c.bool("mlp_bias", false)
	s.EmbedScale, s.ResidScale = c.factor("embedding_multiplier", 1), c.factor("residual_multiplier", 1)
	s.AttnScale = float32(c.float("attention_multiplier", 1)) // 0 is 1/√head_dim, 1 is not
	if s.AttnScale == 0 {
		c.fail("attention_multiplier is 0, want more than 0")
	}
	if d := c.factor("logits_scaling", 1); d != 0 {
		if s.LogitScale = 1 / d; !(s.LogitScale > 0 && s.LogitScale < maxFactor) {
			c.fail("logits_scaling is %v, want more than 1/%v", d, maxFactor)
		}
	}
}
