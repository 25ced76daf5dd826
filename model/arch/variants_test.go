package arch

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"talf/compute"
)

// What the families of hf-more make of missing keys, of published spellings and of those of
// transformers 5 is what transformers 5.23 makes of them.
func TestVariantsOfFamilies(t *testing.T) {
	const tanh = compute.GELUTanh
	four := []string{slidingAttention, fullAttention, slidingAttention, slidingAttention}
	type v struct {
		Act                                      compute.Activation
		KV, HeadDim, MaxPos, Rot                 int
		Theta, Local                             float64
		Windows                                  []int
		Unrotated                                []bool
		Embed, Resid, Attn, Cap, Logit, LogitCap float32
		Eps                                      float32
		Tied                                     bool
	}
	root := float32(math.Sqrt(64))
	gemma2 := v{tanh, 4, 256, 8192, 256, 1e4, 0, []int{4096, 0, 4096, 0}, nil, root, 0, 1.0 / 16, 50, 0, 30, 1e-6, true}
	gemma3 := v{tanh, 4, 256, 131072, 256, 1e6, 1e4, []int{4096, 4096, 4096, 4096}, nil, root, 0, 1.0 / 16, 0, 0, 0, 1e-6, true}
	phi3 := v{compute.SiLU, 8, 8, 4096, 8, 1e4, 0, nil, nil, 0, 0, 0, 0, 0, 0, 1e-5, false}
	olmo2 := v{compute.SiLU, 8, 8, 2048, 8, 1e4, 0, nil, nil, 0, 0, 0, 0, 0, 0, 1e-5, false}
	granite := v{compute.SiLU, 8, 8, 2048, 8, 1e4, 0, nil, nil, 0, 0, 1, 0, 0, 0, 1e-6, false}
	smollm3 := v{compute.SiLU, 4, 8, 32768, 8, 2e6, 0, nil, []bool{false, false, false, true}, 0, 0, 0, 0, 0, 0, 1e-6, true}
	starcoder2 := v{tanh, 2, 8, 4096, 8, 1e4, 0, nil, nil, 0, 0, 0, 0, 0, 0, 1e-5, true}
	cohere2 := v{compute.SiLU, 8, 8, 8192, 8, 1e4, 0, []int{4096, 4096, 4096, 0}, []bool{false, false, false, true}, 0, 0, 0, 0, 0.0625, 0, 1e-5, true}
	gptOSS := v{compute.ClampedSwiGLU, 8, 64, 131072, 64, 150000, 0, []int{128, 0, 128, 0}, nil, 0, 0, 0, 0, 0, 0, 1e-5, false}
	defaults := map[string]v{
		"gemma2": gemma2, "gemma3_text": gemma3, "phi3": phi3, "olmo2": olmo2, "granite": granite,
		"smollm3": smollm3, "starcoder2": starcoder2, "cohere2": cohere2, "gpt_oss": gptOSS,
	}
	same := func(*v) {}
	for _, c := range []struct {
		typ, name string
		edits     m
		want      func(*v)
	}{
		{"gemma2", "missing keys", nil, same},
		{
			"gemma2", "no caps, another scale",
			m{"attn_logit_softcapping": null, "final_logit_softcapping": null, "query_pre_attn_scalar": 64, "sliding_window": 9},
			func(x *v) { x.Cap, x.LogitCap, x.Attn, x.Windows = 0, 0, 0.125, []int{9, 0, 9, 0} },
		},
		{"gemma2", "transformers 5", m{"layer_types": four, "sliding_window": 5}, func(x *v) { x.Windows = []int{5, 0, 5, 5} }},
		{"gemma3_text", "missing keys", nil, same},
		{
			"gemma3_text", "published",
			m{"sliding_window": 12, "sliding_window_pattern": 2, "rope_local_base_freq": 500, "rope_theta": 2e6},
			func(x *v) { x.Windows, x.Local, x.Theta = []int{12, 0, 12, 0}, 500, 2e6 },
		},
		{
			"gemma3_text", "transformers 5",
			m{"layer_types": four, "sliding_window": 12, "rope_parameters": m{
				fullAttention: m{"rope_type": "linear", "factor": 8, "rope_theta": 3e6}, slidingAttention: m{"rope_type": "default", "rope_theta": 700},
			}},
			func(x *v) { x.Windows, x.Local, x.Theta = []int{12, 0, 12, 12}, 700, 3e6 },
		},
		{"phi3", "missing keys", nil, same},
		{
			"phi3", "a window, and a part of each head rotated",
			m{"sliding_window": 7, "partial_rotary_factor": 0.75, "original_max_position_embeddings": 4096},
			func(x *v) { x.Windows, x.Rot = []int{7, 7, 7, 7}, 6 },
		},
		{"phi3", "a window that no text fills", m{"sliding_window": 262144}, same},
		{"olmo2", "missing keys", nil, same},
		{"granite", "missing keys", nil, same},
		{
			"granite", "multipliers",
			m{"embedding_multiplier": 12, "residual_multiplier": 0.22, "attention_multiplier": 0.0078125, "logits_scaling": 8, "tie_word_embeddings": true},
			func(x *v) { x.Embed, x.Resid, x.Attn, x.Logit, x.Tied = 12, 0.22, 0.0078125, 0.125, true },
		},
		{"smollm3", "missing keys", nil, same},
		{
			"smollm3", "windows where nothing rotates",
			m{"no_rope_layers": []int{0, 1, 1, 0}, "use_sliding_window": true, "sliding_window": 6},
			func(x *v) { x.Unrotated, x.Windows = []bool{true, false, false, true}, []int{6, 0, 0, 6} },
		},
		{"smollm3", "a window that is not used", m{"sliding_window": 6, "no_rope_layers": []int{1, 1, 1, 1}}, func(x *v) { x.Unrotated = nil }},
		{"starcoder2", "missing keys", nil, same},
		{"starcoder2", "published", m{"sliding_window": 11, "norm_epsilon": 1e-4}, func(x *v) { x.Windows, x.Eps = []int{11, 11, 11, 11}, 1e-4 }},
		{"gpt_oss", "missing keys", nil, same},
		{
			"gpt_oss", "published",
			m{
				"layer_types": four, "sliding_window": 9, "quantization_config": m{"quant_method": "mxfp4", "modules_to_not_convert": []string{"lm_head"}},
				"rope_scaling": m{"rope_type": "yarn", "factor": 32, "original_max_position_embeddings": 8192, "truncate": false}, "hidden_act": "silu",
			},
			func(x *v) { x.Windows, x.MaxPos = []int{9, 0, 9, 9}, 32*8192 },
		},
		{"cohere2", "missing keys", nil, same},
		{
			"cohere2", "transformers 5",
			m{"layer_types": four, "sliding_window": 3, "logit_scale": 1, "rope_parameters": m{"rope_type": "default", "rope_theta": 5e4}},
			func(x *v) {
				x.Windows, x.Unrotated, x.Logit, x.Theta = []int{3, 0, 3, 3}, []bool{false, true, false, false}, 0, 5e4
			},
		},
	} {
		want := defaults[c.typ]
		c.want(&want)
		s, err := Parse("config.json", family(c.typ, c.edits), nil)
		if err != nil {
			t.Errorf("%s, %s: %v", c.typ, c.name, err)
			continue
		}
		got := v{
			s.Act, s.KVHeads, s.HeadDim, s.MaxPos, s.Rotated(), s.Rope.Theta, s.LocalRope.Theta, s.Windows, s.Unrotated,
			s.EmbedScale, s.ResidScale, s.AttnScale, s.AttnCap, s.LogitScale, s.LogitCap, s.NormEps, s.Tied,
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s, %s (-want +got):\n%s", c.typ, c.name, d)
		}
	}
}

// A model with longrope turns all positions of texts beyond its original length by other divisors. One that is no
// longer has no use for them.
func TestLongRopeSwitchesAtTheOriginalLength(t *testing.T) {
	factors := []float64{1, 1.5, 2, 4}
	for _, c := range []struct {
		edits        m
		most, length int
	}{
		{m{"max_position_embeddings": 4096}, 4096, 0},
		{m{"max_position_embeddings": 4096, "original_max_position_embeddings": 4097}, 4096, 0},
		{m{"max_position_embeddings": 8192}, 8192, 4096}, // the published default
		{m{"max_position_embeddings": 8192, "original_max_position_embeddings": 10}, 8192, 10},
	} {
		c.edits["rope_scaling"] = m{"type": "longrope", "short_factor": factors, "long_factor": factors}
		s, err := Parse("config.json", family("phi3", c.edits), nil)
		if err != nil {
			t.Fatal(err)
		}
		if s.MaxPos != c.most || s.Rope.Switch() != c.length || s.Long(c.length) || s.Long(c.length+1) != (c.length > 0) {
			t.Errorf("%v: %d positions, all of them others in texts of more than %d, want %d and %d", c.edits, s.MaxPos, s.Rope.Switch(), c.most, c.length)
		}
	}
	s, err := Parse("config.json", family("phi3", m{
		"max_position_embeddings": 131072, "original_max_position_embeddings": 4096,
		"rope_scaling": m{"type": "longrope", "short_factor": factors, "long_factor": []float64{9, 9, 9, 9}},
	}), nil)
	if err != nil {
		t.Fatal(err)
	}
	if s.MaxPos != 131072 || s.Rope.Switch() != 4096 {
		t.Errorf("%d positions, %d of short texts, want 131072 and 4096", s.MaxPos, s.Rope.Switch())
	}
	scale := math.Sqrt(1 + math.Log(32)/math.Log(4096))
	if math.Abs(s.Rope.Scale-scale) > 1e-12 {
		t.Errorf("cosines are multiplied by %v, want %v", s.Rope.Scale, scale)
	}
	for i, f := range s.Rope.Frequencies(8) {
		if want := math.Pow(1e4, -float64(i)/4) / factors[i]; math.Abs(float64(f)/want-1) > 1e-6 {
			t.Errorf("angle %d is %v, want %v", i, f, want)
		}
	}
	for i, f := range s.Rope.Beyond().Frequencies(8) {
		if want := math.Pow(1e4, -float64(i)/4) / 9; math.Abs(float64(f)/want-1) > 1e-6 {
			t.Errorf("angle %d of long texts is %v, want %v", i, f, want)
		}
	}
	if row := s.Rope.Beyond().Table(8, 9, 10); math.Abs(float64(row[0])-scale*math.Cos(1)) > 1e-6 {
		t.Errorf("first cosine at position 9 of long texts is %v, want %v", row[0], scale*math.Cos(1))
	}
	if row := s.Rope.Table(8, 3, 4); math.Abs(float64(row[0])-scale*math.Cos(3)) > 1e-6 {
		t.Errorf("first cosine at position 3 is %v, want %v", row[0], scale*math.Cos(3))
	}
}

func TestVariantsAreRefusedByName(t *testing.T) {
	for _, c := range []struct {
		typ   string
		edits m
		want  []string
	}{
		{"gemma2", m{"hidden_activation": "gelu"}, []string{`hidden_activation is "gelu"`, `"gelu_pytorch_tanh"`}},
		{"gemma2", m{"query_pre_attn_scalar": 0}, []string{"query_pre_attn_scalar is 0, want more than 0"}},
		{"gemma3_text", m{"query_pre_attn_scalar": -3}, []string{"query_pre_attn_scalar is -3, want more than 0"}},
		{"gemma2", m{"final_logit_softcapping": -3}, []string{"final_logit_softcapping is -3"}},
		{"gemma3_text", m{"rope_parameters": m{slidingAttention: m{"rope_type": "default"}}}, []string{"rope_parameters.full_attention is missing"}},
		{"gemma3_text", m{"rope_local_base_freq": 0.5}, []string{"windows: rope_theta is 0.5"}},
		{"gemma3_text", m{"sliding_window": null, "layer_types": []string{slidingAttention, fullAttention, fullAttention, fullAttention}}, []string{"layer_types[0]", "sliding_window"}},
		{"phi3", m{"attention_bias": true}, []string{"attention_bias is true, want false for phi3"}},
		{"phi3", m{"rope_scaling": m{"type": "longrope"}}, []string{"short_factor is missing"}},
		{"phi3", m{"rope_scaling": m{"type": "longrope", "short_factor": []float64{1, 2}}}, []string{"short_factor has 2 entries, want 4"}},
		{"phi3", m{"rope_scaling": m{"type": "longrope", "short_factor": []float64{1, 2, 0, 4}}}, []string{"short_factor[2] is 0"}},
		{"phi3", m{"max_position_embeddings": 8192, "rope_scaling": m{"type": "longrope", "short_factor": []float64{1, 2, 3, 4}}}, []string{"long_factor has 0 entries, want 4"}},
		{"phi3", m{"rope_scaling": m{"type": "longrope", "short_factor": []float64{1, 2, 3, 4}, "long_factor": []float64{1, -2, 3, 4}}}, []string{"long_factor[1] is -2"}},
		{"olmo2", m{"rope_scaling": m{"type": "longrope", "short_factor": []float64{1, 1, 1, 1}}}, []string{"longrope", "not supported for olmo2"}},
		{"cohere2", m{"rope_scaling": m{"type": "longrope", "short_factor": []float64{1, 1, 1, 1}}}, []string{"longrope", "not supported for cohere2"}},
		{"gpt_neox", m{"rope_scaling": m{"type": "longrope", "short_factor": []float64{1}}}, []string{"longrope", "not supported for gpt_neox"}},
		{"granite", m{"logits_scaling": 0}, []string{"logits_scaling is 0"}},
		{"granite", m{"logits_scaling": -2}, []string{"logits_scaling is -2, want more than 1/1e+09"}},
		{"granite", m{"logits_scaling": 1e-30}, []string{"logits_scaling is 1e-30"}},
		{"granite", m{"embedding_multiplier": 1e30}, []string{"embedding_multiplier is 1e+30, want more than 0 and less than 1e+09"}},
		{"granite", m{"attention_multiplier": 0}, []string{"attention_multiplier is 0"}},
		{"granite", m{"residual_multiplier": -1}, []string{"residual_multiplier is -1"}},
		{"smollm3", m{"no_rope_layers": []int{1}}, []string{"no_rope_layers has 1 entries", "num_hidden_layers = 4"}},
		{"starcoder2", m{"norm_type": "rms_norm"}, []string{`norm_type is "rms_norm"`}},
		{"gpt_oss", m{"quantization_config": m{"quant_method": "fp8"}}, []string{`quantization_config.quant_method is "fp8"`, `"mxfp4"`}},
		{"gpt_oss", m{"hidden_act": "gelu"}, []string{`hidden_act is "gelu"`}},
		{"gpt_oss", m{"swiglu_limit": 0}, []string{"swiglu_limit is 0, want more than 0"}},
		{"gpt_oss", m{"num_local_experts": 3}, []string{"num_experts_per_tok is 4, want 1 to num_experts, 3"}},
		{"deepseek_v3", m{"num_key_value_heads": 2}, []string{"num_key_value_heads is 2, want num_attention_heads, 8"}},
		{"deepseek_v3", m{"num_key_value_heads": 8, "scoring_func": "softmax"}, []string{`scoring_func is "softmax", want "sigmoid"`}},
		{"deepseek_v3", m{"num_key_value_heads": 8, "topk_method": "greedy"}, []string{`topk_method is "greedy", want "noaux_tc"`}},
		{"deepseek_v3", m{"num_key_value_heads": 8, "moe_layer_freq": 2}, []string{"moe_layer_freq is 2, want 1"}},
		{"deepseek_v3", m{"num_key_value_heads": 8, "kv_lora_rank": 0}, []string{"kv_lora_rank is 0, want an integer from 1"}},
		{"deepseek_v3", m{"num_key_value_heads": 8, "kv_lora_rank": 7}, []string{"kv_lora_rank is 7, want an even number"}},
		{"deepseek_v3", m{"num_key_value_heads": 8, "qk_rope_head_dim": 0}, []string{"qk_rope_head_dim is 0, want an even number of at least 2"}},
		{"deepseek_v3", m{"num_key_value_heads": 8, "qk_rope_head_dim": 7}, []string{"qk_rope_head_dim is 7, want an even number of at least 2"}},
		{"deepseek_v3", m{"num_key_value_heads": 8, "qk_nope_head_dim": 7}, []string{"qk_nope_head_dim is 7, want an even number"}},
		{"deepseek_v3", m{"num_key_value_heads": 8, "rope_scaling": m{"type": "yarn", "factor": 40, "original_max_position_embeddings": 4096, "mscale_all_dim": 1e9}}, []string{"rope_scaling.mscale_all_dim is 1e+09, want 0 to 1000"}},
		{"deepseek_v3", m{"num_key_value_heads": 8, "v_head_dim": 1 << 25}, []string{"v_head_dim is 33554432, want 1 to 4194304 for 8 heads"}},
		{"deepseek_v3", m{"num_key_value_heads": 8, "n_group": 0}, []string{"n_group is 0, want an integer from 1"}},
		{"deepseek_v3", m{"num_key_value_heads": 8, "n_group": 3}, []string{"n_group is 3, want equal groups of 2 or more of the 256 experts"}},
		{"deepseek_v3", m{"num_key_value_heads": 8, "n_group": 256}, []string{"n_group is 256, want equal groups of 2 or more of the 256 experts"}},
		{"deepseek_v3", m{"num_key_value_heads": 8, "topk_group": 9}, []string{"topk_group is 9, want 1 to n_group = 8 groups with 8 experts to choose"}},
		{"deepseek_v3", m{"num_key_value_heads": 8, "n_routed_experts": 24, "topk_group": 2}, []string{"topk_group is 2, want 1 to n_group = 8 groups with 8 experts to choose"}},
		{"deepseek_v3", m{"num_key_value_heads": 8, "num_experts_per_tok": 257}, []string{"num_experts_per_tok is 257, want 1 to num_experts, 256"}},
		{"deepseek_v3", m{"num_key_value_heads": 8, "n_shared_experts": 1 << 26}, []string{"moe_intermediate_size is 2048 and the shared expert's 137438953472, want up to 67108864"}},
		{"deepseek_v3", m{"num_key_value_heads": 8, "quantization_config": m{"quant_method": "fp8"}}, []string{"quantization_config is set"}},
		{"cohere2", m{"use_qk_norm": true}, []string{"use_qk_norm is true, want false for cohere2"}},
	} {
		_, err := Parse("dir/config.json", family(c.typ, c.edits), nil)
		for _, w := range append(c.want, "dir/config.json: ") {
			if err == nil || !strings.Contains(err.Error(), w) {
				t.Errorf("%s %v: error %v, want %q in it", c.typ, fmt.Sprint(c.edits), err, w)
			}
		}
	}
}

// What gpt-oss has when config.json does not say it, as transformers 5.23 has it.
func TestGPTOSSWithoutKeys(t *testing.T) {
	s, err := Parse("config.json", family("gpt_oss", nil), nil)
	if err != nil {
		t.Fatal(err)
	}
	r := s.Rope
	if r.Type != "yarn" || r.Factor != 32 || r.Original != 4096 || r.BetaFast != 32 || r.BetaSlow != 1 || r.Truncate {
		t.Errorf("rotation %+v, want yarn by 32 from 4096 positions, without truncation", r)
	}
	if s.ActLimit != 7 {
		t.Errorf("swiglu_limit is %v, want 7", s.ActLimit)
	}
	if s, err = Parse("config.json", family("gpt_oss", m{"swiglu_limit": 2.5}), nil); err != nil || s.ActLimit != 2.5 {
		t.Errorf("swiglu_limit is %v (%v), want 2.5", s.ActLimit, err)
	}
}

// What DeepSeek V3 has when config.json does not say it, and what its keys change, as transformers 5.23
// has it.
func TestLatentAttentionOfDeepSeekV3(t *testing.T) {
	yarn := m{"type": "yarn", "factor": 40, "original_max_position_embeddings": 4096, "mscale": 1, "mscale_all_dim": 1, "beta_fast": 32, "beta_slow": 1}
	full := Latent{QRank: 1536, KVRank: 512, Nope: 128, ValueDim: 128}
	mscale := 0.1*math.Log(40) + 1
	for _, c := range []struct {
		name   string
		edits  m
		latent Latent
		rot    int
		pairs  bool
		scale  float64 // 0: the usual one
	}{
		{"missing keys", nil, full, 64, true, 0},
		{"no compressed queries", m{"q_lora_rank": null}, Latent{KVRank: 512, Nope: 128, ValueDim: 128}, 64, true, 0},
		{"other sizes", m{"q_lora_rank": 20, "kv_lora_rank": 10, "qk_nope_head_dim": 6, "qk_rope_head_dim": 4, "v_head_dim": 5}, Latent{20, 10, 6, 5}, 4, true, 0},
		{"published", m{"rope_scaling": yarn}, full, 64, true, mscale * mscale / math.Sqrt(192)},
		{"transformers 5", m{"head_dim": 64, "qk_head_dim": 192, "rope_parameters": yarn, "rope_interleave": false}, full, 64, false, mscale * mscale / math.Sqrt(192)},
	} {
		edits := m{"num_key_value_heads": 8}
		for key, value := range c.edits {
			edits[key] = value
		}
		s, err := Parse("config.json", family("deepseek_v3", edits), nil)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if s.Latent != c.latent || s.RotDim != c.rot || s.HeadDim != c.rot+c.latent.Nope || s.RopePairs != c.pairs || math.Abs(float64(s.AttnScale)/max(c.scale, 1e-9)-1) > 1e-6 && s.AttnScale != 0 {
			t.Errorf("%s: %+v, %d of %d elements of a head rotated, in pairs: %v, scale %v", c.name, s.Latent, s.RotDim, s.HeadDim, s.RopePairs, s.AttnScale)
		}
		if (s.AttnScale == 0) != (c.scale == 0) {
			t.Errorf("%s: scale %v, want %v", c.name, s.AttnScale, c.scale)
		}
		if s.Rope.Type == "yarn" && s.Rope.Scale != 1 {
			t.Errorf("%s: cosines are multiplied by %v, want 1", c.name, s.Rope.Scale)
		}
		want := Mixture{Experts: 256, Top: 8, FFN: 2048, Shared: 2048, Dense: []bool{true, true, true, false}, Sigmoid: true, Renorm: true, Factor: 2.5, Groups: 8, TopGroups: 4}
		if d := cmp.Diff(want, s.Mixture); d != "" {
			t.Errorf("%s: experts (-want +got):\n%s", c.name, d)
		}
	}
}

// Of the published [not rotated | pairs] the pairs' first elements come first, then their second ones.
func TestRotatedRowsComeFirst(t *testing.T) {
	s := &Spec{RotDim: 4, RopePairs: true}
	if got, want := fmt.Sprint(s.RotatedFirst(14, 7)), "[3 5 4 6 0 1 2 10 12 11 13 7 8 9]"; got != want {
		t.Errorf("rows %s, want %s", got, want)
	}
	s.RopePairs = false
	if got, want := fmt.Sprint(s.RotatedFirst(7, 7)), "[3 4 5 6 0 1 2]"; got != want {
		t.Errorf("rows without pairs %s, want %s", got, want)
	}
}
