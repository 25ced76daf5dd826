package arch

import (
	"errors"
	"fmt"
	"slices"
)

// class returns the class whose loaders read the head: DSpark's (deepseek-ai) if rows are shifted,
// DFlash's (z-lab) for those of DFlash and JetSpec, its successor's for DFlash 2, SpecForge's for the rest.
func (b *Block) class() string {
	switch {
	case b.Linear:
		return linearClass
	case b.Shift:
		return "Qwen3DSparkModel"
	case b.Group > 0 || b.SelectorRank > 0:
		return "DFlash2DraftModel"
	case b.Markov == "" && !b.Confidence:
		return "DFlashDraftModel"
	}
	return "DSparkDraftModel"
}

// SetBlock adds a block drafter's fields to its config.json, in the spelling of the family that it is of, so that
// ParseBlock reads the same head: flat keys for DSpark's class, dflash_config for the others. It refuses what no
// configuration says: windows of several sizes, and layers of which some are causal, but not just those with a window.
func (s *Spec) SetBlock(config map[string]any) error {
	b := &s.Block
	if b.Markov != "" && b.Group > 0 {
		return errors.New("a head with convolutions and a Markov head: want one of them")
	}
	ids := make([]int, len(b.Taps))
	for i, tap := range b.Taps {
		ids[i] = tap - 1
	}
	in, class := config, b.class()
	if b.Linear {
		config["linear_rows"] = true
	} else if class != "Qwen3DSparkModel" {
		in = map[string]any{}
		config["dflash_config"] = in
	}
	config["architectures"], config["model_type"] = []string{class}, "qwen3"
	config["block_size"], config["attention_bias"] = b.Size, false
	in["mask_token_id"], in["target_layer_ids"] = b.Mask, ids
	if !b.Linear {
		if err := errors.Join(s.setWindows(config), s.setCausal(config, in)); err != nil {
			return err
		}
	}
	if class == "DSparkDraftModel" {
		in["sample_from_anchor"] = false
	}
	if b.Group > 0 {
		in["conv_group_size"], in["conv_kernel_size"] = b.Group, 2
	}
	if b.SelectorRank > 0 {
		in["selector_rank"], in["selector_top_k"] = b.SelectorRank, b.SelectorTop
	}
	if class == "DSparkDraftModel" || b.Shift {
		in["markov_rank"], in["enable_confidence_head"] = b.Rank, b.Confidence
		in["confidence_head_with_markov"] = b.ConfidenceMarkov
		if b.Markov != "" {
			in["markov_head_type"] = string(b.Markov)
		}
	}
	return nil
}

// setWindows adds the layers' windows.
func (s *Spec) setWindows(config map[string]any) error {
	types, window := make([]string, s.Layers), 0
	for i := range types {
		switch w := s.Window(i); {
		case w == 0:
			types[i] = fullAttention
		case window != 0 && w != window:
			return fmt.Errorf("windows of %d and %d positions, want one size", window, w)
		default:
			types[i], window = slidingAttention, w
		}
	}
	config["layer_types"], config["use_sliding_window"], config["sliding_window"] = types, window > 0, nil
	if window > 0 {
		config["sliding_window"] = window
	}
	return nil
}

// setCausal adds which layers are causal, unless they are those with a window, as loaders assume.
func (s *Spec) setCausal(config, in map[string]any) error {
	causal, assumed := make([]bool, s.Layers), true
	for i := range causal {
		causal[i] = s.Block.CausalIn(i)
		assumed = assumed && causal[i] == (s.Window(i) > 0)
	}
	switch all := !slices.Contains(causal, false); {
	case assumed:
	case all:
		in["causal_head"], config["is_causal"] = true, true // JetSpec's name for it, and vLLM's
	case !slices.Contains(causal, true):
		config["is_causal"] = false
	default:
		return fmt.Errorf("layers are causal: %v, with windows %v, want all, none or those with a window", causal, s.Windows)
	}
	return nil
}
