package checkpoints

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"talf/model/arch"
	"talf/model/safetensors"
)

// ErrEagle3 says that an EAGLE-3 head cannot be run.
var ErrEagle3 = errors.New("an EAGLE-3 head, which is not decoded yet: inspect describes it, and export converts it")

// An Eagle3 describes an EAGLE-3 head (Li et al. 2025). It reads the token's embedding
// and hidden states of three layers of the target, which fc joins, and has its own LM
// head over the draft vocabulary.
type Eagle3 struct {
	Spec         *arch.Spec `json:"-"` // sizes of the layer; Vocab is the target's
	TargetHidden int        `json:"target_hidden_size"`
	DraftVocab   int        `json:"draft_vocab_size"`
	// Taps are the target's layers whose inputs fc reads; nil: 2, n/2 and n−3 of
	// its n layers, EAGLE-3's default.
	Taps []int `json:"taps,omitempty"`
	// Options lists options of the speculators library that other readers lack.
	Options []string `json:"options,omitempty"`
}

// eagle3Keys are the keys of an EAGLE-3 head that the speculators library keeps beside the
// configuration of the layer.
var eagle3Keys = append([]string{
	"speculators_model_type", "draft_vocab_size", "target_hidden_size", "eagle_aux_hidden_state_layer_ids",
}, eagle3Options...)

// eagle3Options are the speculators library's booleans that change the network.
var eagle3Options = []string{"norm_before_residual", "norm_before_fc", "fc_norm", "norm_output"}

func (d *Draft) looksLikeEagle3() bool {
	if strings.Contains(string(d.config["architectures"]), "Eagle3") {
		return true
	}
	return slices.ContainsFunc(d.Tensors, func(t safetensors.Tensor) bool {
		return strings.HasPrefix(t.Name, "midlayer.") || strings.HasSuffix(t.Name, ".hidden_norm.weight")
	})
}

// readEagle3 reads and checks an EAGLE-3 head.
func (d *Draft) readEagle3(path string) error {
	conf, err := d.flat(path)
	if err != nil {
		return err
	}
	e := &Eagle3{}
	d.Eagle3 = e
	for _, key := range eagle3Keys {
		if raw, ok := d.config[key]; ok {
			conf[key] = raw
		}
	}
	for _, key := range eagle3Options {
		if d.config.string(key) == "true" {
			e.Options = append(e.Options, key)
		}
	}
	raw, err := json.Marshal(conf)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if e.Spec, err = arch.ParseEagle3(path, raw, nil); err != nil {
		return err
	}
	s := e.Spec
	e.DraftVocab, e.TargetHidden, e.Taps = s.Vocab, s.TargetHidden(), s.Eagle3.Taps
	if s.DraftVocab != 0 {
		e.DraftVocab = s.DraftVocab
	}
	if err := d.rename(func(name string) string {
		name = strings.TrimPrefix(name, "model.")
		if strings.HasPrefix(name, "layers.0.") {
			name = "midlayer." + strings.TrimPrefix(name, "layers.0.")
		}
		return name
	}); err != nil {
		return err
	}
	return d.checkEagle3()
}

func clip(raw []byte) string {
	if len(raw) > 40 {
		return string(raw[:40]) + "…"
	}
	return string(raw)
}

// checkEagle3 compares the tensors with the configuration.
func (d *Draft) checkEagle3() error {
	s := d.Eagle3.Spec
	s.Adopt(func(name string) bool { _, ok := d.Tensor(name); return ok })
	all := s.Tensors()
	slices.SortFunc(all, func(a, b arch.Tensor) int { return strings.Compare(a.Name, b.Name) })
	for _, want := range all {
		t, ok := d.Tensor(want.Name)
		if !ok && want.Optional {
			continue
		}
		if !ok {
			return fmt.Errorf("%s: no tensor %q, want one of shape %v for an EAGLE-3 head", d.Dir, want.Name, want.Shape())
		}
		if !slices.Equal(t.Shape, want.Shape()) {
			return fmt.Errorf("%s: tensor %q has shape %v, want %v from the configuration", d.Dir, t.Name, t.Shape, want.Shape())
		}
		if err := d.checkFloats(&t); err != nil {
			return err
		}
	}
	return d.checkMap()
}

// checkMap checks the two maps between the draft and target vocabularies: target id =
// draft id + d2t[draft id], and t2d marks exactly these target ids.
func (d *Draft) checkMap() error {
	e := d.Eagle3
	t, ok := d.Tensor("d2t")
	if !ok {
		if e.DraftVocab != e.Spec.Vocab {
			return fmt.Errorf("%s: no tensor \"d2t\", want %d offsets to the target's vocabulary of %d", d.Dir, e.DraftVocab, e.Spec.Vocab)
		}
		return nil
	}
	offsets, err := t.Int32s()
	if err != nil {
		return fmt.Errorf("%s: %w", d.Dir, err)
	}
	if len(offsets) != e.DraftVocab {
		return fmt.Errorf("%s: tensor \"d2t\" has %d elements, want draft_vocab_size = %d", d.Dir, len(offsets), e.DraftVocab)
	}
	used := make([]byte, e.Spec.Vocab)
	for i, o := range offsets {
		id := int64(i) + int64(o)
		if id < 0 || id >= int64(len(used)) || used[id] != 0 {
			return fmt.Errorf("%s: tensor \"d2t\": draft token %d is token %d, want different tokens below %d", d.Dir, i, id, len(used))
		}
		used[id] = 1
	}
	if t, ok := d.Tensor("t2d"); ok {
		if t.DType != "BOOL" || len(t.Data) != len(used) {
			return fmt.Errorf("%s: tensor \"t2d\" is %s %v, want BOOL [%d]", d.Dir, t.DType, t.Shape, len(used))
		}
		for i := range used {
			if (t.Data[i] != 0) != (used[i] != 0) {
				return fmt.Errorf("%s: tensor \"t2d\" does not mark the tokens of \"d2t\": they differ at token %d", d.Dir, i)
			}
		}
	}
	return nil
}
