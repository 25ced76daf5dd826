package gguf

// DeepSeek V3 and R1 in llama.cpp's form (conversion/deepseek.py, src/models/deepseek2.cpp): kv_b_proj in two
// parts, that of keys transposed, or whole in files before April 2025.

const deepSeekArch = "deepseek2"

var deepSeekNames = with(glm4MoENames, map[string]string{
	"blk.attn_q_a":       layer + "self_attn.q_a_proj",
	"blk.attn_q_a_norm":  layer + "self_attn.q_a_layernorm",
	"blk.attn_q_b":       layer + "self_attn.q_b_proj",
	"blk.attn_kv_a_mqa":  layer + "self_attn.kv_a_proj_with_mqa",
	"blk.attn_kv_a_norm": layer + "self_attn.kv_a_layernorm",
	"blk.attn_kv_b":      layer + "self_attn.kv_b_proj",
	"blk.attn_k_b":       layer + "self_attn.k_b_proj",
	"blk.attn_v_b":       layer + "self_attn.v_b_proj",
})

// stacked are modules of a matrix for each head, [heads][rows][columns], which directories have as one.
var stacked = map[string]bool{"blk.attn_k_b": true, "blk.attn_v_b": true}

// latents adds the sizes of latent attention. Files in two parts call it, rightly, attention with one head of
// keys: the latent and the rotated elements.
func (k *reader) latents(c map[string]any) {
	const a = deepSeekArch + "."
	rank, rot := k.count(a+"attention.kv_lora_rank", required), k.count(a+"rope.dimension_count", required)
	split := k.f.info("blk.0.attn_k_b.weight") != nil
	keys, values := a+"attention.key_length", a+"attention.value_length"
	if split {
		if n := k.count(keys, rank+rot); n != rank+rot {
			k.bad(keys, "kv_lora_rank and rope.dimension_count together, %d", rank+rot)
		}
		if n := k.count(values, rank); n != rank {
			k.bad(values, "kv_lora_rank, %d", rank)
		}
		keys, values = keys+"_mla", values+"_mla"
	}
	whole := k.count(keys, required)
	if whole <= rot {
		k.bad(keys, "more than rope.dimension_count, %d", rot)
	}
	c["kv_b_proj_split"], c["num_key_value_heads"] = split, c["num_attention_heads"]
	c["kv_lora_rank"], c["qk_rope_head_dim"], c["qk_nope_head_dim"] = rank, rot, whole-rot
	c["v_head_dim"] = k.count(values, required)
	c["q_lora_rank"] = nil
	if n := k.count(a+"attention.q_lora_rank", 0); n > 0 {
		c["q_lora_rank"] = n
	}
}

// deepSeekConfig adds what DeepSeek V3 has. A temperature that grows with the position is Mistral's.
func deepSeekConfig(k *reader, c map[string]any) {
	const a = deepSeekArch + "."
	c["rms_norm_eps"] = k.eps(a + "attention.layer_norm_rms_epsilon")
	c["attention_bias"] = k.f.info("blk.0.attn_q_a.bias") != nil
	k.latents(c)
	k.deepExperts(c)
	if k.float(a+"attention.temperature_scale", 0) != 0 {
		k.bad(a+"attention.temperature_scale", "none: such models are not read")
	}
	scaling, _ := c["rope_scaling"].(map[string]any)
	if x := k.float(a+"rope.scaling.yarn_log_multiplier", 0); x != 0 && scaling["rope_type"] == "yarn" {
		// It is a tenth of mscale_all_dim. mscale, which no file says, is the same in the published models.
		all := short(float32(10 * x))
		scaling["mscale"], scaling["mscale_all_dim"] = all, all
	}
}
