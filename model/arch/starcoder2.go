package arch

import "talf/compute"

var starCoder2Terms = []Term{
	{Role: Embed, Name: "model.embed_tokens", Rows: vocabSize, Cols: HiddenSize},
	{Role: InputNorm, Name: "model.layers.%d.input_layernorm", Rows: HiddenSize, Bias: yes},
	{Role: Q, Name: "model.layers.%d.self_attn.q_proj", Rows: querySize, Cols: HiddenSize, Bias: ifQKVBias},
	{Role: K, Name: "model.layers.%d.self_attn.k_proj", Rows: keySize, Cols: HiddenSize, Bias: ifQKVBias},
	{Role: V, Name: "model.layers.%d.self_attn.v_proj", Rows: keySize, Cols: HiddenSize, Bias: ifQKVBias},
	{Role: O, Name: "model.layers.%d.self_attn.o_proj", Rows: HiddenSize, Cols: querySize, Bias: ifOBias},
	{Role: PostNorm, Name: "model.layers.%d.post_attention_layernorm", Rows: HiddenSize, Bias: yes},
	{Role: Up, Name: "model.layers.%d.mlp.c_fc", Rows: FFNSize, Cols: HiddenSize, Bias: IfMLPBias},
	{Role: Down, Name: "model.layers.%d.mlp.c_proj", Rows: HiddenSize, Cols: FFNSize, Bias: IfMLPBias},
	{Role: FinalNorm, Name: "model.norm", Rows: HiddenSize, Bias: yes},
	{Role: LMHead, Name: "lm_head", Rows: vocabSize, Cols: HiddenSize, Unless: ifTied},
}

// parseStarCoder2 reads StarCoder 2 (Lozhkov et al. 2024): grouped queries and rotary positions
// with the norms, biases and feed-forward network of GPT-2.
func parseStarCoder2(c *config, s *Spec) {
	c.common(s, missing{kvHeads: 2, maxPos: 4096, tied: true})
	s.Terms, s.LayerNorm, s.Act = starCoder2Terms, true, compute.GELUTanh
	s.NormEps = float32(c.float("norm_epsilon", 1e-5))
	c.activation("hidden_act", "hidden_act", "gelu_pytorch_tanh")
	if t := c.string("norm_type", "layer_norm"); t != "layer_norm" {
		c.fail("norm_type is %.100q, want \"layer_norm\"", t)
	}
	if t := c.string("mlp_type", "default"); t != "default" {
		c.fail("mlp_type is %.100q, want \"default\"", t)
	}
	s.QKVBias = c.bool("use_bias", true)
	s.OBias, s.MLPBias = s.QKVBias, s.QKVBias
	c.everyWindow(s)
}
