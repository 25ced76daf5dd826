package arch

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// blockClasses are the classes of block drafters, and whether their rows are shifted.
var blockClasses = map[string]bool{
	"DFlashDraftModel": false, "DFlash2DraftModel": false, // z-lab's, JetSpec's and SpecForge's
	"Qwen3DSparkModel": true, "DSparkDraftModel": true, // deepseek-ai's and SpecForge's
	linearClass: true, // talf's
}

// linearClass is the class of linear block drafters.
const linearClass = "TalfLinearBlockModel"

// blockSpeculators are the block drafters of the speculators library by speculators_model_type. Its
// JetSpec and DFlash 2 have the keys of DFlash.
var blockSpeculators = map[string]bool{"dflash": false, "dflash2": false, "jetspec": false, "dspark": true}

// IsBlock reports whether a configuration is that of a block drafter.
func IsBlock(raw []byte) bool {
	var c struct {
		Architectures []string `json:"architectures"`
		Speculators   string   `json:"speculators_model_type"`
	}
	if json.Unmarshal(raw, &c) != nil {
		return false
	}
	_, known := blockSpeculators[c.Speculators]
	return known || slices.ContainsFunc(c.Architectures, func(a string) bool { _, known := blockClasses[a]; return known })
}

// looksLikeBlock reports whether a configuration has what only those of block drafters have, whatever its class.
func looksLikeBlock(c *config) bool { return c.has("dflash_config") || c.has("block_size") }

// ParseBlock reads the config.json of a block drafter: Qwen 3's keys, and those of the family beside them
// (deepseek-ai) or in dflash_config (z-lab, SpecForge, JetSpec), or both. In the speculators library's,
// Qwen 3's keys are in transformer_layer_config.
//
// Families differ in what they leave unsaid:
//
//   - target_layer_ids are the layers whose outputs are read, −1 for the embedding, so boundaries less 1;
//     aux_hidden_state_layer_ids (speculators) are boundaries. Missing, they are DefaultBlockTaps.
//   - sample_from_anchor is Block.Shift. Missing, the class tells: it is true of DSpark's.
//   - Layers are causal if is_causal says so, or else dflash_config.causal or causal_head, or else those with
//     a window (as SpecForge trains and vLLM runs them), but not with sliding_window_non_causal (speculators).
func ParseBlock(name string, raw, gen []byte) (*Spec, error) {
	c, err := newConfig(name, raw)
	if err != nil {
		return nil, err
	}
	shift := blockSpeculators[c.string("speculators_model_type", "")]
	for _, class := range c.strings("architectures") {
		shift = shift || blockClasses[class]
	}
	c.layerOfSpeculators()
	if c.err != nil {
		return nil, c.err
	}
	linear := c.bool("linear_rows", false)
	if linear {
		if n := c.count("num_hidden_layers", 0); n != 0 {
			c.fail("num_hidden_layers is %d, want 0 with linear_rows", n)
		}
		c.m["num_hidden_layers"] = []byte("1") // of a model, which has some
	}
	if raw, err = json.Marshal(c.m); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	s, err := Parse(name, raw, gen)
	if err != nil {
		return nil, err
	}
	if s.Arch != "qwen3" {
		return nil, fmt.Errorf("%s: model_type is %.100q, want \"qwen3\", of whose layers block drafters are made", name, s.Arch)
	}
	s.Draft, s.Tied, s.Terms = true, false, blockTerms
	if s.Block.Linear = linear; linear {
		s.Layers, s.Windows = 0, nil
	}
	c.block(s, shift)
	if c.err != nil {
		return nil, c.err
	}
	if err := s.Validate(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return s, nil
}

// layerOfSpeculators moves the keys in transformer_layer_config to the others. The library leaves out what
// is the default of transformers' Qwen3Config.
func (c *config) layerOfSpeculators() {
	if !c.has("speculators_model_type") {
		return
	}
	layer := c.object("transformer_layer_config")
	if layer == nil {
		c.fail("transformer_layer_config is missing, want an object")
		return
	}
	all := map[string]json.RawMessage{
		"model_type": []byte(`"qwen3"`), "vocab_size": []byte("151936"), "hidden_size": []byte("4096"), "intermediate_size": []byte("22016"),
		"num_hidden_layers": []byte("32"), "num_attention_heads": []byte("32"), "num_key_value_heads": []byte("32"),
		"head_dim": []byte("128"), "max_position_embeddings": []byte("32768"),
	}
	maps.Copy(all, layer.m)
	for key, v := range c.m {
		if key != "transformer_layer_config" && key != "architectures" {
			all[key] = v
		}
	}
	c.m = all
}

// block reads the keys of a family. shift is Block.Shift if nothing else says.
func (c *config) block(s *Spec, shift bool) {
	const inner = "dflash_config"
	in := c.object(inner)
	if in == nil {
		in = &config{name: c.name}
	}
	// at returns the object that has a key.
	at := func(key string) *config {
		if !in.has(key) {
			return c
		}
		if c.has(key) && !bytes.Equal(bytes.TrimSpace(c.m[key]), bytes.TrimSpace(in.m[key])) {
			c.fail("%s is %s, but %s.%s is %s", key, clip(c.m[key]), inner, key, clip(in.m[key]))
		}
		return in
	}
	number := func(key string) int { return at(key).count(key, 0) }
	flag := func(key string) bool { return at(key).bool(key, false) }

	b := &s.Block
	b.On, b.Size = true, at("block_size").int("block_size", -1)
	if at("mask_token_id").has("mask_token_id") {
		b.Mask = int32(number("mask_token_id"))
	} else {
		c.fail("mask_token_id is missing, want a token")
	}
	b.Shift = at("sample_from_anchor").bool("sample_from_anchor", shift)
	b.taps(c, at("target_layer_ids"), s.Layers)
	if b.Rank = number("markov_rank"); b.Rank > 0 {
		b.Markov = Markov(at("markov_head_type").string("markov_head_type", string(VanillaMarkov)))
	}
	b.Confidence = flag("enable_confidence_head")
	b.ConfidenceMarkov = b.Confidence && flag("confidence_head_with_markov")
	b.Group = number("conv_group_size")
	if b.Group > 0 && at("conv_kernel_size").int("conv_kernel_size", 2) != 2 {
		c.fail("conv_kernel_size is %s, want 2", clip(at("conv_kernel_size").m["conv_kernel_size"]))
	}
	if b.SelectorRank = number("selector_rank"); b.SelectorRank > 0 {
		b.SelectorTop = at("selector_top_k").int("selector_top_k", -1)
	}
	b.causal(c, in, s)
	if s.DraftVocab = c.int("draft_vocab_size", s.Vocab); s.DraftVocab == s.Vocab {
		s.DraftVocab = 0
	}
	if n := c.int("target_hidden_size", s.Hidden); n != s.Hidden {
		c.fail("target_hidden_size is %d, want hidden_size, %d: rows are embeddings of the target", n, s.Hidden)
	}
	for key, want := range map[string][]string{"projector_type": {"dflash", "dspark"}, "attention_mode": {"gqa"}} {
		if v := at(key).string(key, want[0]); !slices.Contains(want, v) {
			c.fail("%s is %.100q, want %q", key, v, want)
		}
	}
	for _, key := range []string{"shift_label", "use_swa", "correction_head", "mask_embedding", "attention_sink_bias"} {
		if flag(key) {
			c.fail("%s is true, which no block drafter has that can be run", key)
		}
	}
	if !at("is_neox_style").bool("is_neox_style", true) {
		c.fail("is_neox_style is false, want rotations of halves")
	}
	if in.path != "" {
		c.take(in)
	}
}

// taps reads the boundaries in whichever way they are given; in has target_layer_ids if anything has.
func (b *Block) taps(c, in *config, layers int) {
	const outputs, inputs, all = "target_layer_ids", "aux_hidden_state_layer_ids", "num_target_layers"
	n := 0
	if c.has(all) {
		n = c.int(all, 0)
	}
	switch {
	case in.has(outputs):
		var ids []int
		in.value(outputs, &ids, "a list of layers")
		for _, id := range ids {
			if id < -1 || id > maxLayers {
				in.fail("%s is %s, want layers, or -1 for the embedding", outputs, clip(in.m[outputs]))
			}
			b.Taps = append(b.Taps, id+1)
		}
	case c.has(inputs):
		b.Taps = c.ints(inputs)
	case n > 0:
		var err error
		if b.Taps, err = DefaultBlockTaps(n, layers); err != nil {
			c.fail("%s: %w", all, err)
		}
	default:
		c.fail("%s is missing, want a list of layers, or %s", outputs, all)
	}
	if n > 0 && len(b.Taps) > 0 && slices.Max(b.Taps) >= n && !b.Linear {
		c.fail("the head reads the output of the target's layer %d, want layers before its last, %d (%s, %s)", slices.Max(b.Taps)-1, n-1, outputs, all)
	}
}

// causal reads which layers are causal.
func (b *Block) causal(c, in *config, s *Spec) {
	causal := make([]bool, s.Layers)
	set := func(v bool) {
		for i := range causal {
			causal[i] = v
		}
	}
	switch {
	case c.has("is_causal"):
		set(c.bool("is_causal", false))
	case in.has("causal"):
		set(in.bool("causal", false))
	case in.has("causal_head"):
		set(in.bool("causal_head", false))
	case !c.bool("sliding_window_non_causal", false):
		for i := range causal {
			causal[i] = s.Window(i) > 0
		}
	}
	if slices.Contains(causal, true) {
		b.Causal = causal
	}
}
