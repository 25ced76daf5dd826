package gguf

import "fmt"

// Qwen 3 Next in llama.cpp's form (conversion/qwen.py, src/models/qwen3next.cpp): norms by weights to which 1 is
// added, minus the exponentials in place of the logarithms of decays, and the projection of recurrent layers in
// two parts by heads, or whole in files before 2026.

var qwen3NextNames = with(qwen2MoENames, map[string]string{
	"blk.post_attention_norm":    layer + "post_attention_layernorm",
	"blk.attn_qkv":               layer + "linear_attn.in_proj_qkv",
	"blk.attn_gate":              layer + "linear_attn.in_proj_z",
	"blk.ssm_in":                 layer + "linear_attn.in_proj_qkvz",
	"blk.ssm_ba":                 layer + "linear_attn.in_proj_ba",
	"blk.ssm_a":                  layer + "linear_attn.decay",
	"blk.ssm_dt":                 layer + "linear_attn.dt_bias",
	"blk.ssm_norm":               layer + "linear_attn.norm",
	"blk.ssm_out":                layer + "linear_attn.out_proj",
	convolution:                  layer + "linear_attn.conv1d",
	"blk.nextn.eh_proj":          layer + "eh_proj",
	"blk.nextn.enorm":            layer + "enorm",
	"blk.nextn.hnorm":            layer + "hnorm",
	"blk.nextn.shared_head_norm": layer + "shared_head.norm",
})

// convolution is the module whose directories have [channels][1][tokens].
const convolution = "blk.ssm_conv1d"

func qwen3NextConfig(k *reader, c map[string]any) {
	const a = "qwen3next."
	c["rms_norm_eps"] = k.eps(a + "attention.layer_norm_rms_epsilon")
	c["norms_include_one"], c["norm_topk_prob"] = true, true
	k.partial(c)
	layers := k.nextn(c)
	c["linear_conv_kernel_dim"] = k.count(a+"ssm.conv_kernel", required)
	c["linear_key_head_dim"] = k.count(a+"ssm.state_size", required)
	c["linear_num_key_heads"] = k.count(a+"ssm.group_count", required)
	heads, inner := k.count(a+"ssm.time_step_rank", required), k.count(a+"ssm.inner_size", required)
	if heads < 1 || inner%max(heads, 1) != 0 {
		k.bad(a+"ssm.inner_size", "a multiple of ssm.time_step_rank, %d", heads)
	}
	c["linear_num_value_heads"], c["linear_value_head_dim"] = heads, inner/max(heads, 1)
	types := k.recurrent(layers)
	c["layer_types"], c["in_proj_split"] = types, false
	for i, t := range types {
		if t == recurrentLayer {
			c["in_proj_split"] = k.f.info(fmt.Sprintf("blk.%d.attn_qkv.weight", i)) != nil
			break
		}
	}
	c["moe_intermediate_size"] = k.experts(c, "num_experts", 0)
	c["shared_expert_intermediate_size"] = k.shared()
}

// Kinds of layers in layer_types.
const (
	recurrentLayer = "linear_attention"
	attentionLayer = "full_attention"
)

// recurrent returns the kinds of as many layers.
func (k *reader) recurrent(layers int) []string {
	const a = "qwen3next."
	every := k.count(a+"full_attention_interval", 4)
	if every < 1 {
		k.bad(a+"full_attention_interval", "at least 1")
	}
	const key = a + "attention.recurrent_layers"
	given, ok := k.f.keys[key]
	if ok && (!given.array || given.kind != kindBool || given.n < uint64(layers)) {
		k.bad(key, "an array of %d bools, one for each layer", layers)
	}
	if layers > len(k.f.infos) {
		k.bad(a+"block_count", "less than the number of tensors, %d", len(k.f.infos))
	}
	if k.err != nil {
		return nil
	}
	types := make([]string, layers)
	for i := range types {
		is := (i+1)%every != 0
		if ok {
			is = given.raw[i] != 0
		}
		if types[i] = attentionLayer; is {
			types[i] = recurrentLayer
		}
	}
	return types
}
