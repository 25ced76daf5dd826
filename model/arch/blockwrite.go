package arch

import "fmt"

// class returns the class whose loaders read the head: DSpark's (deepseek-ai) if rows are shifted,
// DFlash's (z-lab) for those of DFlash and JetSpec, SpecForge's for the rest.
func (b *Block) class() string {
	switch {
	case b.Shift:
		return "Qwen3DSparkModel"
	case b.Markov == "" && !b.Confidence:
		return "DFlashDraftModel"
	}
	return "DSparkDraftModel"
}

// SetBlock adds a block drafter's fields to its config.json, in the spelling of the family that it is of, so that
// ParseBlock reads the same head: flat keys for DSpark's class, dflash_config for the others. It refuses what no
// configuration says: layers of which only some are causal.
func (s *Spec) SetBlock(config map[string]any) error {
	b := &s.Block
	if b.Group > 0 || b.SelectorRank > 0 {
		return fmt.Errorf("a head with convolutions or a selector (DFlash 2): want another")
	}
	causal := b.CausalIn(0)
	for i := range s.Layers {
		if b.CausalIn(i) != causal {
			return fmt.Errorf("layer 0 is causal: %v, layer %d: %v, want all alike", causal, i, !causal)
		}
		if s.Window(i) > 0 {
			return fmt.Errorf("layer %d has a window of %d positions, want none", i, s.Window(i))
		}
	}
	ids := make([]int, len(b.Taps))
	for i, tap := range b.Taps {
		ids[i] = tap - 1
	}
	in, class := config, b.class()
	if class != "Qwen3DSparkModel" {
		in = map[string]any{}
		config["dflash_config"] = in
	}
	config["architectures"], config["model_type"] = []string{class}, "qwen3"
	config["block_size"], config["attention_bias"] = b.Size, false
	in["mask_token_id"], in["target_layer_ids"] = b.Mask, ids
	if causal {
		in["causal_head"], config["is_causal"] = true, true // JetSpec's name for it, and vLLM's
	}
	if class == "DSparkDraftModel" {
		in["sample_from_anchor"] = false
	}
	if class != "DFlashDraftModel" {
		in["markov_rank"], in["enable_confidence_head"] = b.Rank, b.Confidence
		in["confidence_head_with_markov"] = b.ConfidenceMarkov
		if b.Markov != "" {
			in["markov_head_type"] = string(b.Markov)
		}
	}
	return nil
}
