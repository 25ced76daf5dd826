package net

import (
	"errors"
	"fmt"
	"slices"

	"talf/internal/spec"
	"talf/model/arch"
)

// blockParams are the parameters of the network "block".
func blockParams() []spec.Param {
	return []spec.Param{
		spec.Int("size", 8, 2, 64, "rows of a block"),
		spec.Text("taps", "", "the layers before which the target's states are read, such as 2+8+13 (left out: those of the data, or DFlash's)"),
		spec.Choice("shift", "which token a row predicts: the one at its place (off, as DFlash and JetSpec) or the one after it (on, as DSpark)", "off", "on"),
		spec.Switch("linear", false, "rows are linear maps of the anchor's embedding and the state before it, each with its own, without layers (talf's)"),
		spec.Switch("causal", false, "a row sees only the rows before it (JetSpec)"),
		spec.Choice("markov", "what logits take from the token before: none, vanilla (a product of rank) or gated (DSpark)", "none", string(arch.VanillaMarkov), string(arch.GatedMarkov)),
		spec.Int("rank", 256, 1, 1<<16, "elements of a token's embedding in the Markov head"),
		spec.Switch("confidence", false, "an estimate of how likely each token is accepted (DSpark)"),
		spec.Int("conv", 0, 0, 1<<16, "channels that share coefficients of convolutions around attention and feed-forward network (DFlash 2 has 16; 0: there are none)"),
		spec.Int("selector", 0, 0, 1<<16, "elements of a token's embedding in a selector, which scores the likeliest tokens by the token before (DFlash 2 has 256; 0: there is none)"),
		spec.Int("top", 16, 2, 1024, "tokens that a selector scores"),
		spec.Int("mask", -1, -1, 1<<24, "the token whose embedding stands for those to predict (-1: the last of the target's)"),
	}
}

// readBlock sets b to the values of the parameters.
func readBlock(b *arch.Block, v spec.Values) (err error) {
	b.Size, b.Mask, b.Shift = v.Int("size"), int32(v.Int("mask")), v.Text("shift") == "on"
	if b.Linear = v.On("linear"); b.Linear {
		if v.Given("shift") && !b.Shift || v.On("causal") || v.Given("mask") || v.Int("conv") > 0 || v.Int("selector") > 0 {
			return errors.New("linear is of rows that predict the token after the one at their place, without layers and masks: want no shift=off, causal, mask, conv or selector")
		}
		b.Shift = true
	}
	if v.On("causal") {
		b.Causal = []bool{true} // of all layers, once their number is known
	}
	if m := v.Text("markov"); m != "none" {
		b.Markov, b.Rank = arch.Markov(m), v.Int("rank")
	} else if v.Given("rank") {
		return errors.New("rank is of a Markov head: want markov=vanilla or gated")
	}
	b.Group = v.Int("conv")
	if b.SelectorRank = v.Int("selector"); b.SelectorRank > 0 {
		b.SelectorTop = v.Int("top")
	} else if v.Given("top") {
		return errors.New("top is of a selector: want its elements, such as selector=256")
	}
	if b.Confidence = v.On("confidence"); b.Confidence {
		b.ConfidenceMarkov = b.Markov != ""
	}
	if (b.Group > 0 || b.SelectorRank > 0) && (b.Shift || b.Markov != "" || b.Confidence) {
		return errors.New("conv and selector are DFlash 2's, shift, markov and confidence DSpark's: want one family's")
	}
	if text := v.Text("taps"); text != "" {
		if b.Taps, err = arch.ParseTaps(text); err != nil {
			return fmt.Errorf("taps is %q: %w", text, err)
		}
	}
	return nil
}

// blockSpec is Spec of a block head.
func (n *Network) blockSpec(target *arch.Spec, layers, draftVocab int, fcBias bool, stored []int) (*arch.Spec, error) {
	if fcBias {
		return nil, errors.New("network block: its fc has no bias")
	}
	b := n.block
	if b.Linear {
		b.Mask, layers = 0, 0
	}
	if b.Mask < 0 {
		b.Mask = int32(target.Vocab - 1)
	}
	if b.Causal != nil {
		b.Causal = slices.Repeat(b.Causal, layers)
	}
	if b.Taps == nil && b.Linear {
		b.Taps = []int{target.Layers}
	}
	if b.Taps == nil {
		b.Taps = stored
	}
	if b.Taps == nil {
		var err error
		if b.Taps, err = arch.DefaultBlockTaps(target.Layers, layers); err != nil {
			return nil, fmt.Errorf("network block: %w", err)
		}
	}
	s := target.BlockFor(b, layers, draftVocab)
	if err := s.Validate(); err != nil {
		return nil, fmt.Errorf("network block: %w", err)
	}
	return s, nil
}

// blockNetwork is NetworkOf of a block head.
func blockNetwork(b *arch.Block, taps string) string {
	text := fmt.Sprintf("block:size=%d,%s", b.Size, taps)
	if b.Linear {
		text += ",linear=on"
	} else {
		text += fmt.Sprintf(",mask=%d", b.Mask)
	}
	if b.Shift && !b.Linear {
		text += ",shift=on"
	}
	if b.Causal != nil {
		text += ",causal=on"
	}
	if b.Markov != "" {
		text += fmt.Sprintf(",markov=%s,rank=%d", b.Markov, b.Rank)
	}
	if b.Confidence {
		text += ",confidence=on"
	}
	if b.Group > 0 {
		text += fmt.Sprintf(",conv=%d", b.Group)
	}
	if b.SelectorRank > 0 {
		text += fmt.Sprintf(",selector=%d,top=%d", b.SelectorRank, b.SelectorTop)
	}
	return text
}
