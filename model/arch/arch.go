// Package arch maps the configurations and tensor names of published model
// families to one Spec.
package arch

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"talf/compute"
	"talf/internal/limits"
	"talf/model/gguf"
)

// A Spec is everything that a forward pass needs to know about a model. A layer
// computes
//
//	x += o(attention(norm(x)))
//	x += down(act(gate(norm(x))) · up(norm(x)))
//
// with the variations below and in Terms. Without a gate the feed-forward network is
// down(act(up(x))). With query and key norms, each head's queries and keys are
// normalised before rotation.
//
// The tags are the names under which Canonical lists the fields: those of config.json
// where it has one.
type Spec struct {
	Arch    string `config:"model_type"` // as in the table, such as "llama"
	Vocab   int    `config:"vocab_size"`
	Hidden  int    `config:"hidden_size"`
	Layers  int    `config:"num_hidden_layers"`
	Heads   int    `config:"num_attention_heads"`
	KVHeads int    `config:"num_key_value_heads"`
	HeadDim int    `config:"head_dim"`
	FFN     int    `config:"intermediate_size"`
	MaxPos  int    `config:"max_position_embeddings"` // positions that the model was trained for

	NormEps   float32 `config:"rms_norm_eps"`
	LayerNorm bool    `config:"layer_norm"` // norms subtract the mean and have biases (LayerNorm); else RMSNorm
	Rope      Rope    `config:""`
	RotDim    int     `config:"rotary_dim,omitzero"`     // number of elements of each head that are rotated, from the first; 0: all
	Windows   []int   `config:"sliding_window,omitzero"` // [Layers]: number of recent positions that a token sees, including its own; 0: all; nil: all in every layer

	// What follows up to Act has a zero that stands for Llama's layer; see Variant.
	LocalRope  Rope    `config:"rope_local,omitzero"`             // of layers with a window, if its Theta is not 0
	Unrotated  []bool  `config:"no_rope,omitzero"`                // [Layers]: layers that rotate nothing (NoPE); nil: none
	RopePairs  bool    `config:"rope_interleave,omitzero"`        // a rotation turns elements 2j and 2j+1, not j and j+RotDim/2
	NormOffset bool    `config:"norm_offset,omitzero"`            // norms multiply by 1 + weight
	EmbedScale float32 `config:"embedding_multiplier,omitzero"`   // factor of embeddings
	ResidScale float32 `config:"residual_multiplier,omitzero"`    // factor of what attention and feed-forward network add
	AttnScale  float32 `config:"attention_multiplier,omitzero"`   // factor of scores; 0: 1/√HeadDim
	AttnCap    float32 `config:"attn_logit_softcapping,omitzero"` // scaled scores s become AttnCap·tanh(s/AttnCap)
	LogitScale float32 `config:"logit_scale,omitzero"`            // factor of logits
	LogitCap   float32 `config:"final_logit_softcapping,omitzero"`
	HeadNorms  bool    `config:"use_qk_norm,omitzero"` // of a family that may have norms of queries and keys
	Mixture    Mixture `config:""`
	Latent     Latent  `config:""`
	Delta      Delta   `config:""`

	Act      compute.Activation `config:"hidden_act"`            // of the feed-forward network
	ActLimit float32            `config:"swiglu_limit,omitzero"` // of ClampedSwiGLU
	Parallel bool               `config:"use_parallel_residual"` // the feed-forward network reads attention's input, not its output

	Tied    bool `config:"tie_word_embeddings"` // LM head is the embedding
	QKVBias bool `config:"attention_bias"`
	OBias   bool `config:"attention_output_bias"`
	MLPBias bool `config:"mlp_bias"`

	BOS    int32   `config:"bos_token_id"`          // -1: none
	EOS    []int32 `config:"eos_token_id,omitzero"` // of config.json and generation_config.json
	Draft  bool    `config:"draft,omitzero"`        // a draft head: fc over [embedding; feature], no input norm in layer 0, no final norm
	MTP    bool    `config:"mtp,omitzero"`          // a draft head that is a multi-token prediction module; see MTPFor
	FCBias bool    `config:"bias,omitzero"`
	// DraftVocab is the number of Vocab tokens that a draft head predicts; 0: all.
	DraftVocab int    `config:"draft_vocab_size,omitzero"`
	Eagle3     Eagle3 `config:""`
	Block      Block  `config:""`
	// Terms lists the family's tensors. Specs share the slice, so do not change it.
	Terms []Term `config:"-"`
}

// Rotated returns the number of elements of each head that are rotated.
func (s *Spec) Rotated() int {
	if s.RotDim == 0 {
		return s.HeadDim
	}
	return s.RotDim
}

// RotatedIn returns the number of elements of each head that a layer rotates.
func (s *Spec) RotatedIn(layer int) int {
	if s.Unrotated != nil && s.Unrotated[layer] {
		return 0
	}
	return s.Rotated()
}

// NormsHeads reports whether norms of queries and keys, if there are any, are of each head.
func (s *Spec) NormsHeads() bool { return !s.Has(QNorm) || s.term(QNorm, 0).Rows == HeadSize }

// RopeOf returns how positions become angles in a layer.
func (s *Spec) RopeOf(layer int) *Rope {
	if s.LocalRope.Theta != 0 && s.Window(layer) > 0 {
		return &s.LocalRope
	}
	return &s.Rope
}

// Long reports whether a text of n tokens rotates by the divisors of long texts.
func (s *Spec) Long(n int) bool { return s.Rope.Switch() > 0 && n > s.Rope.Switch() }

// Lacks names what the model's layers do beyond Llama's and a queue with these abilities cannot do; "":
// nothing.
func (s *Spec) Lacks(can compute.Abilities) string {
	switch {
	case s.Delta.Layers != nil && can.Recur == nil:
		return "recurrent layers"
	case s.Latent.On() && can.Latent == nil:
		return "multi-head latent attention"
	case can.Variants != nil:
		return ""
	case s.AttnCap != 0 || s.LogitCap != 0:
		return "soft caps"
	case s.Has(AttnOutNorm) || s.Has(FFNOutNorm):
		return "norms of what attention and feed-forward network add"
	case s.Has(QNorm) && !s.NormsHeads():
		return "norms of all queries together"
	case s.Mixture.Experts > 0:
		return "mixtures of experts"
	case s.Unrotated != nil:
		return "layers that rotate nothing"
	case s.EmbedScale != 0 || s.ResidScale != 0 || s.AttnScale != 0 || s.LogitScale != 0:
		return "multipliers"
	case s.Act == compute.GELUTanh:
		return "the activation " + s.Act.String()
	}
	return ""
}

// Window returns the number of recent positions that a token sees in a layer, including
// its own; 0: all.
func (s *Spec) Window(layer int) int {
	if s.Windows == nil {
		return 0
	}
	return s.Windows[layer]
}

// An architecture is a line of the table: a model_type and the function that reads its
// configuration.
type architecture struct {
	Name  string // model_type
	Class string // architectures[0], used if model_type is missing
	Doc   string
	Parse func(c *config, s *Spec)
}

// table lists the supported architectures, in the order of errors and help texts.
var table = []architecture{
	{"llama", "LlamaForCausalLM", "Llama 1 to 3 and models of their shape", parseLlama},
	{"mistral", "MistralForCausalLM", "Mistral 7B and its relatives: Llama with a sliding window", parseMistral},
	{"qwen2", "Qwen2ForCausalLM", "Qwen 2 and 2.5: Llama with biases of queries, keys and values", parseQwen2},
	{"qwen3", "Qwen3ForCausalLM", "Qwen 3, dense: Llama with norms of queries and keys", parseQwen3},
	{"gpt_neox", "GPTNeoXForCausalLM", "GPT-NeoX and Pythia", parseGPTNeoX},
	{"gemma2", "Gemma2ForCausalLM", "Gemma 2: norms on both sides, soft caps, windows in every second layer", parseGemma2},
	{"gemma3_text", "Gemma3ForCausalLM", "Gemma 3, text: norms on both sides, two rotations, windows in most layers", parseGemma3},
	{"phi3", "Phi3ForCausalLM", "Phi 3 and 4 mini: Llama with fused projections", parsePhi3},
	{"olmo2", "Olmo2ForCausalLM", "OLMo 2: norms after attention and feed-forward network", parseOLMo2},
	{"granite", "GraniteForCausalLM", "Granite 3, dense: Llama with four multipliers", parseGranite},
	{"smollm3", "SmolLM3ForCausalLM", "SmolLM 3: Llama with layers that rotate nothing", parseSmolLM3},
	{"starcoder2", "Starcoder2ForCausalLM", "StarCoder 2: LayerNorm, biases, a plain feed-forward network", parseStarCoder2},
	{"mixtral", "MixtralForCausalLM", "Mixtral: Mistral with experts", parseMixtral},
	{"qwen2_moe", "Qwen2MoeForCausalLM", "Qwen 1.5 and 2 with experts, one of which all tokens read", parseQwen2MoE},
	{"qwen3_moe", "Qwen3MoeForCausalLM", "Qwen 3 with experts", parseQwen3MoE},
	{"qwen3_next", "Qwen3NextForCausalLM", "Qwen 3 Next: three of four layers recurrent, gated attention in the others, experts", parseQwen3Next},
	{"glm4_moe", "Glm4MoeForCausalLM", "GLM 4.5 to 4.7: experts chosen by sigmoids, half of each head rotated", parseGLM4MoE},
	{"deepseek_v3", "DeepseekV3ForCausalLM", "DeepSeek V3 and R1: multi-head latent attention, experts chosen by sigmoids in groups", parseDeepSeekV3},
	{"gpt_oss", "GptOssForCausalLM", "gpt-oss: attention sinks, windows in every second layer, experts with a clamped SwiGLU", parseGPTOSS},
	{"cohere2", "Cohere2ForCausalLM", "Command R7B and A: one LayerNorm for attention and feed-forward network side by side", parseCohere2},
}

// Supported returns the supported architectures' names.
func Supported() []string {
	var out []string
	for _, a := range table {
		out = append(out, a.Name)
	}
	return out
}

// Load reads dir/config.json and, if it exists, dir/generation_config.json. dir may be a GGUF file.
func Load(dir string) (*Spec, error) { return load(dir, Parse) }

// LoadDraft reads the configuration of a draft head.
func LoadDraft(dir string) (*Spec, error) { return load(dir, ParseDraft) }

func load(dir string, parse func(string, []byte, []byte) (*Spec, error)) (*Spec, error) {
	raw, err := gguf.ReadFile(dir, "config.json", limits.ConfigBytes)
	if err != nil {
		if err := HintGGUF(dir); err != nil {
			return nil, err
		}
		return nil, fmt.Errorf("read model configuration: %w", err)
	}
	gen, err := gguf.ReadFile(dir, "generation_config.json", limits.ConfigBytes)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read generation configuration: %w", err)
	}
	return parse(gguf.Path(dir, "config.json"), raw, gen)
}

// HintGGUF returns an error that says what is wanted instead if dir is a directory with GGUF
// files. It returns nil for all other paths.
func HintGGUF(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	for _, e := range entries {
		if path := filepath.Join(dir, e.Name()); gguf.Is(path) {
			return fmt.Errorf("%s has no config.json: want a directory in Hugging Face layout or a GGUF file, such as %s", dir, path)
		}
	}
	return nil
}

// Parse reads a config.json, and a generation_config.json if gen is not nil.
// Name is the configuration's path, for errors.
func Parse(name string, raw, gen []byte) (*Spec, error) {
	c, err := newConfig(name, raw)
	if err != nil {
		return nil, err
	}
	a, err := find(c)
	if err != nil {
		return nil, err
	}
	s := &Spec{Arch: a.Name, BOS: -1}
	a.Parse(c, s)
	s.tokens(c)
	if gen != nil && c.err == nil {
		g, err := newConfig(filepath.Join(filepath.Dir(name), "generation_config.json"), gen)
		if err != nil {
			return nil, err
		}
		s.tokens(g)
		if g.err != nil {
			return nil, g.err
		}
	}
	if c.err != nil {
		return nil, c.err
	}
	if err := s.Validate(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return s, nil
}

// ParseDraft reads the config.json of a draft head. That of an EAGLE-1/2 head has Llama's
// keys and the optional "bias", true if missing, and "draft_vocab_size". The weights file
// finally decides whether there is an fc.bias. A head whose class has the word Eagle3 is
// read by ParseEagle3, a block drafter by ParseBlock.
func ParseDraft(name string, raw, gen []byte) (*Spec, error) {
	if IsBlock(raw) {
		return ParseBlock(name, raw, gen)
	}
	if isEagle3(raw) {
		return ParseEagle3(name, raw, gen)
	}
	s, err := Parse(name, raw, gen)
	if err != nil {
		return nil, err
	}
	c, err := newConfig(name, raw)
	if err != nil {
		return nil, err
	}
	if looksLikeBlock(c) {
		return nil, fmt.Errorf("%s: architectures is %.100q, want one of %q for a block head", name, c.strings("architectures"), slices.Sorted(maps.Keys(blockClasses)))
	}
	if s.Arch != "llama" {
		return nil, fmt.Errorf("%s: model_type is %.100q, want \"llama\" for a draft head", name, s.Arch)
	}
	s.FCBias = c.bool("bias", true)
	s.DraftVocab = c.int("draft_vocab_size", 0)
	s.Draft, s.Tied, s.Terms = true, false, eagleTerms
	if c.err != nil {
		return nil, c.err
	}
	if err := s.Validate(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return s, nil
}

func find(c *config) (*architecture, error) {
	typ := c.string("model_type", "")
	class := c.strings("architectures")
	if c.err != nil {
		return nil, c.err
	}
	for i := range table {
		if a := &table[i]; typ == a.Name || typ == "" && len(class) > 0 && class[0] == a.Class {
			return a, nil
		}
	}
	if typ == "" && len(class) > 0 {
		typ = class[0]
	}
	return nil, fmt.Errorf("%s: model_type %.100q is not supported; supported: %s", c.name, typ, strings.Join(Supported(), ", "))
}

// maxDim bounds every size, so that products of two are far from overflow; maxLayers
// bounds lists with an entry per layer.
const (
	maxDim    = 1 << 26
	maxLayers = 1 << 16
	maxFactor = 1e9 // of everything that multiplies
)

// Validate reports the first invalid value.
func (s *Spec) Validate() error {
	layers := s.Layers
	if s.Block.Linear { // which has none
		layers++
	}
	for _, f := range []struct {
		name string
		v    int
	}{
		{"vocab_size", s.Vocab},
		{"hidden_size", s.Hidden},
		{"num_hidden_layers", layers},
		{"num_attention_heads", s.Heads},
		{"num_key_value_heads", s.KVHeads},
		{"head_dim", s.HeadDim},
		{"intermediate_size", s.FFN},
		{"max_position_embeddings", s.MaxPos},
	} {
		if f.v < 1 || f.v > maxDim {
			return fmt.Errorf("%s is %d, want 1 to %d", f.name, f.v, maxDim)
		}
	}
	if err := s.Latent.validate(s); err != nil { // before what follows from it is looked at
		return err
	}
	if s.Heads%s.KVHeads != 0 {
		return fmt.Errorf("num_attention_heads is %d, want a multiple of num_key_value_heads, %d", s.Heads, s.KVHeads)
	}
	if s.HeadDim%2 != 0 {
		return fmt.Errorf("head_dim is %d, want an even number", s.HeadDim)
	}
	if s.RotDim < 0 || s.RotDim > s.HeadDim || s.RotDim%2 != 0 {
		return fmt.Errorf("%d elements of a head are rotated, want an even number up to head_dim, %d", s.RotDim, s.HeadDim)
	}
	if s.Layers > maxLayers {
		return fmt.Errorf("num_hidden_layers is %d, want 1 to %d", s.Layers, maxLayers)
	}
	if s.Windows != nil && len(s.Windows) != s.Layers {
		return fmt.Errorf("%d windows, want one for each of num_hidden_layers = %d", len(s.Windows), s.Layers)
	}
	for i, w := range s.Windows {
		if w < 0 {
			return fmt.Errorf("layer %d has a sliding_window of %d, want at least 1", i, w)
		}
	}
	if s.Unrotated != nil && len(s.Unrotated) != s.Layers {
		return fmt.Errorf("%d layers rotate or not, want one entry for each of num_hidden_layers = %d", len(s.Unrotated), s.Layers)
	}
	for _, f := range []struct {
		name string
		v    float32
	}{
		{"embedding_multiplier", s.EmbedScale},
		{"residual_multiplier", s.ResidScale},
		{"attention_multiplier", s.AttnScale},
		{"attn_logit_softcapping", s.AttnCap},
		{"logit_scale", s.LogitScale},
		{"final_logit_softcapping", s.LogitCap},
		{"swiglu_limit", s.ActLimit},
	} {
		if !(f.v >= 0 && f.v < maxFactor) {
			return fmt.Errorf("%s is %v, want more than 0 and less than %v", f.name, f.v, maxFactor)
		}
	}
	if err := s.Mixture.validate(s.Layers); err != nil {
		return err
	}
	if err := s.Delta.validate(s); err != nil {
		return err
	}
	if s.LocalRope.Theta != 0 {
		if err := s.LocalRope.Validate(); err != nil {
			return fmt.Errorf("windows: %w", err)
		}
		if s.LocalRope.Type == "longrope" {
			return fmt.Errorf("windows: rope_type %q is not supported", s.LocalRope.Type)
		}
	}
	if s.Heads > maxDim/s.HeadDim {
		return fmt.Errorf("num_attention_heads is %d with head_dim %d, want a product of at most %d", s.Heads, s.HeadDim, maxDim)
	}
	if !(s.NormEps >= 0 && s.NormEps < 1) {
		name := "rms_norm_eps"
		if s.LayerNorm {
			name = "layer_norm_eps"
		}
		return fmt.Errorf("%s is %v, want 0 ≤ eps < 1", name, s.NormEps)
	}
	if s.BOS < -1 || int(s.BOS) >= s.Vocab {
		return fmt.Errorf("bos_token_id is %d, want a token below vocab_size, %d", s.BOS, s.Vocab)
	}
	for _, e := range s.EOS {
		if e < 0 || int(e) >= s.Vocab {
			return fmt.Errorf("eos_token_id is %d, want a token below vocab_size, %d", e, s.Vocab)
		}
	}
	if s.DraftVocab < 0 || s.DraftVocab > s.Vocab {
		return fmt.Errorf("draft_vocab_size is %d, want at most vocab_size, %d", s.DraftVocab, s.Vocab)
	}
	if err := errors.Join(s.Eagle3.validate(s), s.Block.validate(s)); err != nil {
		return err
	}
	if r, n := &s.Rope, s.Rotated()/2; r.Type == "longrope" && (len(r.Short) != n || len(r.Long) > 0 && len(r.Long) != n) {
		return fmt.Errorf("rope scaling short_factor has %d entries and long_factor %d, want %d", len(r.Short), len(r.Long), n)
	}
	return s.Rope.Validate()
}

// SetSpecial sets the beginning and end tokens of s in a config.json: one end token
// becomes a number, several a list, and none no field.
func (s *Spec) SetSpecial(config map[string]any) {
	if s.BOS >= 0 {
		config["bos_token_id"] = s.BOS
	}
	switch len(s.EOS) {
	case 0:
	case 1:
		config["eos_token_id"] = s.EOS[0]
	default:
		config["eos_token_id"] = s.EOS
	}
}
