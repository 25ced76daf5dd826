package arch

// parseMistral reads Llama's shape with a sliding window in every layer. Ministral, in
// which windows and full attention alternate, has its own model_type.
func parseMistral(c *config, s *Spec) {
	c.llamaLike(s, missing{kvHeads: 8, maxPos: 4096 * 32})
	c.mustBe("attention_bias", false)
	c.mustBe("mlp_bias", false)
	window := c.slidingWindow(4096)
	kind := fullAttention
	if window > 0 {
		kind = slidingAttention
		s.Windows = same(window, s.Layers)
	}
	for i, t := range c.layerTypes(s) {
		if t != kind {
			c.fail("layer_types[%d] is %.100q, want %q for sliding_window %d", i, t, kind, window)
			break
		}
	}
}

const (
	fullAttention    = "full_attention"
	slidingAttention = "sliding_attention"
)

// slidingWindow reads sliding_window: def if it is missing, 0 if it is null.
func (c *config) slidingWindow(def int) int {
	if _, ok := c.m["sliding_window"]; ok && !c.has("sliding_window") {
		return 0
	}
	return c.int("sliding_window", def)
}

// layerTypes reads layer_types, one kind of attention per layer; nil if it is missing.
func (c *config) layerTypes(s *Spec) []string {
	types := c.strings("layer_types")
	if types != nil && len(types) != s.Layers {
		c.fail("layer_types has %d entries, want num_hidden_layers = %d", len(types), s.Layers)
		return nil
	}
	for i, t := range types {
		if t != fullAttention && t != slidingAttention {
			c.fail("layer_types[%d] is %.100q, want %q or %q", i, t, fullAttention, slidingAttention)
			return nil
		}
	}
	return types
}

// same returns n windows of one size. An invalid configuration may give a bad n.
func same(window, n int) []int {
	w := make([]int, max(0, min(n, maxLayers)))
	for i := range w {
		w[i] = window
	}
	return w
}
