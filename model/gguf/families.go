package gguf

import (
	"fmt"
	"maps"
	"math"
)

// What follows are the families beyond Llama's own layer, by the names and keys of llama.cpp's converter
// (conversion/*.py) and its loaders (src/models).

// with returns names and more of them.
func with(names map[string]string, more map[string]string) map[string]string {
	all := maps.Clone(names)
	maps.Copy(all, more)
	return all
}

const layer = "model.layers.%d."

// Tensors of all experts of a layer, [experts][rows][columns], become one for each expert, whose number
// takes the second place.
var (
	mixtralNames = map[string]string{
		"blk.ffn_gate_inp":  layer + "block_sparse_moe.gate",
		"blk.ffn_gate_exps": layer + "block_sparse_moe.experts.%d.w1",
		"blk.ffn_up_exps":   layer + "block_sparse_moe.experts.%d.w3",
		"blk.ffn_down_exps": layer + "block_sparse_moe.experts.%d.w2",
	}
	expertNames = map[string]string{
		"blk.ffn_gate_inp":  layer + "mlp.gate",
		"blk.ffn_gate_exps": layer + "mlp.experts.%d.gate_proj",
		"blk.ffn_up_exps":   layer + "mlp.experts.%d.up_proj",
		"blk.ffn_down_exps": layer + "mlp.experts.%d.down_proj",
	}
	qwen2MoENames = with(with(llamaNames, expertNames), map[string]string{
		sharedRouter:         layer + "mlp.shared_expert_gate",
		"blk.ffn_gate_shexp": layer + "mlp.shared_expert.gate_proj",
		"blk.ffn_up_shexp":   layer + "mlp.shared_expert.up_proj",
		"blk.ffn_down_shexp": layer + "mlp.shared_expert.down_proj",
	})
	qwen3MoENames = with(llamaNames, expertNames)
	gptOSSNames   = with(with(llamaNames, expertNames), map[string]string{
		"blk.ffn_gate_inp":        layer + "mlp.router",
		"blk.attn_sinks":          layer + "self_attn.sinks",
		"blk.post_attention_norm": layer + "post_attention_layernorm",
	})
	glm4MoENames = with(qwen3MoENames, map[string]string{
		"blk.post_attention_norm":    layer + "post_attention_layernorm",
		"blk.exp_probs_b":            layer + "mlp.gate.e_score_correction_bias",
		"blk.ffn_gate_shexp":         layer + "mlp.shared_experts.gate_proj",
		"blk.ffn_up_shexp":           layer + "mlp.shared_experts.up_proj",
		"blk.ffn_down_shexp":         layer + "mlp.shared_experts.down_proj",
		"blk.nextn.eh_proj":          layer + "eh_proj",
		"blk.nextn.enorm":            layer + "enorm",
		"blk.nextn.hnorm":            layer + "hnorm",
		"blk.nextn.embed_tokens":     layer + "embed_tokens",
		"blk.nextn.shared_head_norm": layer + "shared_head.norm",
		"blk.nextn.shared_head_head": layer + "shared_head.head",
	})
	phi3Names = with(llamaNames, map[string]string{
		"blk.attn_qkv": layer + "self_attn.qkv_proj",
		"blk.ffn_up":   layer + "mlp.gate_up_proj",
	})
	olmo2Names = with(llamaNames, map[string]string{
		"blk.post_attention_norm": layer + "post_attention_layernorm",
		"blk.post_ffw_norm":       layer + "post_feedforward_layernorm",
	})
	gemmaNames = with(olmo2Names, map[string]string{
		"blk.ffn_norm": layer + "pre_feedforward_layernorm",
	})
	starCoder2Names = with(llamaNames, map[string]string{
		"blk.ffn_up":   layer + "mlp.c_fc",
		"blk.ffn_down": layer + "mlp.c_proj",
	})
)

// sharedRouter is the module of one row that weighs the shared expert.
const sharedRouter = "blk.ffn_gate_inp_shexp"

// bare are modules whose tensor has the module's name in a directory.
var bare = map[string]bool{"blk.attn_sinks": true, "blk.exp_probs_b": true, "blk.ssm_a": true, "blk.ssm_dt": true}

// arch returns the prefix of the architecture's keys.
func (k *reader) arch() string { return k.string("general.architecture") + "." }

// norms adds the epsilon of RMSNorm, whether projections of attention have biases, and checks that
// heads are rotated whole.
func (k *reader) norms(c map[string]any) {
	a := k.arch()
	c["rms_norm_eps"] = k.eps(a + "attention.layer_norm_rms_epsilon")
	c["attention_bias"] = k.f.info("blk.0.attn_q.bias") != nil
	k.whole(c)
}

// whole refuses heads that are rotated in part.
func (k *reader) whole(c map[string]any) {
	if c["rotated"] != c["head_dim"] {
		k.bad(k.arch()+"rope.dimension_count", "the size of a head, %v", c["head_dim"])
	}
}

// window adds the sliding window; null if there is none.
func (k *reader) window(c map[string]any) {
	c["sliding_window"] = nil
	if w := k.count(k.arch()+"attention.sliding_window", 0); w > 0 {
		c["sliding_window"] = w
	}
}

// experts adds the number of experts and of those that a token chooses, and returns the size of one. Layers
// from first on have experts.
func (k *reader) experts(c map[string]any, number string, first int) (size int) {
	a, name := k.arch(), fmt.Sprintf("blk.%d.ffn_up_exps.weight", first)
	up := k.f.info(name)
	if up == nil || len(up.dims) != 3 {
		k.bad(a+"expert_count", "0: there is no tensor %q of all experts of a layer", name)
		return 0
	}
	c[number] = k.count(a+"expert_count", required)
	c["num_experts_per_tok"] = k.count(a+"expert_used_count", required)
	if x := k.float(a+"expert_weights_scale", 1); x != 1 && x != 0 && number != routed {
		k.bad(a+"expert_weights_scale", "1 in this architecture")
	}
	return k.count(a+"expert_feed_forward_length", up.dims[1])
}

// mixtralConfig adds what Mixtral has beyond Llama. The size of an expert is that of Llama's
// feed-forward network.
func mixtralConfig(k *reader, c map[string]any) {
	c["model_type"], c["architectures"] = "mixtral", []string{"MixtralForCausalLM"}
	k.experts(c, "num_local_experts", 0)
}

func qwen2MoEConfig(k *reader, c map[string]any) {
	k.norms(c)
	c["qkv_bias"] = c["attention_bias"]
	c["moe_intermediate_size"] = k.experts(c, "num_experts", 0)
	c["shared_expert_intermediate_size"] = k.shared()
	c["norm_topk_prob"] = false
}

// shared returns the size of the shared expert.
func (k *reader) shared() int {
	size := required
	if t := k.f.info("blk.0.ffn_up_shexp.weight"); t != nil {
		size = t.dims[0]
	}
	return k.count(k.arch()+"expert_shared_feed_forward_length", size)
}

func qwen3MoEConfig(k *reader, c map[string]any) {
	k.norms(c)
	c["moe_intermediate_size"] = k.experts(c, "num_experts", 0)
	c["norm_topk_prob"] = true
}

// glm4MoEConfig adds what GLM 4.5 has.
func glm4MoEConfig(k *reader, c map[string]any) {
	c["rms_norm_eps"] = k.eps("glm4moe.attention.layer_norm_rms_epsilon")
	c["attention_bias"] = k.f.info("blk.0.attn_q.bias") != nil
	c["use_qk_norm"] = k.f.info("blk.0.attn_q_norm.weight") != nil
	k.partial(c)
	k.deepExperts(c)
}

// partial adds the part of a head that is rotated.
func (k *reader) partial(c map[string]any) {
	head, _ := c["head_dim"].(int)
	rotated, _ := c["rotated"].(int)
	c["partial_rotary_factor"] = float64(rotated) / float64(max(head, 1))
}

// nextn takes the modules that predict further tokens, which are the last blocks, from the layers, and
// returns how many are left.
func (k *reader) nextn(c map[string]any) (layers int) {
	layers, _ = c["num_hidden_layers"].(int)
	more := k.count(k.arch()+"nextn_predict_layers", 0)
	if more >= layers {
		k.bad(k.arch()+"nextn_predict_layers", "less than block_count, %d", layers)
	}
	c["num_hidden_layers"], c["num_nextn_predict_layers"] = layers-more, more
	return layers - more
}

// routed is where the families of DeepSeek V3's routers have the number of experts.
const routed = "n_routed_experts"

// deepExperts adds layers and experts of DeepSeek V3 and its relatives.
func (k *reader) deepExperts(c map[string]any) {
	a := k.arch()
	k.nextn(c)
	first := k.count(a+"leading_dense_block_count", 0)
	c["first_k_dense_replace"] = first
	c["moe_intermediate_size"] = k.experts(c, routed, first)
	c["n_shared_experts"] = k.count(a+"expert_shared_count", 0)
	c["n_group"], c["topk_group"] = k.count(a+"expert_group_count", 1), k.count(a+"expert_group_used_count", 1)
	c["routed_scaling_factor"] = k.float(a+"expert_weights_scale", 1)
	c["norm_topk_prob"] = k.bool(a+"expert_weights_norm", false)
	def := sigmoid
	if c["model_type"] == "deepseek_v3" {
		def = 0 // softmax: files of DeepSeek V2 do not say so
	}
	if f := k.count(a+"expert_gating_func", def); f != sigmoid {
		k.bad(a+"expert_gating_func", "%d, the sigmoid", sigmoid)
	}
}

// sigmoid is expert_gating_func's number of it.
const sigmoid = 2

// gptOSSConfig follows the published model where the file says nothing: bounds of YaRN's ramp that are
// not rounded to whole dimensions, and SwiGLU's limit.
func gptOSSConfig(k *reader, c map[string]any) {
	k.norms(c)
	k.window(c)
	if size := k.experts(c, "num_local_experts", 0); k.err == nil {
		c["intermediate_size"] = size
	}
	if scaling, ok := c["rope_scaling"].(map[string]any); ok && scaling["rope_type"] == "yarn" {
		scaling["truncate"] = false
	}
}

// phi3Config adds the divisors of longrope, which are tensors.
func phi3Config(k *reader, c map[string]any) {
	k.norms(c)
	delete(c, "attention_bias")
	k.window(c)
	const a = "phi3.rope.scaling."
	long, short := k.f.info(longFactors), k.f.info(shortFactors)
	if long == nil && short == nil {
		return
	}
	size, _ := c["head_dim"].(int)
	scaling := map[string]any{"rope_type": "longrope", "long_factor": k.factors(longFactors, size/2), "short_factor": k.factors(shortFactors, size/2)}
	if x := k.float(a+"attn_factor", 1); x != 1 {
		scaling["attention_factor"] = x
	}
	c["rope_scaling"], c["original_max_position_embeddings"] = scaling, k.count(a+"original_context_length", required)
}

// Tensors of what longrope divides frequencies by, in texts beyond the original length and in shorter ones:
// F32 [half a head].
const (
	longFactors  = "rope_factors_long.weight"
	shortFactors = "rope_factors_short.weight"
)

func (k *reader) factors(name string, n int) []float32 {
	t := k.f.info(name)
	if t == nil || t.typ.Name != "F32" || len(t.dims) != 1 || t.dims[0] != n {
		k.bad(k.arch()+"rope.scaling.original_context_length", "beside a tensor %q, F32 of [%d], half a head", name, n)
		return nil
	}
	by := make([]float32, n)
	t.typ.Float32s(by, t.data)
	for i, x := range by {
		if !(x > 0 && x < 1e6) && k.err == nil {
			k.bad(k.arch()+"rope.scaling.original_context_length", "beside positive numbers in tensor %q, whose element %d is %v", name, i, x)
			return nil
		}
	}
	return by
}

func olmo2Config(k *reader, c map[string]any) {
	k.norms(c)
	if w := k.count("olmo2.attention.sliding_window", 0); w != 0 {
		k.bad("olmo2.attention.sliding_window", "none: windows are those of OLMo 3, which is not read")
	}
}

func smolLM3Config(k *reader, c map[string]any) {
	k.norms(c)
	c["mlp_bias"] = k.f.info("blk.0.ffn_up.bias") != nil
	c["no_rope_layer_interval"] = 4 // as llama.cpp has it
}

// graniteConfig adds the factors. llama.cpp multiplies scores by attention.scale and divides logits by
// logit_scale.
func graniteConfig(k *reader, c map[string]any) {
	k.norms(c)
	c["mlp_bias"] = k.f.info("blk.0.ffn_up.bias") != nil
	size, _ := c["head_dim"].(int)
	c["attention_multiplier"] = k.float("granite.attention.scale", 1/math.Sqrt(float64(max(size, 1))))
	c["embedding_multiplier"] = k.float("granite.embedding_scale", 1)
	c["residual_multiplier"] = k.float("granite.residual_scale", 1)
	c["logits_scaling"] = k.float("granite.logit_scale", 1)
}

func starCoder2Config(k *reader, c map[string]any) {
	c["norm_epsilon"] = k.eps("starcoder2.attention.layer_norm_epsilon")
	c["use_bias"] = k.f.info("blk.0.attn_q.bias") != nil
	k.whole(c)
	k.window(c)
}

func cohere2Config(k *reader, c map[string]any) {
	c["layer_norm_eps"] = k.eps("cohere2.attention.layer_norm_epsilon")
	c["attention_bias"] = k.f.info("blk.0.attn_q.bias") != nil
	c["logit_scale"] = k.float("cohere2.logit_scale", 1)
	k.whole(c)
	k.window(c)
}

// gemmaConfig adds what Gemma 2 and 3 have in common. Their converter adds 1 to the weights of norms. Of
// what scores are multiplied by, files say nothing: it is one over the root of a head's size, and in the models of large
// layers that of hidden_size over heads.
func gemmaConfig(k *reader, c map[string]any, large int) {
	a := k.arch()
	k.norms(c)
	k.window(c)
	c["norms_include_one"] = true
	c["query_pre_attn_scalar"] = c["head_dim"]
	if hidden, _ := c["hidden_size"].(int); c["num_hidden_layers"] == large {
		heads, _ := c["num_attention_heads"].(int)
		c["query_pre_attn_scalar"] = hidden / max(heads, 1)
	}
	for _, key := range []string{"attn_logit_softcapping", "final_logit_softcapping"} {
		c[key] = nil
		if x := k.float(a+key, 0); x != 0 {
			c[key] = x
		}
	}
}

func gemma2Config(k *reader, c map[string]any) { gemmaConfig(k, c, 46) }

func gemma3Config(k *reader, c map[string]any) {
	gemmaConfig(k, c, 62)
	c["sliding_window_pattern"] = 6 // as llama.cpp has it
	c["rope_local_base_freq"] = k.float("gemma3.rope.freq_base_swa", 10000)
}
