package arch

// parseSmolLM3 reads SmolLM 3: Llama's layer, of which some rotate nothing (Yang et al. 2025,
// "Rope to Nope and Back Again").
func parseSmolLM3(c *config, s *Spec) {
	c.llamaLike(s, missing{kvHeads: 4, maxPos: 32768, theta: 2e6, tied: true})
	c.attentionBias(s)
	s.MLPBias = c.bool("mlp_bias", false)
	every := c.int("no_rope_layer_interval", 4)
	rotates := c.flags("no_rope_layers", s) // 1: the layer rotates
	if c.err != nil || s.Layers > maxLayers {
		return
	}
	none := make([]bool, s.Layers)
	any := false
	for i := range none {
		none[i] = rotates == nil && (i+1)%every == 0 || rotates != nil && rotates[i] == 0
		any = any || none[i]
	}
	if any {
		s.Unrotated = none
	}
	if !c.bool("use_sliding_window", false) {
		delete(c.m, "sliding_window")
	}
	c.windows(s, 0, func(i int) bool { return none[i] })
}
