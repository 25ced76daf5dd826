package write

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"talf/model/arch"
	"talf/model/gguf"
	"talf/model/safetensors"
)

// A Head is an EAGLE-3 draft head to be written for llama.cpp. Keys, names and the order of rows are
// those of its converter (conversion/llama.py) and its loader (src/models/eagle3.cpp), as of
// summer 2026.
type Head struct {
	Spec      *arch.Spec
	Tensors   []safetensors.Tensor // by EAGLE's names, without the draft vocabulary's; F32, F16 or BF16
	Vocab     []int32              // the target's ids of the draft vocabulary, ascending; nil: all
	Taps      []int                // boundaries of the target's layers, as arch.Eagle3 counts them
	Name      string               // for people
	Tokenizer []gguf.Raw           // the target's: Tokenizer
	More      []gguf.Raw           // other keys
}

// Lacks returns what such a file cannot say of a head, in sentences that name the fields.
func Lacks(s *arch.Spec) (why []string) {
	e := &s.Eagle3
	bad := func(when bool, format string, args ...any) {
		if when {
			why = append(why, fmt.Sprintf(format, args...))
		}
	}
	bad(!e.On, "a head of EAGLE-1 or EAGLE-2: only EAGLE-3 heads have files of their own")
	bad(s.Layers != 1, "num_hidden_layers is %d, want 1", s.Layers)
	bad(e.On && e.Count() != taps, "eagle_aux_hidden_state_layer_ids has %d entries, want %d", e.Count(), taps)
	bad(e.FCNorm, "fc_norm is true: it has no norms for single hidden states")
	bad(e.NormOutput, "norm_output is true: it always passes on the hidden state before the final norm")
	bad(e.QKNorm, "there are norms of queries and keys")
	bad(s.FCBias || s.QKVBias || s.OBias || s.MLPBias, "there are biases (attention_bias, mlp_bias, bias)")
	bad(s.Rope.Type == "yarn", "rope_scaling is YaRN's, whose factors llama.cpp reckons otherwise")
	bad(s.HeadDim%2 != 0, "head_dim is %d, want an even number", s.HeadDim)
	return why
}

// givers are the types of models whose hidden states llama.cpp can give a head: those whose graph
// sets t_layer_inp. The last hidden state of those that are true is there as well: t_h_nextn.
var givers = map[string]bool{
	"llama": false, "mistral": false, "mixtral": false, "qwen3": false, "qwen3_moe": false, "gpt_oss": true, "qwen3_next": true,
}

// Unserved returns why llama.cpp, as of summer 2026, cannot run a head beside its target, although it
// reads the files of both. A nil target gives no reason.
func Unserved(s, target *arch.Spec) (why []string) {
	if target == nil || !s.Eagle3.On {
		return nil
	}
	last, ok := givers[target.Arch]
	if !ok {
		return []string{notGiver(target)}
	}
	if slices.Contains(s.Eagle3.Taps, target.Layers) && !last {
		return []string{fmt.Sprintf("eagle_aux_hidden_state_layer_ids has %d, the state after the last layer, which it does not take from models of type %s", target.Layers, target.Arch)}
	}
	return nil
}

// notGiver says that a target is not of givers.
func notGiver(target *arch.Spec) string {
	return fmt.Sprintf("the target is of type %s, and it takes hidden states of these types only: %s", target.Arch, strings.Join(slices.Sorted(maps.Keys(givers)), ", "))
}

// taps is the number of hidden states that llama.cpp gives a head.
const taps = 3

// File returns the file of the head.
func (h *Head) File() (*File, error) {
	if why := Lacks(h.Spec); why != nil {
		return nil, errors.New(strings.Join(why, "; "))
	}
	if len(h.Taps) != taps {
		return nil, fmt.Errorf("the head reads the hidden states %v of its target, want %d", h.Taps, taps)
	}
	if n := tokens(h.Tokenizer); n != h.Spec.Vocab {
		return nil, fmt.Errorf("the target's tokenizer has %d tokens, but the head's vocab_size is %d", n, h.Spec.Vocab)
	}
	f := &File{}
	if f.Keys = h.keys(); h.Vocab != nil {
		f.Tensors = append(f.Tensors, vocabulary(h.Vocab))
	}
	if by := h.ropeFactors(); by != nil {
		f.Tensors = append(f.Tensors, safetensors.F32("rope_freqs.weight", by, len(by)))
	}
	names := gguf.HeadNames()
	for _, t := range h.Tensors {
		module, kind, _ := strings.Cut(t.Name, ".weight")
		name, ok := names[module]
		if !ok || kind != "" {
			return nil, fmt.Errorf("llama.cpp has no place for tensor %q in an EAGLE-3 head", t.Name)
		}
		to, err := h.tensor(t, name)
		if err != nil {
			return nil, err
		}
		to.Name = name + ".weight"
		f.Tensors = append(f.Tensors, to)
	}
	return f, nil
}

// tensor returns t as it is in the file. Norms are F32 in all files.
func (h *Head) tensor(t safetensors.Tensor, name string) (safetensors.Tensor, error) {
	if len(t.Shape) == 1 {
		return plainNorm(t)
	}
	switch name {
	case "blk.0.attn_q":
		t.Data = interleave(t.Data, h.Spec.Heads, h.Spec.HeadDim)
	case "blk.0.attn_k":
		t.Data = interleave(t.Data, h.Spec.KVHeads, h.Spec.HeadDim)
	}
	return t, nil
}

// interleave puts the rows of queries or keys, heads·size of them, in the order of files: llama.cpp
// rotates neighbours where published models rotate halves, so the halves of each head alternate.
func interleave(data []byte, heads, size int) []byte {
	row := len(data) / (heads * size)
	out := make([]byte, 0, len(data))
	for r := range heads * size {
		from := r/size*size + r%2*(size/2) + r%size/2
		out = append(out, data[from*row:][:row]...)
	}
	return out
}

// keys returns the head's keys.
func (h *Head) keys() []gguf.Raw {
	s := h.Spec
	const a = gguf.HeadArch + "."
	keys := []gguf.Raw{
		Text("general.architecture", gguf.HeadArch),
		Text("general.type", "model"),
		Text("general.name", h.Name),
		number("general.file_type", fileType(h.Tensors)),
		number("general.quantization_version", 2),
		numbers(a+"target_layers", h.Taps),
		number(a+"target_hidden_size", s.TargetHidden()),
		truth(a+"norm_before_residual", s.Eagle3.NormBeforeResidual),
		truth(a+"norm_before_fc", s.Eagle3.NormBeforeFC),
	}
	keys = append(keys, layerKeys(a, s)...)
	return append(append(keys, h.Tokenizer...), h.More...)
}

// layerKeys returns the keys of a head's layers, which begin with a.
func layerKeys(a string, s *arch.Spec) []gguf.Raw {
	keys := []gguf.Raw{
		number(a+"block_count", s.Layers),
		number(a+"context_length", s.MaxPos),
		number(a+"embedding_length", s.Hidden),
		number(a+"feed_forward_length", s.FFN),
		number(a+"attention.head_count", s.Heads),
		number(a+"attention.head_count_kv", s.KVHeads),
		number(a+"attention.key_length", s.HeadDim),
		number(a+"attention.value_length", s.HeadDim),
		float(a+"attention.layer_norm_rms_epsilon", float64(s.NormEps)),
		float(a+"rope.freq_base", s.Rope.Theta),
		number(a+"rope.dimension_count", s.HeadDim),
		number(a+"vocab_size", s.Vocab),
	}
	if s.Rope.Type == "linear" {
		keys = append(keys, Text(a+"rope.scaling.type", "linear"), float(a+"rope.scaling.factor", s.Rope.Factor))
	}
	return keys
}

// fileType is the number that stands for the type of most weights.
func fileType(ts []safetensors.Tensor) int {
	for _, t := range ts {
		if t.Name == "fc.weight" {
			return map[string]int{"F32": 0, "F16": 1, "BF16": 32}[t.DType]
		}
	}
	return 0
}

// ropeFactors returns what Llama 3's scaling divides each frequency by; nil if there is no such
// scaling. low and high are the wavelengths, in turns over the original context, between which
// scaling grows from 1 to the factor.
func (h *Head) ropeFactors() []float32 {
	r := &h.Spec.Rope
	if r.Type != "llama3" {
		return nil
	}
	by := make([]float32, h.Spec.HeadDim/2)
	for i := range by {
		turns := float64(r.Original) * math.Pow(r.Theta, -2*float64(i)/float64(h.Spec.HeadDim)) / (2 * math.Pi)
		smooth := min(1, max(0, (turns-r.LowFreq)/(r.HighFreq-r.LowFreq)))
		by[i] = float32(1 / ((1-smooth)/r.Factor + smooth))
	}
	return by
}
