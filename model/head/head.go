// Package head is the draft head: one decoder layer that predicts a target's next
// hidden state from a token's embedding and the hidden state before it (EAGLE, Li et
// al. 2024, §4), or the next tokens from an embedding and hidden states of several of the
// target's layers (EAGLE-3, Li et al. 2025; see arch.Eagle3). Files are in EAGLE's
// formats, so heads trained elsewhere load here and vice versa.
//
// model.Forward runs a head just as it runs its target: position i takes the target's
// hidden state at position i, after its final norm or at the head's taps, and the token
// at i+1. The head's own hidden states f̂ replace the target's for nodes that have not
// been verified.
//
// To draft, commit the verified tokens with their true features (Seq.Append), then open
// Seq.BranchLast. Node 0 of the draft tree is the last verified token and keeps its
// row; its f̂ is the last hidden row of that Append. Node n > 0 takes the f̂ of its
// parent and its own token, and its rotary position is node 0's plus its depth. After
// verification, drop the branch: accepted tokens are run again with true features. A
// model.Store keeps f̂ between passes.
//
// A block drafter (see arch.Block) has no rows but those of model.ForwardBlocks.
package head

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"

	"talf/internal/durable"
	"talf/internal/hint"
	"talf/model"
	"talf/model/arch"
	"talf/model/draftvocab"
	"talf/model/identity"
	"talf/model/safetensors"
)

// Options say how a head is loaded.
type Options struct {
	Model model.Options
	Force bool // load even if the head was trained for another target
	// Warn, if not nil, is called with what could not be checked: a GGUF file does not say what it was converted from.
	Warn func(string)
}

// Default returns the options for CPU decoding.
func Default() Options { return Options{Model: model.Default()} }

// A Head is a draft head on its target's device.
type Head struct {
	*model.Model
}

// Load reads a directory in EAGLE format: config.json and model.safetensors. It refuses
// a head whose hidden size or vocabulary is not the target's, and one that says that it
// was trained for another target, unless forced. The target's embedding is shared if the
// head's has the same values. Its LM head is always shared, or its rows for a draft
// vocabulary.
func Load(dir string, target *model.Model, opt Options) (*Head, error) {
	spec, err := arch.LoadDraft(dir)
	if err != nil {
		return nil, err
	}
	set, err := safetensors.OpenDir(dir)
	if err != nil {
		return nil, err
	}
	h, err := build(spec, set, target, opt)
	if err != nil {
		return nil, errors.Join(err, set.Close())
	}
	return h, nil
}

// FromTensors builds a head from weights in memory, named as in the EAGLE format.
// "embed_tokens.weight" may be missing.
func FromTensors(spec *arch.Spec, target *model.Model, opt Options, tensors ...safetensors.Tensor) (*Head, error) {
	return FromSet(spec, safetensors.Of("draft head", tensors...), target, opt)
}

// FromSet is FromTensors for a set, which the head closes. If FromSet fails, set stays
// open.
func FromSet(spec *arch.Spec, set *safetensors.Set, target *model.Model, opt Options) (*Head, error) {
	s := *spec
	return build(&s, set, target, opt)
}

func build(spec *arch.Spec, set *safetensors.Set, target *model.Model, opt Options) (*Head, error) {
	// Published configurations often omit what there is, so the weights file decides.
	spec.Adopt(func(name string) bool { _, ok := set.Tensor(name); return ok })
	tie, err := identity.TieOf(set.Metadata())
	if err == nil {
		err = CheckTie(tie, target, opt)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", set.Name, err)
	}
	m, err := model.NewDraft(spec, set, target, opt.Model)
	if err != nil {
		return nil, fmt.Errorf("load draft head: %w", err)
	}
	return &Head{m}, nil
}

// CheckTie refuses a head that belongs to another target than this one, unless forced.
// The target may keep its weights, keys and values in other types than when the head was
// trained, and may be quantised. A target from a GGUF file, which does not say what it
// was converted from, is accepted with a warning that names the differences.
func CheckTie(t identity.Tie, target *model.Model, opt Options) error {
	if opt.Force || !t.Known() {
		return nil
	}
	if d := t.Against(target.Spec().Canonical(), target.Origin()); d != nil {
		if target.Tensors().Metadata()[safetensors.MetaFormat] != safetensors.FormatGGUF {
			return hint.Errorf("{force} loads it anyway", "trained for another target: %s", d.Since("it was trained"))
		}
		if opt.Warn != nil {
			opt.Warn(fmt.Sprintf("%s. The target is a GGUF file, which does not say what it was converted from: if from another model, drafts are useless, though the output does not depend on them", d.Since("it was trained")))
		}
		return nil
	}
	return nil
}

// trained lists a head's trained tensors in the order of the forward pass: all except
// the embedding, which belongs to the target.
func trained(spec *arch.Spec) []arch.Tensor {
	return slices.DeleteFunc(spec.Tensors(), func(t arch.Tensor) bool { return t.Optional })
}

// Random returns the weights of an untrained head: matrices uniform in ±1/√in,
// like PyTorch's initial values, biases 0, norms 1. Equal seeds give equal bytes.
func Random(spec *arch.Spec, seed uint64) []safetensors.Tensor {
	var out []safetensors.Tensor
	for i, t := range trained(spec) {
		x := make([]float32, t.Len())
		switch {
		case t.Cols > 0:
			r := rand.New(rand.NewPCG(seed, uint64(i)))
			bound := 1 / math.Sqrt(float64(t.Cols))
			for j := range x {
				x[j] = float32(bound * (2*r.Float64() - 1))
			}
		case !t.Bias:
			for j := range x {
				x[j] = 1
			}
		}
		out = append(out, safetensors.F32(t.Name, x, t.Shape()...))
	}
	return out
}

// Config returns the head's config.json as EAGLE's own loader reads it, or, for an EAGLE-3
// head, in the spelling that SGLang and vLLM read as well.
func Config(spec *arch.Spec) ([]byte, error) {
	c := map[string]any{
		"architectures": []string{"LlamaForCausalLM"}, "model_type": "llama", "hidden_act": "silu",
		"vocab_size": spec.Vocab, "hidden_size": spec.Hidden, "num_hidden_layers": spec.Layers,
		"num_attention_heads": spec.Heads, "num_key_value_heads": spec.KVHeads, "head_dim": spec.HeadDim,
		"intermediate_size": spec.FFN, "max_position_embeddings": spec.MaxPos,
		"rms_norm_eps": spec.NormEps, "rope_theta": spec.Rope.Theta, "rope_scaling": nil,
		"tie_word_embeddings": false, "pretraining_tp": 1, "torch_dtype": "float32", "use_cache": true,
		"bias": spec.FCBias,
	}
	switch r := &spec.Rope; r.Type {
	case "linear":
		c["rope_scaling"] = map[string]any{"type": "linear", "rope_type": "linear", "factor": r.Factor}
	case "llama3":
		c["rope_scaling"] = map[string]any{
			"rope_type": "llama3", "factor": r.Factor, "low_freq_factor": r.LowFreq,
			"high_freq_factor": r.HighFreq, "original_max_position_embeddings": r.Original,
		}
	case "yarn":
		c["rope_scaling"] = map[string]any{
			"rope_type": "yarn", "factor": r.Factor, "original_max_position_embeddings": r.Original,
			"beta_fast": r.BetaFast, "beta_slow": r.BetaSlow, "attention_factor": r.Scale, "truncate": r.Truncate,
		}
	}
	if spec.DraftVocab != 0 {
		c["draft_vocab_size"] = spec.DraftVocab
	}
	if spec.QKVBias {
		c["attention_bias"] = true
	}
	if spec.MLPBias {
		c["mlp_bias"] = true
	}
	if spec.Eagle3.On {
		if !spec.FCBias {
			delete(c, "bias")
		}
		if err := spec.SetEagle3(c); err != nil {
			return nil, err
		}
	}
	if spec.Block.On {
		delete(c, "bias")
		if err := spec.SetBlock(c); err != nil {
			return nil, err
		}
	}
	spec.SetSpecial(c)
	b, err := json.MarshalIndent(c, "", "  ")
	return append(b, '\n'), err
}

// Write writes config.json and model.safetensors to the new or empty directory dir,
// whole or not at all; equal input gives equal bytes. It ends soon after ctx does. Tensors must contain every
// trained tensor; other systems also require "embed_tokens.weight". A nonzero
// spec.DraftVocab requires the tensors of draftvocab.Tensors. The file's metadata
// has the tie to the head's target.
func Write(ctx context.Context, dir string, spec *arch.Spec, target identity.Tie, tensors ...safetensors.Tensor) error {
	have := make(map[string][]int)
	for _, t := range tensors {
		have[t.Name] = t.Shape
	}
	for _, t := range trained(spec) {
		if got, ok := have[t.Name]; !ok || !slices.Equal(got, t.Shape()) {
			return fmt.Errorf("write draft head: tensor %q has shape %v, want %v", t.Name, got, t.Shape())
		}
	}
	if ids, err := draftvocab.Read(safetensors.Of("write draft head", tensors...), spec.DraftVocab, spec.Vocab); err != nil {
		return err
	} else if len(ids) != spec.DraftVocab && spec.DraftVocab != spec.Vocab {
		return fmt.Errorf("write draft head: tensor %q has %d tokens, but the configuration's draft_vocab_size is %d", draftvocab.ToTarget, len(ids), spec.DraftVocab)
	}
	conf, err := Config(spec)
	if err != nil {
		return fmt.Errorf("write draft head: %w", err)
	}
	meta := map[string]string{"format": "pt"}
	target.Metadata(meta)
	files, err := durable.NewDir(dir)
	if err != nil {
		return fmt.Errorf("write draft head: %w", err)
	}
	err = files.Write("model.safetensors", func(w io.Writer) error { return safetensors.Write(durable.Until(ctx, w), meta, tensors...) })
	if err == nil { // without a configuration the directory is not a head
		err = files.Write("config.json", func(w io.Writer) error { _, err := w.Write(conf); return err })
	}
	if err == nil {
		err = files.Commit()
	}
	if err != nil {
		return fmt.Errorf("write draft head: %w", err)
	}
	return nil
}
