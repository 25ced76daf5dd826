// Package modeltest makes small random models for tests.
package modeltest

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"talf/model/arch"
	"talf/model/safetensors"
)

// A Config is the shape of a random model.
type Config struct {
	Arch                                                        string // model_type; "" is llama
	Vocab, Hidden, Layers, Heads, KVHeads, HeadDim, FFN, MaxPos int
	Tied, AttnBias, MLPBias                                     bool    // qwen2 always has its own biases, gpt_neox those of its feed-forward network
	BF16                                                        bool    // store bfloat16 instead of float32
	Theta                                                       float64 // of the rotary angles
	RotaryPct                                                   float64 // gpt_neox: the rotated part of a head
	Sequential                                                  bool    // gpt_neox: no parallel residual
	Window, FullLayers                                          int     // mistral, qwen2, qwen3: a sliding window, 0 none; qwen: number of first layers without
	Original                                                    int     // phi3: longrope, with another rotation in texts of more tokens; 0: none
	EOS                                                         int32   // −1: none
}

// Default returns a model of about 30,000 weights. Its sizes are not multiples of a
// panel or a vector, and two query heads share each key head.
func Default() Config {
	return Config{
		Vocab: 97, Hidden: 40, Layers: 2, Heads: 4, KVHeads: 2, HeadDim: 10, FFN: 72, MaxPos: 512,
		Theta: 10000, EOS: 2,
	}
}

// Of returns Default as a model of an architecture, with all of its special features.
func Of(name string) Config {
	c := Default()
	c.Arch = name
	switch name {
	case "mistral", "gemma2", "gemma3_text", "phi3", "starcoder2", "cohere2", "gpt_oss":
		c.Window = 20
	case "qwen2":
		c.Window, c.FullLayers = 20, 1
	case "qwen3":
		c.HeadDim = 12
	case "deepseek_v3":
		c.KVHeads = c.Heads
	case "smollm3":
		c.Layers = 3
	case "gpt_neox":
		c.KVHeads, c.AttnBias, c.RotaryPct = c.Heads, true, 0.4
	}
	return c
}

// config returns a config.json like those of published models.
func (c Config) config() map[string]any {
	conf := map[string]any{
		"architectures": []string{"LlamaForCausalLM"}, "model_type": "llama", "hidden_act": "silu",
		"vocab_size": c.Vocab, "hidden_size": c.Hidden, "num_hidden_layers": c.Layers,
		"num_attention_heads": c.Heads, "num_key_value_heads": c.KVHeads, "head_dim": c.HeadDim,
		"intermediate_size": c.FFN, "max_position_embeddings": c.MaxPos, "rms_norm_eps": 1e-5,
		"rope_theta": c.Theta, "tie_word_embeddings": c.Tied, "attention_bias": c.AttnBias, "mlp_bias": c.MLPBias,
		"bos_token_id": 1,
	}
	if c.EOS >= 0 {
		conf["eos_token_id"] = c.EOS
	}
	switch c.Arch {
	case "", "llama":
		return conf
	case "mistral":
		conf["sliding_window"] = nil
		if c.Window > 0 {
			conf["sliding_window"] = c.Window
		}
	case "qwen2", "qwen3":
		if c.Arch == "qwen2" {
			delete(conf, "attention_bias")
		}
		if c.Window > 0 {
			conf["use_sliding_window"], conf["sliding_window"], conf["max_window_layers"] = true, c.Window, c.FullLayers
		}
	case "gpt_neox":
		for _, key := range []string{"num_key_value_heads", "head_dim", "rms_norm_eps", "rope_theta", "mlp_bias"} {
			delete(conf, key)
		}
		conf["hidden_act"], conf["layer_norm_eps"] = "gelu", 1e-5
		conf["rotary_emb_base"], conf["rotary_pct"], conf["use_parallel_residual"] = c.Theta, c.RotaryPct, !c.Sequential
	}
	for key, value := range c.special() {
		conf[key] = value
	}
	conf["model_type"] = c.Arch
	delete(conf, "architectures")
	return conf
}

// special returns the keys of families that have no field, small enough that caps, windows and
// multipliers change what short texts give.
func (c Config) special() map[string]any {
	const tanh = "gelu_pytorch_tanh"
	switch c.Arch {
	case "gemma2":
		return map[string]any{
			"hidden_activation": tanh, "sliding_window": c.Window, "query_pre_attn_scalar": 14,
			"attn_logit_softcapping": 5, "final_logit_softcapping": 8,
		}
	case "gemma3_text":
		return map[string]any{
			"hidden_activation": tanh, "sliding_window": c.Window, "sliding_window_pattern": 2, "query_pre_attn_scalar": 14,
			"rope_local_base_freq": 500, "rope_scaling": map[string]any{"rope_type": "linear", "factor": 4},
		}
	case "phi3":
		more := map[string]any{"sliding_window": c.Window}
		if c.Window == 0 {
			more["sliding_window"] = nil
		}
		if c.Original > 0 {
			short, long := make([]float64, c.HeadDim/2), make([]float64, c.HeadDim/2)
			for i := range short {
				short[i], long[i] = 1+0.1*float64(i), 1+1.5*float64(i)
			}
			more["original_max_position_embeddings"] = c.Original
			more["rope_scaling"] = map[string]any{"type": "longrope", "short_factor": short, "long_factor": long}
		}
		return more
	case "granite":
		return map[string]any{
			"embedding_multiplier": 3, "residual_multiplier": 0.4, "attention_multiplier": 0.2, "logits_scaling": 2,
		}
	case "smollm3":
		return map[string]any{"no_rope_layers": []int{1, 0, 1}}
	case "starcoder2":
		return map[string]any{"hidden_act": tanh, "sliding_window": c.Window, "norm_epsilon": 1e-5, "use_bias": true}
	case "mixtral":
		return map[string]any{"num_local_experts": 5, "num_experts_per_tok": 2}
	case "qwen2_moe":
		return map[string]any{
			"num_experts": 6, "num_experts_per_tok": 3, "moe_intermediate_size": 20, "shared_expert_intermediate_size": 36, "decoder_sparse_step": 2,
		}
	case "qwen3_moe":
		return map[string]any{"num_experts": 7, "num_experts_per_tok": 3, "moe_intermediate_size": 24, "norm_topk_prob": true}
	case "qwen3_next":
		return map[string]any{
			"num_experts": 6, "num_experts_per_tok": 3, "moe_intermediate_size": 20, "shared_expert_intermediate_size": 36, "partial_rotary_factor": 0.4,
			"full_attention_interval": 2, "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 6, "linear_value_head_dim": 7,
			"linear_conv_kernel_dim": 3,
		}
	case "glm4_moe":
		return map[string]any{
			"n_routed_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 24, "n_group": 3, "topk_group": 2,
			"routed_scaling_factor": 1.5, "first_k_dense_replace": 1, "use_qk_norm": true, "partial_rotary_factor": 0.4,
		}
	case "deepseek_v3":
		return map[string]any{
			"q_lora_rank": 22, "kv_lora_rank": 18, "qk_nope_head_dim": 6, "qk_rope_head_dim": 8, "v_head_dim": 7,
			"n_routed_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 24, "n_group": 3, "topk_group": 2,
			"routed_scaling_factor": 1.5, "first_k_dense_replace": 1,
			"rope_scaling": map[string]any{"rope_type": "yarn", "factor": 4, "original_max_position_embeddings": 128, "mscale": 1, "mscale_all_dim": 1},
		}
	case "gpt_oss":
		return map[string]any{
			"num_local_experts": 5, "num_experts_per_tok": 2, "swiglu_limit": 0.75, "sliding_window": c.Window, "attention_bias": true,
			"rope_scaling": map[string]any{"rope_type": "yarn", "factor": 4, "original_max_position_embeddings": 128, "truncate": false},
		}
	case "cohere2":
		return map[string]any{"sliding_window": c.Window, "sliding_window_pattern": 2, "layer_norm_eps": 1e-5, "logit_scale": 0.5}
	}
	return nil
}

// Spec returns the configuration that arch.Load will read.
func (c Config) Spec() *arch.Spec {
	raw, err := json.Marshal(c.config())
	if err != nil {
		panic("modeltest: " + err.Error())
	}
	s, err := arch.Parse("config.json", raw, nil)
	if err != nil {
		panic("modeltest: " + err.Error())
	}
	return s
}

// Random writes a random model to a new temporary directory, as a Hugging Face
// directory: config.json and model.safetensors. Equal arguments give equal
// bytes. Its next-token distributions are neither flat nor one-hot.
func Random(t testing.TB, c Config, seed uint64) (dir string) {
	t.Helper()
	dir = t.TempDir()
	if err := Write(dir, c, seed); err != nil {
		t.Fatal(err)
	}
	return dir
}

// Write writes a random model to dir.
func Write(dir string, c Config, seed uint64) error {
	raw, err := json.MarshalIndent(c.config(), "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "config.json"), append(raw, '\n'), 0o644); err != nil {
		return err
	}
	return safetensors.WriteFile(filepath.Join(dir, "model.safetensors"), map[string]string{"format": "pt"}, Tensors(c.Spec(), c.BF16, seed)...)
}

// Overflowing returns the tensors of a random model whose weights are finite, but so large in the
// first layer's down projection that its output is not.
func Overflowing(c Config, seed uint64) *safetensors.Set {
	tensors := Tensors(c.Spec(), false, seed)
	for i := range tensors {
		if t := &tensors[i]; t.Name == c.Spec().Weight(arch.Down, 0) {
			x := make([]float32, t.Len())
			for j := range x {
				x[j] = 3e38
			}
			*t = safetensors.F32(t.Name, x, t.Shape...)
		}
	}
	return safetensors.Of("overflowing", tensors...)
}

// Plant sets element i of the named tensor to x.
func Plant(tensors []safetensors.Tensor, name string, i int, x float32) {
	at := slices.IndexFunc(tensors, func(t safetensors.Tensor) bool { return t.Name == name })
	if at < 0 {
		panic("modeltest: no tensor " + name)
	}
	t := &tensors[at]
	v, err := t.Float32s()
	if err != nil {
		panic("modeltest: " + err.Error())
	}
	v = slices.Clone(v)
	v[i] = x
	*t = safetensors.F32(t.Name, v, t.Shape...)
}

const sqrt3 = 1.7320508075688772

// Tensors returns random weights for s, which may be a draft head. Every tensor has its
// own random stream, so adding one leaves the others as they are.
func Tensors(s *arch.Spec, bf16 bool, seed uint64) []safetensors.Tensor {
	var out []safetensors.Tensor
	add := func(name string, mean, std float64, shape ...int) {
		h := uint64(14695981039346656037) // FNV-1a of the name
		for i := range len(name) {
			h = (h ^ uint64(name[i])) * 1099511628211
		}
		r := rand.New(rand.NewPCG(seed, h))
		n := 1
		for _, d := range shape {
			n *= d
		}
		x := make([]float32, n)
		for i := range x {
			// Nearly normal, with the same bits everywhere: the sum of four uniform
			// numbers has a variance of 1/3.
			z := r.Float64() + r.Float64() + r.Float64() + r.Float64() - 2
			x[i] = float32(mean + float64(float64(std*sqrt3)*z))
		}
		if bf16 {
			out = append(out, safetensors.BF16(name, x, shape...))
		} else {
			out = append(out, safetensors.F32(name, x, shape...))
		}
	}
	// The gains keep hidden states from vanishing and logits from being flat.
	gain := map[arch.Role]float64{arch.FC: 1, arch.LMHead: 2}
	for _, t := range s.Tensors() {
		switch {
		case t.Bias:
			add(t.Name, 0, 0.1, t.Shape()...)
		case t.Cols == 0 && s.NormOffset:
			add(t.Name, 0, 0.1, t.Shape()...)
		case t.Cols == 0:
			add(t.Name, 1, 0.1, t.Shape()...)
		case t.Role == arch.Embed && !s.Tied:
			add(t.Name, 0, 1, t.Shape()...)
		case t.Role == arch.Embed: // it is also the LM head
			add(t.Name, 0, 2/math.Sqrt(float64(t.Cols)), t.Shape()...)
		default:
			g := gain[t.Role]
			if g == 0 {
				g = 1.5
			}
			add(t.Name, 0, g/math.Sqrt(float64(t.Cols)), t.Shape()...)
		}
	}
	return out
}
