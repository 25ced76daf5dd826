package arch

// cohere2Terms are Llama's tensors with one norm for attention and the feed-forward network.
var cohere2Terms = without(llamaTerms, PostNorm)

// parseCohere2 reads Command R7B and Command A (Cohere 2025): attention and feed-forward network
// side by side behind one LayerNorm without a bias, and full attention without rotation in each
// fourth layer.
func parseCohere2(c *config, s *Spec) {
	c.common(s, missing{maxPos: 8192, tied: true})
	s.Terms, s.LayerNorm, s.Parallel, s.RopePairs = cohere2Terms, true, true, true
	s.NormEps = float32(c.float("layer_norm_eps", 1e-5))
	c.activation("hidden_act", "hidden_act", "silu")
	c.attentionBias(s)
	c.mustBe("use_qk_norm", false)
	c.mustBe("use_parallel_block", true)
	s.LogitScale = c.factor("logit_scale", 0.0625)
	pattern := c.int("sliding_window_pattern", 4)
	c.windows(s, 4096, func(i int) bool { return (i+1)%pattern != 0 })
	if c.err != nil || s.Layers > maxLayers {
		return
	}
	none := make([]bool, s.Layers)
	for i := range none {
		none[i] = s.Window(i) == 0
		if none[i] {
			s.Unrotated = none
		}
	}
}
