package arch

import (
	"cmp"

	"talf/compute"
)

// llamaTerms are the tensors of Llama and of the families derived from it.
var llamaTerms = []Term{
	{Role: Embed, Name: "model.embed_tokens", Rows: vocabSize, Cols: HiddenSize},
	{Role: InputNorm, Name: "model.layers.%d.input_layernorm", Rows: HiddenSize},
	{Role: Q, Name: "model.layers.%d.self_attn.q_proj", Rows: querySize, Cols: HiddenSize, Bias: ifQKVBias},
	{Role: K, Name: "model.layers.%d.self_attn.k_proj", Rows: keySize, Cols: HiddenSize, Bias: ifQKVBias},
	{Role: V, Name: "model.layers.%d.self_attn.v_proj", Rows: keySize, Cols: HiddenSize, Bias: ifQKVBias},
	{Role: O, Name: "model.layers.%d.self_attn.o_proj", Rows: HiddenSize, Cols: querySize, Bias: ifOBias},
	{Role: PostNorm, Name: "model.layers.%d.post_attention_layernorm", Rows: HiddenSize},
	{Role: Gate, Name: "model.layers.%d.mlp.gate_proj", Rows: FFNSize, Cols: HiddenSize, Bias: IfMLPBias},
	{Role: Up, Name: "model.layers.%d.mlp.up_proj", Rows: FFNSize, Cols: HiddenSize, Bias: IfMLPBias},
	{Role: Down, Name: "model.layers.%d.mlp.down_proj", Rows: HiddenSize, Cols: FFNSize, Bias: IfMLPBias},
	{Role: FinalNorm, Name: "model.norm", Rows: HiddenSize},
	{Role: LMHead, Name: "lm_head", Rows: vocabSize, Cols: HiddenSize, Unless: ifTied},
}

// Llama returns a spec with Llama's tensor names and default rotary positions;
// the caller sets the sizes.
func Llama() *Spec {
	return &Spec{
		Arch: "llama", NormEps: 1e-5, BOS: -1, Rope: Rope{Theta: 10000, Type: "default"},
		Act: compute.SiLU, Terms: llamaTerms,
	}
}

func parseLlama(c *config, s *Spec) {
	c.llamaLike(s, missing{maxPos: 2048})
	c.attentionBias(s)
	s.MLPBias = c.bool("mlp_bias", false)
}

// missing has transformers' defaults for keys that a configuration omits.
type missing struct {
	kvHeads int // 0: as many as query heads
	headDim int // 0: hidden_size / num_attention_heads
	maxPos  int
	eps     float64 // 0: 1e-6
	theta   float64 // of the rotary angles; 0: 10000
	tied    bool
	long    bool    // the family has longrope
	part    float64 // of a head that is rotated; 0: all
}

// llamaLike reads the parts that Llama, Mistral and Qwen have in common: RMSNorm,
// rotary positions over whole heads, a feed-forward network gated by SiLU.
func (c *config) llamaLike(s *Spec, def missing) {
	c.common(s, def)
	if a := c.string("hidden_act", "silu"); c.err == nil && a != "silu" && a != "swish" {
		c.fail("hidden_act is %.100q, want \"silu\"", a)
	}
	if s.RotDim != 0 {
		c.fail("partial_rotary_factor is %v, want 1", float64(s.RotDim)/float64(s.HeadDim))
	}
}

// common reads what most families have, under the names that Llama's configuration gives it.
func (c *config) common(s *Spec, def missing) {
	s.Terms, s.Act = llamaTerms, compute.SiLU
	c.sizes(s)
	if c.err != nil {
		return
	}
	s.KVHeads = s.Heads
	if _, given := c.m["num_key_value_heads"]; !given && def.kvHeads > 0 {
		s.KVHeads = def.kvHeads
	}
	s.KVHeads = c.int("num_key_value_heads", s.KVHeads)
	switch {
	case c.has("head_dim"):
		s.HeadDim = c.int("head_dim", 1)
	case def.headDim > 0:
		s.HeadDim = def.headDim
	default:
		s.HeadDim = c.headDim(s)
	}
	s.MaxPos = c.int("max_position_embeddings", def.maxPos)
	s.NormEps = float32(c.float("rms_norm_eps", cmp.Or(def.eps, 1e-6)))
	s.Tied = c.bool("tie_word_embeddings", def.tied)
	var part float64
	s.Rope, part = c.rope([]string{"rope_theta"}, []string{"partial_rotary_factor"}, ropeDefaults{theta: cmp.Or(def.theta, 10000), part: cmp.Or(def.part, 1), long: def.long})
	if s.Rope.Type == "yarn" && c.err == nil {
		// Published configurations leave max_position_embeddings at its value before
		// stretching, or already contain this product.
		s.MaxPos = max(s.MaxPos, int(min(s.Rope.Factor*float64(s.Rope.Original), maxDim)))
	}
	if part != 1 {
		c.rotated(s, "partial_rotary_factor", part)
	}
}

// rotated sets the number of elements of a head that are rotated, of which part is the share.
func (c *config) rotated(s *Spec, name string, part float64) {
	if s.RotDim = int(float64(s.HeadDim) * part); !(part <= 1) || s.RotDim < 2 || s.RotDim%2 != 0 {
		c.fail("%s is %v, want an even number of the %d elements of a head", name, part, s.HeadDim)
	}
}

// attentionBias reads the biases of queries, keys, values and of attention's output, which have
// one flag.
func (c *config) attentionBias(s *Spec) {
	s.QKVBias = c.bool("attention_bias", false)
	s.OBias = s.QKVBias
}

// sizes reads the sizes that are in every configuration.
func (c *config) sizes(s *Spec) {
	s.Vocab = c.int("vocab_size", -1)
	s.Hidden = c.int("hidden_size", -1)
	s.Layers = c.int("num_hidden_layers", -1)
	s.Heads = c.int("num_attention_heads", -1)
	s.FFN = c.int("intermediate_size", -1)
	if c.has("quantization_config") {
		c.fail("quantization_config is set, want weights in F32, F16 or BF16")
	}
}

// headDim divides the hidden size among the heads.
func (c *config) headDim(s *Spec) int {
	if s.Hidden%s.Heads != 0 {
		c.fail("hidden_size is %d, want a multiple of num_attention_heads, %d, because head_dim is missing", s.Hidden, s.Heads)
	}
	return max(1, s.Hidden/s.Heads)
}
