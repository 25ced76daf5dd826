package arch

import "talf/compute"

var gptNeoXTerms = []Term{
	{Role: Embed, Name: "gpt_neox.embed_in", Rows: vocabSize, Cols: HiddenSize},
	{Role: InputNorm, Name: "gpt_neox.layers.%d.input_layernorm", Rows: HiddenSize, Bias: yes},
	{Role: QKV, Name: "gpt_neox.layers.%d.attention.query_key_value", Rows: fusedSize, Cols: HiddenSize, Bias: ifQKVBias},
	{Role: O, Name: "gpt_neox.layers.%d.attention.dense", Rows: HiddenSize, Cols: querySize, Bias: ifOBias},
	{Role: PostNorm, Name: "gpt_neox.layers.%d.post_attention_layernorm", Rows: HiddenSize, Bias: yes},
	{Role: Up, Name: "gpt_neox.layers.%d.mlp.dense_h_to_4h", Rows: FFNSize, Cols: HiddenSize, Bias: IfMLPBias},
	{Role: Down, Name: "gpt_neox.layers.%d.mlp.dense_4h_to_h", Rows: HiddenSize, Cols: FFNSize, Bias: IfMLPBias},
	{Role: FinalNorm, Name: "gpt_neox.final_layer_norm", Rows: HiddenSize, Bias: yes},
	{Role: LMHead, Name: "embed_out", Rows: vocabSize, Cols: HiddenSize, Unless: ifTied},
}

// parseGPTNeoX reads GPT-NeoX (Black et al. 2022) and Pythia: LayerNorm, rotary
// positions on the first quarter of each head, a feed-forward network parallel to
// attention, and biases everywhere.
func parseGPTNeoX(c *config, s *Spec) {
	s.Terms, s.LayerNorm, s.Act, s.MLPBias = gptNeoXTerms, true, compute.GELU, true
	c.sizes(s)
	if c.err != nil {
		return
	}
	s.KVHeads, s.HeadDim = s.Heads, c.headDim(s)
	s.MaxPos = c.int("max_position_embeddings", 2048)
	s.NormEps = float32(c.float("layer_norm_eps", 1e-5))
	s.Tied = c.bool("tie_word_embeddings", false)
	s.Parallel = c.bool("use_parallel_residual", true)
	s.QKVBias = c.bool("attention_bias", true)
	s.OBias = s.QKVBias
	// gelu_new and gelu_fast are approximations, and so different functions.
	if a := c.string("hidden_act", "gelu"); a != "gelu" {
		c.fail("hidden_act is %.100q, want \"gelu\"", a)
	}
	var part float64
	s.Rope, part = c.rope([]string{"rotary_emb_base", "rope_theta"}, []string{"rotary_pct", "partial_rotary_factor"}, ropeDefaults{theta: 10000, part: 0.25})
	c.rotated(s, "rotary_pct", part)
}
