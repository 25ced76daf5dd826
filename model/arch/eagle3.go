package arch

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Eagle3 is what an EAGLE-3 draft head (Li et al. 2025, arXiv 2503.01840) adds to a
// Spec. Position i takes the fused hidden states g of the target at i and the embedding
// e of the token at i+1:
//
//	g = fc(states of the target at Taps, side by side)
//	u = [InputNorm(e), FuseNorm(g)]           // 2·Hidden wide, read by q, k and v of layer 0
//	x = g + o(attention(u)); x += feed-forward(x)
//	logits = LMHead(FinalNorm(x))             // over the draft vocabulary
//
// A drafted node takes the x of its parent in place of g. The fields are the variations
// of this network.
type Eagle3 struct {
	On bool `config:"eagle3,omitzero"`
	// Taps are the boundaries of the target's layers at which fc reads the residual
	// stream, in the order of fc's columns: boundary j is the input of layer j, the
	// number of layers the input of the final norm. nil: DefaultTaps.
	Taps []int `config:"eagle_aux_hidden_state_layer_ids,omitzero"`
	// TargetHidden is the target's hidden size if it is not the head's own, else 0.
	TargetHidden int `config:"target_hidden_size,omitzero"`

	NormBeforeFC       bool `config:"norm_before_fc,omitzero"`       // one norm over all that fc reads
	FCNorm             bool `config:"fc_norm,omitzero"`              // a norm for each tap before fc (EAGLE 3.1)
	NormBeforeResidual bool `config:"norm_before_residual,omitzero"` // x = FuseNorm(g) + …
	NormOutput         bool `config:"norm_output,omitzero"`          // drafted nodes take FinalNorm(x) of their parents (EAGLE 3.1)
	QKNorm             bool `config:"qk_norm,omitzero"`              // norms of every head's queries and keys, as in Qwen 3
	// TargetLMHead says that the head has no LM head of its own and uses the target's,
	// or its rows for the draft vocabulary.
	TargetLMHead bool `config:"target_lm_head,omitzero"`
}

// defaultTaps is the number of DefaultTaps.
const defaultTaps = 3

// Count returns the number of taps.
func (e *Eagle3) Count() int {
	if e.Taps == nil {
		return defaultTaps
	}
	return len(e.Taps)
}

// DefaultTaps returns the boundaries that an EAGLE-3 head reads if its configuration
// names none: before blocks 2, n/2 and n−3 of n, which EAGLE, SpecForge, speculators,
// vLLM and SGLang have in common. EAGLE's code takes fewer than three states if n < 7,
// so those targets have none.
func DefaultTaps(layers int) ([]int, error) {
	if layers < 7 {
		return nil, fmt.Errorf("the target has %d layers, want at least 7 for EAGLE-3's default taps: name the taps", layers)
	}
	return []int{2, layers / 2, layers - 3}, nil
}

// ParseTaps reads boundaries such as "2+8+13".
func ParseTaps(text string) ([]int, error) {
	var taps []int
	for _, word := range strings.Split(text, "+") {
		b, err := strconv.Atoi(word)
		if err != nil || b < 0 || slices.Contains(taps, b) {
			return nil, errors.New("want different layers such as 2+8+13")
		}
		taps = append(taps, b)
	}
	return taps, nil
}

// CheckEagle3Taps refuses taps that other systems read in another way; see ParseEagle3.
func CheckEagle3Taps(taps []int) error {
	if len(taps) > 0 && taps[0] == 1 {
		return errors.New("other systems read a list that begins with 1 as the layers whose outputs are meant, want another first one")
	}
	return nil
}

// TapsOf returns the boundaries of target at which an EAGLE-3 head or a block drafter reads
// its states, or nil for another head. It refuses a target with other sizes or too few layers.
func (s *Spec) TapsOf(target *Spec) ([]int, error) {
	if !s.Eagle3.On && !s.Block.On {
		return nil, nil
	}
	if target.Hidden != s.TargetHidden() {
		return nil, fmt.Errorf("%s is %d, but the target's hidden_size is %d", s.TargetHiddenKey(), s.TargetHidden(), target.Hidden)
	}
	if s.Block.On {
		return s.Block.tapsOf(target)
	}
	if s.Eagle3.Taps == nil {
		return DefaultTaps(target.Layers)
	}
	for _, b := range s.Eagle3.Taps {
		if b > target.Layers {
			return nil, fmt.Errorf("eagle_aux_hidden_state_layer_ids is %v, but the target has only %d layers", s.Eagle3.Taps, target.Layers)
		}
	}
	return slices.Clone(s.Eagle3.Taps), nil
}

// TargetHiddenKey returns the key of a configuration that gives TargetHidden.
func (s *Spec) TargetHiddenKey() string {
	if s.Eagle3.TargetHidden == 0 {
		return "hidden_size"
	}
	return "target_hidden_size"
}

// TargetHidden returns the hidden size of a draft head's target.
func (s *Spec) TargetHidden() int {
	if s.Eagle3.TargetHidden != 0 {
		return s.Eagle3.TargetHidden
	}
	return s.Hidden
}

// FeatureSize returns the number of elements of the target's hidden states that a draft
// head reads at each position.
func (s *Spec) FeatureSize() int {
	switch {
	case s.Eagle3.On:
		return s.Eagle3.Count() * s.TargetHidden()
	case s.Block.On:
		return len(s.Block.Taps) * s.Hidden
	}
	return s.Hidden
}

func (e *Eagle3) validate(s *Spec) error {
	if !e.On {
		return nil
	}
	if !s.Draft {
		return fmt.Errorf("EAGLE-3's fields are set, but this is not a draft head")
	}
	if e.TargetHidden < 0 || e.TargetHidden > maxDim {
		return fmt.Errorf("target_hidden_size is %d, want 1 to %d", e.TargetHidden, maxDim)
	}
	if e.Taps != nil && len(e.Taps) == 0 || e.Count() > maxDim/s.TargetHidden() {
		return fmt.Errorf("eagle_aux_hidden_state_layer_ids has %d entries, want at least 1 and at most %d elements in all", e.Count(), maxDim)
	}
	for i, b := range e.Taps {
		if b < 0 || b > maxLayers || slices.Contains(e.Taps[:i], b) {
			return fmt.Errorf("eagle_aux_hidden_state_layer_ids is %v, want different numbers from 0 to %d", e.Taps, maxLayers)
		}
	}
	if e.NormBeforeFC && e.FCNorm {
		return fmt.Errorf("norm_before_fc and fc_norm are both set, want one of them: either one norm before fc or one for each tap")
	}
	if e.TargetLMHead && s.Hidden != s.TargetHidden() {
		return fmt.Errorf("there is no lm_head.weight, and the target's LM head is for a hidden size of %d, not %d", s.TargetHidden(), s.Hidden)
	}
	return nil
}

// eagle3Terms are the tensors of an EAGLE-3 head as EAGLE, SpecForge, SGLang and vLLM
// name them. Layers after the first are Llama's; vLLM and the speculators library call
// them layers.1 and so on.
var eagle3Terms = func() []Term {
	terms := []Term{
		{Role: Embed, Name: "embed_tokens", Rows: vocabSize, Cols: HiddenSize, Optional: true},
		{Role: TapsNorm, Name: "input_norm", Rows: tapsSize, Only: ifNormBeforeFC},
		{Role: TapNorm, Name: "fc_norm.%d", Rows: tapSize, Only: ifFCNorm, PerTap: true},
		{Role: FC, Name: "fc", Rows: HiddenSize, Cols: tapsSize, Bias: ifFCBias},
		{Role: FuseNorm, Name: "midlayer.hidden_norm", Rows: HiddenSize, Until: 1},
	}
	for _, from := range []int{0, 1} {
		for _, t := range after(llamaTerms, V,
			Term{Role: QNorm, Name: "model.layers.%d.self_attn.q_norm", Rows: HeadSize, Only: ifQKNorm},
			Term{Role: KNorm, Name: "model.layers.%d.self_attn.k_norm", Rows: HeadSize, Only: ifQKNorm},
		) {
			if !t.perLayer() {
				continue
			}
			if t.From = from; from == 0 {
				t.Until, t.Name = 1, strings.Replace(t.Name, "model.layers.%d", "midlayer", 1)
				if t.Role == Q || t.Role == K || t.Role == V {
					t.Cols = twoHidden
				}
			}
			t.Name = strings.TrimPrefix(t.Name, "model.")
			terms = append(terms, t)
		}
	}
	return append(terms,
		Term{Role: FinalNorm, Name: "norm", Rows: HiddenSize},
		Term{Role: LMHead, Name: "lm_head", Rows: draftSize, Cols: HiddenSize, Unless: ifTargetLMHead},
	)
}()

// Eagle3For returns the spec of a one-layer EAGLE-3 head for a target of any
// architecture: Llama's layer with the target's sizes and rope_theta, without rope
// scaling, windows and biases, and with an LM head of its own over draftVocab tokens
// (0: all). Taps as in Eagle3.
func (s *Spec) Eagle3For(taps []int, draftVocab int) *Spec {
	d := s.DraftFor(false)
	d.DraftVocab, d.Terms = draftVocab, eagle3Terms
	d.Eagle3 = Eagle3{On: true, Taps: slices.Clone(taps)}
	return d
}

// Adopt takes from the tensors of a draft head what configurations often omit: which
// biases there are, for an EAGLE-3 head also the norms of queries and keys and the
// LM head, and the latter for a block drafter. has reports whether the file has a tensor. For a head of EAGLE-1 or 2 it
// decides only about the bias of fc.
func (s *Spec) Adopt(has func(name string) bool) {
	if s.Block.On {
		s.Block.OwnLMHead = has(s.Weight(LMHead, 0))
		return
	}
	s.FCBias = has(s.Bias(FC, 0))
	if !s.Eagle3.On {
		return
	}
	s.QKVBias, s.OBias, s.MLPBias = has(s.Bias(Q, 0)), has(s.Bias(O, 0)), has(s.Bias(Gate, 0))
	s.Eagle3.QKNorm = has(s.Weight(QNorm, 0))
	s.Eagle3.TargetLMHead = !has(s.Weight(LMHead, 0))
}

// isEagle3 reports whether a configuration's class is that of an EAGLE-3 head. EAGLE's
// own files do not say so: their tensors do.
func isEagle3(raw []byte) bool {
	var c struct {
		Architectures []string `json:"architectures"`
	}
	return json.Unmarshal(raw, &c) == nil && slices.ContainsFunc(c.Architectures, func(a string) bool { return strings.Contains(a, "Eagle3") })
}

// ParseEagle3 reads the config.json of an EAGLE-3 head in the spelling of SpecForge,
// SGLang and vLLM: the keys of a model of Llama's shape (Llama, Mistral, Qwen 2 or 3),
// "draft_vocab_size", "target_hidden_size", "eagle_config" and the flags of Eagle3, beside
// the rest or in eagle_config. The tensors finally decide what Adopt takes from them.
//
// Two conventions exist for the taps. If the first id is 1, they are SpecForge's: indices
// of the blocks whose outputs are read, of which the first by default is 1, one less
// than the boundaries that all others write (SGLang since its pull request 25454 reads
// them so). A configuration with speculators_model_type always has boundaries.
func ParseEagle3(name string, raw, gen []byte) (*Spec, error) {
	s, err := Parse(name, raw, gen)
	if err != nil {
		return nil, err
	}
	switch s.Arch {
	case "llama", "mistral", "qwen2", "qwen3":
	default:
		return nil, fmt.Errorf("%s: model_type is %.100q, want a layer of Llama's shape for an EAGLE-3 head: llama, mistral, qwen2 or qwen3", name, s.Arch)
	}
	c, err := newConfig(name, raw)
	if err != nil {
		return nil, err
	}
	s.Arch, s.Draft, s.Tied, s.Terms = "llama", true, false, eagle3Terms
	s.FCBias = c.bool("bias", false)
	s.DraftVocab = c.int("draft_vocab_size", 0)
	e := &s.Eagle3
	e.On = true
	if e.TargetHidden = c.int("target_hidden_size", s.Hidden); e.TargetHidden == s.Hidden {
		e.TargetHidden = 0
	}
	inner := c.object("eagle_config")
	if inner == nil {
		inner = &config{name: name}
	}
	for _, f := range []struct {
		key string
		dst *bool
	}{
		{"norm_before_fc", &e.NormBeforeFC},
		{"fc_norm", &e.FCNorm},
		{"norm_before_residual", &e.NormBeforeResidual},
		{"norm_output", &e.NormOutput},
	} {
		*f.dst = c.bool(f.key, false)
		if in := inner.bool(f.key, *f.dst); c.has(f.key) && in != *f.dst {
			c.fail("%s is %v, but eagle_config.%s is %v", f.key, *f.dst, f.key, in)
		} else {
			*f.dst = in
		}
	}
	if !inner.bool("use_aux_hidden_state", true) {
		c.fail("eagle_config.use_aux_hidden_state is false: a head that reads only the target's last hidden state, which is not EAGLE-3's")
	}
	e.Taps = inner.ints(tapsKey)
	if outer := c.ints(tapsKey); e.Taps == nil {
		e.Taps = outer
	} else if outer != nil && !slices.Equal(outer, e.Taps) {
		c.fail("%s is %v, but eagle_config.%s is %v", tapsKey, outer, tapsKey, e.Taps)
	}
	if len(e.Taps) > 0 && e.Taps[0] == 1 && !c.has("speculators_model_type") {
		for i := range e.Taps {
			e.Taps[i]++
		}
	}
	c.take(inner)
	if c.err != nil {
		return nil, c.err
	}
	if err := s.Validate(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return s, nil
}

// tapsKey is the key of the taps in both spellings.
const tapsKey = "eagle_aux_hidden_state_layer_ids"

// SetEagle3 adds an EAGLE-3 head's fields to its config.json, in the spelling that
// ParseEagle3 reads, as SGLang and vLLM do. Taps that begin with 1 cannot be written so.
func (s *Spec) SetEagle3(config map[string]any) error {
	e := &s.Eagle3
	if err := CheckEagle3Taps(e.Taps); err != nil {
		return fmt.Errorf("taps %v: %w", e.Taps, err)
	}
	config["architectures"] = []string{"LlamaForCausalLMEagle3"}
	draft := s.DraftVocab
	if draft == 0 {
		draft = s.Vocab
	}
	config["draft_vocab_size"] = draft
	if e.TargetHidden != 0 {
		config["target_hidden_size"] = e.TargetHidden
	}
	eagle := map[string]any{"use_aux_hidden_state": true}
	if e.Taps != nil {
		eagle[tapsKey] = e.Taps
	}
	if e.NormBeforeFC {
		eagle["norm_before_fc"] = true
	}
	config["eagle_config"] = eagle
	config["norm_before_residual"], config["norm_before_fc"] = e.NormBeforeResidual, e.NormBeforeFC
	config["fc_norm"], config["norm_output"] = e.FCNorm, e.NormOutput
	return nil
}
