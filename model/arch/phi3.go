package arch

// phi3Terms are Llama's tensors with stacked projections.
var phi3Terms = func() (terms []Term) {
	for _, t := range llamaTerms {
		switch t.Role {
		case Q:
			terms = append(terms, Term{Role: QKVRows, Name: "model.layers.%d.self_attn.qkv_proj", Rows: fusedSize, Cols: HiddenSize})
		case Gate:
			terms = append(terms, Term{Role: GateUp, Name: "model.layers.%d.mlp.gate_up_proj", Rows: twoFFN, Cols: HiddenSize})
		case K, V, Up:
		default:
			terms = append(terms, t)
		}
	}
	return terms
}()

// parsePhi3 reads Phi 3 and Phi 4 mini (Abdin et al. 2024): Llama's layer, stored as fewer
// matrices, with a window in every layer or none.
func parsePhi3(c *config, s *Spec) {
	c.common(s, missing{maxPos: 4096, eps: 1e-5, long: true})
	s.Terms = phi3Terms
	c.activation("hidden_act", "hidden_act", "silu")
	if s.Rope.Type == "longrope" {
		c.longRope(s)
	}
	c.mustBe("attention_bias", false)
	c.everyWindow(s)
}

// everyWindow reads a window of all layers, none if it is missing. One that no text fills is
// none.
func (c *config) everyWindow(s *Spec) {
	if !c.has("sliding_window") {
		return
	}
	if w := c.int("sliding_window", 1); w < s.MaxPos {
		s.Windows = same(w, s.Layers)
	}
}
