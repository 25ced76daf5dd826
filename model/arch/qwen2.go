package arch

// parseQwen2 reads Llama's shape with biases of queries, keys and values and, in
// rare cases, windows in some layers.
func parseQwen2(c *config, s *Spec) {
	c.llamaLike(s, missing{kvHeads: 32, maxPos: 32768})
	c.mustBe("attention_bias", true)
	c.mustBe("mlp_bias", false)
	s.QKVBias = true
	c.qwenWindows(s)
}

// qwenWindows reads which layers have a sliding window: those marked in layer_types, or
// else those from max_window_layers on, if use_sliding_window is set.
func (c *config) qwenWindows(s *Spec) {
	window := 0
	if c.bool("use_sliding_window", false) {
		window = c.slidingWindow(4096)
	}
	first := s.Layers
	if window > 0 {
		first = c.count("max_window_layers", 28)
	}
	types := c.layerTypes(s)
	if c.err != nil {
		return
	}
	w := same(0, s.Layers)
	slides := false
	for i := range w {
		if types == nil && i < first || types != nil && types[i] == fullAttention {
			continue
		}
		if window == 0 {
			c.fail("layer_types[%d] is %.100q, but use_sliding_window and sliding_window set no window", i, slidingAttention)
			return
		}
		w[i], slides = window, true
	}
	if slides {
		s.Windows = w
	}
}
