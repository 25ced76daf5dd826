package arch

// olmo2Terms are Llama's tensors with norms behind attention and the feed-forward network in
// place of those before them, and norms of all queries and all keys.
var olmo2Terms = func() (terms []Term) {
	for _, t := range llamaTerms {
		switch t.Role {
		case InputNorm, PostNorm:
			continue
		}
		terms = append(terms, t)
		switch t.Role {
		case V:
			terms = append(terms,
				Term{Role: QNorm, Name: "model.layers.%d.self_attn.q_norm", Rows: querySize},
				Term{Role: KNorm, Name: "model.layers.%d.self_attn.k_norm", Rows: keySize})
		case O:
			terms = append(terms, Term{Role: AttnOutNorm, Name: "model.layers.%d.post_attention_layernorm", Rows: HiddenSize})
		case Down:
			terms = append(terms, Term{Role: FFNOutNorm, Name: "model.layers.%d.post_feedforward_layernorm", Rows: HiddenSize})
		}
	}
	return terms
}()

// parseOLMo2 reads OLMo 2 (OLMo Team 2024, §3.1).
func parseOLMo2(c *config, s *Spec) {
	c.llamaLike(s, missing{maxPos: 2048, eps: 1e-5})
	s.Terms = olmo2Terms
	c.attentionBias(s)
}
