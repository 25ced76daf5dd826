package checkpoints

import (
	"fmt"
	"slices"
	"strings"

	"talf/model/arch"
	"talf/model/safetensors"
)

// besideLayer are the keys of an EAGLE-3 head that the speculators library keeps beside the
// configuration of the layer.
var besideLayer = []string{
	"speculators_model_type", "draft_vocab_size", "target_hidden_size", "eagle_aux_hidden_state_layer_ids",
	"norm_before_residual", "norm_before_fc", "fc_norm", "norm_output",
}

// looksLikeEagle3 tells EAGLE-3 heads from others by the class in their configuration, which
// EAGLE's own lack, or by their tensors.
func (d *Draft) looksLikeEagle3() bool {
	if strings.Contains(string(d.config["architectures"]), "Eagle3") {
		return true
	}
	return slices.ContainsFunc(d.Tensors, func(t safetensors.Tensor) bool {
		return strings.Contains(t.Name, "midlayer.") || strings.HasSuffix(t.Name, ".hidden_norm.weight")
	})
}

// readEagle3 reads and checks an EAGLE-3 head.
func (d *Draft) readEagle3(path string) error {
	conf, err := d.flat(path)
	if err != nil {
		return err
	}
	for _, key := range besideLayer {
		if raw, ok := d.config[key]; ok {
			conf[key] = raw
		}
	}
	if err := d.parse(path, conf, arch.ParseEagle3); err != nil {
		return err
	}
	if err := d.rename(func(name string) string {
		name = strings.TrimPrefix(name, "model.")
		if rest, ok := strings.CutPrefix(name, "layers.0."); ok {
			return "midlayer." + rest
		}
		return name
	}); err != nil {
		return err
	}
	return d.checkEagle3(conf)
}

// checkEagle3 compares the tensors with the configuration and makes them agree.
func (d *Draft) checkEagle3(conf object) error {
	s := d.Spec
	if err := d.readVocab(); err != nil {
		return err
	}
	d.dropBuffers()
	has := func(name string) bool { _, ok := d.Tensor(name); return ok }
	if name := s.Weight(arch.FC, 0); !has(name) {
		return fmt.Errorf("%s: no tensor %q: not an EAGLE-3 head", d.Dir, name)
	}
	s.Adopt(has)
	if s.Eagle3.TargetLMHead {
		d.note("lm_head.weight is missing: the target's is used")
		if err := s.Validate(); err != nil {
			return fmt.Errorf("%s: %w", d.Dir, err)
		}
	}
	if !has(s.Weight(arch.Embed, 0)) && s.Hidden != s.TargetHidden() {
		return fmt.Errorf("%s: no tensor %q, and the target's embedding has %d elements a token, not %d", d.Dir, s.Weight(arch.Embed, 0), s.TargetHidden(), s.Hidden)
	}
	if err := d.inventory("an EAGLE-3 head"); err != nil {
		return err
	}
	_, said := conf["norm_before_residual"]
	switch {
	case d.Layout == LayoutSpeculators && !said:
		d.note("norm_before_residual is missing: false, as the speculators library reads it; vLLM would assume true")
	case d.Layout == LayoutEAGLE && s.Eagle3.NormOutput:
		d.note("norm_output is read as EAGLE 3.1's; SpecForge before September 2026 (pull request 879) also wrote it for heads that feed back the hidden state before the norm")
	}
	return nil
}
