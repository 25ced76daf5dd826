package gguf

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
)

// A family is a line of the table: an architecture as GGUF names it, and what it is called in
// config.json.
type family struct {
	Arch  string // general.architecture
	Model string // model_type
	Class string // architectures[0]
	// Names maps modules: those of layers follow "blk.N.", and %d is N. A tensor is a module's
	// weight or bias.
	Names map[string]string
	// Config adds what is not in every config.json.
	Config func(k *reader, c map[string]any)
	// Order returns which stored row each of the rows of a module's tensors is, nil if they are in
	// order; false if the configuration wants another number of rows.
	Order func(c map[string]any, module string, rows int) ([]int, bool)
}

var families = []family{
	{"llama", "llama", "LlamaForCausalLM", with(llamaNames, mixtralNames), llamaConfig, llamaOrder},
	{"qwen2", "qwen2", "Qwen2ForCausalLM", llamaNames, rmsConfig, nil},
	{"qwen2moe", "qwen2_moe", "Qwen2MoeForCausalLM", qwen2MoENames, qwen2MoEConfig, nil},
	{"qwen3", "qwen3", "Qwen3ForCausalLM", llamaNames, rmsConfig, nil},
	{"qwen3moe", "qwen3_moe", "Qwen3MoeForCausalLM", qwen3MoENames, qwen3MoEConfig, nil},
	{"glm4moe", "glm4_moe", "Glm4MoeForCausalLM", glm4MoENames, glm4MoEConfig, nil},
	{"gemma2", "gemma2", "Gemma2ForCausalLM", gemmaNames, gemma2Config, nil},
	{"gemma3", "gemma3_text", "Gemma3ForCausalLM", gemmaNames, gemma3Config, nil},
	{"phi3", "phi3", "Phi3ForCausalLM", phi3Names, phi3Config, nil},
	{"gpt-oss", "gpt_oss", "GptOssForCausalLM", gptOSSNames, gptOSSConfig, nil},
	{"olmo2", "olmo2", "Olmo2ForCausalLM", olmo2Names, olmo2Config, nil},
	{"granite", "granite", "GraniteForCausalLM", llamaNames, graniteConfig, llamaOrder},
	{"smollm3", "smollm3", "SmolLM3ForCausalLM", llamaNames, smolLM3Config, llamaOrder},
	{"starcoder2", "starcoder2", "Starcoder2ForCausalLM", starCoder2Names, starCoder2Config, nil},
	{"cohere2", "cohere2", "Cohere2ForCausalLM", llamaNames, cohere2Config, nil},
	{deepSeekArch, "deepseek_v3", "DeepseekV3ForCausalLM", deepSeekNames, deepSeekConfig, nil},
	{"qwen3next", "qwen3_next", "Qwen3NextForCausalLM", qwen3NextNames, qwen3NextConfig, nil},
	{"gptneox", "gpt_neox", "GPTNeoXForCausalLM", neoxNames, neoxConfig, neoxOrder},
	{HeadArch, "llama", "LlamaForCausalLMEagle3", headNames, headConfig, llamaOrder},
}

// architectures returns the names of the architectures that are read.
func architectures() []string {
	var all []string
	for i := range families {
		all = append(all, families[i].Arch)
	}
	return all
}

var llamaNames = map[string]string{
	"token_embd":      "model.embed_tokens",
	"output_norm":     "model.norm",
	"output":          "lm_head",
	"blk.attn_norm":   "model.layers.%d.input_layernorm",
	"blk.attn_q":      "model.layers.%d.self_attn.q_proj",
	"blk.attn_k":      "model.layers.%d.self_attn.k_proj",
	"blk.attn_v":      "model.layers.%d.self_attn.v_proj",
	"blk.attn_output": "model.layers.%d.self_attn.o_proj",
	"blk.attn_q_norm": "model.layers.%d.self_attn.q_norm",
	"blk.attn_k_norm": "model.layers.%d.self_attn.k_norm",
	"blk.ffn_norm":    "model.layers.%d.post_attention_layernorm",
	"blk.ffn_gate":    "model.layers.%d.mlp.gate_proj",
	"blk.ffn_up":      "model.layers.%d.mlp.up_proj",
	"blk.ffn_down":    "model.layers.%d.mlp.down_proj",
}

var neoxNames = map[string]string{
	"token_embd":      "gpt_neox.embed_in",
	"output_norm":     "gpt_neox.final_layer_norm",
	"output":          "embed_out",
	"blk.attn_norm":   "gpt_neox.layers.%d.input_layernorm",
	"blk.attn_qkv":    "gpt_neox.layers.%d.attention.query_key_value",
	"blk.attn_output": "gpt_neox.layers.%d.attention.dense",
	"blk.ffn_norm":    "gpt_neox.layers.%d.post_attention_layernorm",
	"blk.ffn_up":      "gpt_neox.layers.%d.mlp.dense_h_to_4h",
	"blk.ffn_down":    "gpt_neox.layers.%d.mlp.dense_4h_to_h",
}

// family returns the model's line of the table.
func (f *File) family() (*family, error) {
	k := f.reader()
	kind, arch := k.string("general.type"), k.string("general.architecture")
	if k.err != nil {
		return nil, k.err
	}
	if kind != "" && kind != "model" {
		return nil, fmt.Errorf("%s: general.type is %.40q, want \"model\": a part or an addition of a model is not one", f.Path, kind)
	}
	for i := range families {
		if families[i].Arch == arch {
			return &families[i], nil
		}
	}
	return nil, fmt.Errorf("%s: general.architecture %.40q is not supported; supported: %s", f.Path, arch, strings.Join(architectures(), ", "))
}

// config returns the fields of config.json.
func (f *File) config() (map[string]any, *family, error) {
	fam, err := f.family()
	if err != nil {
		return nil, nil, err
	}
	k, a := f.reader(), fam.Arch+"."
	embed, rows := f.info("token_embd.weight"), 0
	switch {
	case embed != nil && len(embed.dims) == 2:
		rows = embed.dims[0]
	case embed == nil && fam.Arch == HeadArch: // it uses its target's
		rows = k.count(a+"vocab_size", k.tokenCount())
	default:
		return nil, nil, fmt.Errorf("%s: no matrix \"token_embd.weight\": a file with a vocabulary only?", f.Path)
	}
	layers := k.count(a+"block_count", required)
	heads := k.layered(a+"attention.head_count", required, layers)
	c := map[string]any{
		"model_type": fam.Model, "architectures": []string{fam.Class},
		"vocab_size":              rows,
		"hidden_size":             k.count(a+"embedding_length", required),
		"num_hidden_layers":       layers,
		"num_attention_heads":     heads,
		"num_key_value_heads":     k.layered(a+"attention.head_count_kv", heads, layers),
		"intermediate_size":       k.layered(a+"feed_forward_length", required, layers),
		"max_position_embeddings": k.count(a+"context_length", required),
		"tie_word_embeddings":     f.info("output.weight") == nil,
	}
	hidden, _ := c["hidden_size"].(int)
	size := k.count(a+"attention.key_length", hidden/max(heads, 1))
	if fam.Arch == deepSeekArch {
		size = k.count(a+"rope.dimension_count", required) // see latents
	} else if v := k.count(a+"attention.value_length", size); v != size {
		k.bad(a+"attention.value_length", "that of keys, %d", size)
	}
	c["head_dim"] = size
	k.rope(c, a, size)
	fam.Config(k, c)
	n := k.tokenCount()
	if n > rows {
		k.bad("tokenizer.ggml.tokens", "at most %d tokens, as many as there are rows of token_embd.weight, or as vocab_size says", rows)
	}
	if n > 0 && k.err == nil {
		v := k.vocab()
		if bos := v.id("bos_token_id"); bos >= 0 {
			c["bos_token_id"] = bos
		}
		if len(v.ends) > 0 {
			c["eos_token_id"] = v.ends
		}
	}
	return c, fam, k.err
}

// layered is count for what may differ from layer to layer: it must not, and an array has an
// element for each.
func (k *reader) layered(key string, def, layers int) int {
	if v, ok := k.f.keys[key]; ok && v.array && v.n != uint64(layers) {
		k.bad(key, "one integer, or %d for as many layers", layers)
		return 0
	}
	return k.count(key, def)
}

// info returns the entry of a tensor, or nil.
func (f *File) info(name string) *info {
	i := slices.IndexFunc(f.infos, func(t info) bool { return t.name == name })
	if i < 0 {
		return nil
	}
	return &f.infos[i]
}

// rmsConfig adds the fields of families with RMSNorm.
func rmsConfig(k *reader, c map[string]any) {
	k.norms(c)
	if a := k.arch(); k.count(a+"attention.sliding_window", 0) != 0 && c["model_type"] != "mistral" {
		k.bad(a+"attention.sliding_window", "none in this architecture")
	}
}

// eps reads the epsilon of norms.
func (k *reader) eps(key string) float64 {
	x := k.float(key, math.NaN())
	if k.err == nil && !(x > 0 && x < 1) {
		k.bad(key, "a number between 0 and 1")
	}
	return x
}

// llamaConfig adds those of Llama and Mistral, which share the architecture. llama.cpp's
// converter leaves out Mistral's window.
func llamaConfig(k *reader, c map[string]any) {
	if w := k.count("llama.attention.sliding_window", 0); w > 0 {
		c["model_type"], c["architectures"], c["sliding_window"] = "mistral", []string{"MistralForCausalLM"}, w
	}
	rmsConfig(k, c)
	c["mlp_bias"] = k.f.info("blk.0.ffn_up.bias") != nil
	if k.count("llama.expert_count", 0) != 0 {
		mixtralConfig(k, c)
	}
}

func neoxConfig(k *reader, c map[string]any) {
	c["layer_norm_eps"] = k.eps("gptneox.attention.layer_norm_epsilon")
	c["use_parallel_residual"] = k.bool("gptneox.use_parallel_residual", true)
	c["hidden_act"] = "gelu"
	c["attention_bias"] = k.f.info("blk.0.attn_qkv.bias") != nil
	head, _ := c["head_dim"].(int)
	rotated, _ := c["rotated"].(int)
	c["partial_rotary_factor"] = float64(rotated) / float64(max(head, 1))
	if heads, _ := c["num_attention_heads"].(int); c["hidden_size"] != heads*head || c["num_key_value_heads"] != heads {
		k.bad("gptneox.attention.head_count", "heads of keys and queries that make up embedding_length")
	}
}

// llamaOrder undoes the order of queries and keys: llama.cpp rotates neighbours where the published
// models rotate halves, so its converter interleaves the halves of each head.
func llamaOrder(c map[string]any, module string, rows int) ([]int, bool) {
	heads, _ := c["num_attention_heads"].(int)
	switch module {
	case "blk.attn_q":
	case "blk.attn_k":
		heads, _ = c["num_key_value_heads"].(int)
	default:
		return nil, true
	}
	size, _ := c["head_dim"].(int)
	if heads*size != rows || size%2 != 0 {
		return nil, false
	}
	order := make([]int, 0, rows)
	for h := range heads {
		for i := range size {
			half := size / 2
			order = append(order, h*size+i%half*2+i/half)
		}
	}
	return order, true
}

// neoxOrder undoes the order of the fused projection: llama.cpp has all queries, then all keys, then
// all values, where the published models have those of head 0, of head 1, ….
func neoxOrder(c map[string]any, module string, rows int) ([]int, bool) {
	if module != "blk.attn_qkv" {
		return nil, true
	}
	heads, _ := c["num_attention_heads"].(int)
	size, _ := c["head_dim"].(int)
	if 3*heads*size != rows {
		return nil, false
	}
	order := make([]int, 0, rows)
	for h := range heads {
		for kind := range 3 {
			for i := range size {
				order = append(order, (kind*heads+h)*size+i)
			}
		}
	}
	return order, true
}

// rope adds the rotary embedding: rope_theta, rope_scaling, and "rotated", the elements of a head
// that are rotated.
func (k *reader) rope(c map[string]any, a string, head int) {
	c["rotated"] = k.count(a+"rope.dimension_count", head)
	theta := k.float(a+"rope.freq_base", 10000)
	c["rope_theta"] = theta
	s := a + "rope.scaling."
	if k.has(a + "rope.scale_linear") { // of files before 2024
		k.bad(a+"rope.scale_linear", "rope.scaling.type in place of it: convert the model again")
	}
	freqs := k.f.info(ropeFactors)
	var scaling map[string]any
	switch kind := k.string(s + "type"); kind {
	case "", "none":
		if freqs != nil {
			scaling = k.llama3(freqs, theta, head)
		}
	case "linear":
		scaling = map[string]any{"rope_type": "linear", "factor": k.float(s+"factor", math.NaN())}
	case "yarn":
		factor := k.float(s+"factor", math.NaN())
		scaling = map[string]any{
			"rope_type": "yarn", "factor": factor,
			"original_max_position_embeddings": k.count(s+"original_context_length", required),
			"beta_fast":                        k.float(s+"yarn_beta_fast", 32),
			"beta_slow":                        k.float(s+"yarn_beta_slow", 1),
		}
		if x := k.float(s+"yarn_ext_factor", 1); x != 1 {
			k.bad(s+"yarn_ext_factor", "1")
		}
		// llama.cpp multiplies what config.json calls attention_factor with YaRN's own.
		for _, key := range []string{s + "attn_factor", s + "yarn_attn_factor"} {
			if x := k.float(key, 1); x != 1 && k.err == nil {
				scaling["attention_factor"] = x * (0.1*math.Log(max(factor, 1)) + 1)
			}
		}
	default:
		k.bad(s+"type", "none, linear or yarn")
	}
	if freqs != nil && scaling["rope_type"] != "llama3" && scaling != nil {
		k.bad(s+"type", "none beside the tensor rope_freqs.weight")
	}
	if scaling != nil {
		c["rope_scaling"] = scaling
	}
}

// ropeFactors is the tensor of what each frequency is divided by: F32 [half a head].
const ropeFactors = "rope_freqs.weight"

// llama3 returns the parameters of Llama 3's scaling, of which the file keeps only what each
// frequency is divided by: 1 for waves shorter than original/high positions, factor for those
// longer than original/low, and in between 1/((1−s)/factor + s), where s is linear in the
// frequency. low, high and original matter only by their ratios, so low is taken to be 1. It
// returns nil where nothing is scaled.
func (k *reader) llama3(t *info, theta float64, head int) map[string]any {
	fail := func(format string, args ...any) map[string]any {
		if k.err == nil {
			k.err = fmt.Errorf("%s: tensor \"rope_freqs.weight\": %s", k.f.Path, fmt.Sprintf(format, args...))
		}
		return nil
	}
	if t.typ.Name != "F32" || len(t.dims) != 1 || t.dims[0] != head/2 {
		return fail("%s of shape %v, want F32 of [%d], half a head", t.typ.Name, t.dims, head/2)
	}
	by := make([]float32, t.dims[0])
	t.typ.Float32s(by, t.data)
	factor := 1.0
	for i, f := range by {
		if !(f >= 1 && f < 1e6) {
			return fail("element %d is %v, want 1 or more", i, f)
		}
		factor = max(factor, float64(f))
	}
	if factor == 1 {
		return nil
	}
	// Turns per position of wave i.
	turns := func(i int) float64 { return math.Pow(theta, -2*float64(i)/float64(head)) / (2 * math.Pi) }
	fits := func(high, original float64) bool {
		for i, f := range by {
			s := min(1, max(0, (original*turns(i)-1)/(high-1)))
			if want := 1 / ((1-s)/factor + s); math.Abs(float64(f)/want-1) > 1e-5 {
				return false
			}
		}
		return true
	}
	high, original := 4.0, 8192.0
	if !fits(high, original) {
		// s at the first and the last wave in between give the line.
		at := func(i int) (x, s float64) {
			return turns(i), (1/float64(by[i]) - 1/factor) / (1 - 1/factor)
		}
		var mixed []int
		for i, f := range by {
			if f > 1 && float64(f) < factor {
				mixed = append(mixed, i)
			}
		}
		switch len(mixed) {
		case 0:
			return fail("want the factors of Llama 3's scaling")
		case 1:
			x, s := at(mixed[0])
			original = math.Round((3*s + 1) / x)
		default:
			x0, s0 := at(mixed[0])
			x1, s1 := at(mixed[len(mixed)-1])
			slope := (s1 - s0) / (x1 - x0)
			original = math.Round(1 / (x0 - s0/slope))
			high = math.Round(1000*original*(x0+(1-s0)/slope)) / 1000
		}
		if !(original >= 1 && original <= maxCount && high > 1) || !fits(high, original) {
			return fail("want the factors of Llama 3's scaling")
		}
	}
	return map[string]any{
		"rope_type": "llama3", "factor": factor, "low_freq_factor": 1.0, "high_freq_factor": high,
		"original_max_position_embeddings": int(original),
	}
}

// configJSON returns config.json.
func (k *reader) configJSON() ([]byte, error) {
	c, _, err := k.f.config()
	if err != nil {
		return nil, err
	}
	delete(c, "rotated")
	return json.MarshalIndent(c, "", "  ")
}
