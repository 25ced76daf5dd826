package write

import (
	"encoding/binary"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"talf/model/arch"
	"talf/model/gguf"
	"talf/model/safetensors"
)

// blockArch is the architecture of files of block heads.
const blockArch = "dflash"

// A Block is a DFlash or DSpark head to be written for llama.cpp, which has its tensors, keys and order of rows in
// src/models/dflash.cpp and common/speculative.cpp, as of autumn 2026. Fields are those of Head; Tensors have the names
// of directories, with an LM head if there is a draft vocabulary. Rows of queries and keys are in the published order,
// since llama.cpp rotates halves in such files.
type Block struct {
	Spec      *arch.Spec
	Tensors   []safetensors.Tensor
	Vocab     []int32
	Name      string
	Tokenizer []gguf.Raw
	More      []gguf.Raw
}

// BlockLacks returns what such a file cannot say of a block head, or would not be read as it is meant, in sentences
// that name the fields.
func BlockLacks(s *arch.Spec) (why []string) {
	b := &s.Block
	bad := func(when bool, format string, args ...any) {
		if when {
			why = append(why, fmt.Sprintf(format, args...))
		}
	}
	bad(b.Group > 0 || b.SelectorRank > 0, "conv_group_size is %d and selector_rank %d: DFlash 2 is not written for it yet", b.Group, b.SelectorRank)
	bad(b.Markov != "" && b.Markov != arch.VanillaMarkov, "markov_head_type is %q, want vanilla", string(b.Markov))
	bad(b.Shift && b.Markov == "", "markov_rank is 0, and it takes the token that a row predicts for the next one only with a Markov head")
	bad(b.Confidence && !b.ConfidenceMarkov, "confidence_head_with_markov is false: its confidence head reads the Markov embedding, too")
	bad(slices.Contains(b.Causal, true), "rows see only those before them (is_causal, causal_head), and it lets them see the whole block")
	bad(slices.ContainsFunc(s.Windows, func(w int) bool { return w > 0 }), "layers have a sliding_window, whose rows others read otherwise")
	bad(s.QKVBias || s.OBias || s.MLPBias, "there are biases (attention_bias, mlp_bias)")
	bad(!slices.Contains([]string{"", "default", "linear"}, s.Rope.Type), "rope_scaling is of type %s, want none or linear", s.Rope.Type)
	return why
}

// BlockUnserved is Unserved for a block head.
func BlockUnserved(target *arch.Spec) []string {
	if target == nil {
		return nil
	}
	if _, ok := givers[target.Arch]; !ok {
		return []string{notGiver(target)}
	}
	return nil
}

// File returns the file of the head.
func (h *Block) File() (*File, error) {
	if why := BlockLacks(h.Spec); why != nil {
		return nil, errors.New(strings.Join(why, "; "))
	}
	if n := tokens(h.Tokenizer); n != h.Spec.Vocab {
		return nil, fmt.Errorf("the target's tokenizer has %d tokens, but the head's vocab_size is %d", n, h.Spec.Vocab)
	}
	f := &File{Keys: h.keys()}
	if h.Vocab != nil {
		f.Tensors = append(f.Tensors, vocabulary(h.Vocab))
	}
	for _, t := range h.Tensors {
		name, ok := blockName(t.Name)
		if !ok {
			return nil, fmt.Errorf("llama.cpp has no place for tensor %q in a DFlash head", t.Name)
		}
		t, err := plainNorm(t)
		if err != nil {
			return nil, err
		}
		t.Name = name
		f.Tensors = append(f.Tensors, t)
	}
	return f, nil
}

// vocabulary returns the tensor of a draft vocabulary. llama.cpp wants the ids themselves, not their differences from
// the draft tokens' numbers.
func vocabulary(ids []int32) safetensors.Tensor {
	t := safetensors.Tensor{Name: gguf.HeadVocab, DType: "I64", Shape: []int{len(ids)}}
	for _, id := range ids {
		t.Data = binary.LittleEndian.AppendUint64(t.Data, uint64(id))
	}
	return t
}

// plainNorm returns t as F32 if it is a norm or a bias, which are so in all files.
func plainNorm(t safetensors.Tensor) (safetensors.Tensor, error) {
	if len(t.Shape) != 1 || t.DType == "F32" {
		return t, nil
	}
	x, err := t.Float32s()
	return safetensors.F32(t.Name, x, t.Shape...), err
}

var blockNames = map[string]string{
	"fc": "fc", "hidden_norm": "enc.output_norm", "norm": "output_norm", "embed_tokens": "token_embd", "lm_head": "output",
	"markov_head.markov_w1": "markov_w1", "markov_head.markov_w2": "markov_w2", "confidence_head.proj": "conf_proj",
	"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
	"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
	"self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
	"mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
}

var blockTensor = regexp.MustCompile(`^(?:layers\.(\d+)\.)?(.+)\.(weight|bias)$`)

// blockName returns the name in a file of a tensor of a directory.
func blockName(dir string) (string, bool) {
	m := blockTensor.FindStringSubmatch(dir)
	if m == nil {
		return "", false
	}
	name, ok := blockNames[m[2]]
	if m[1] != "" {
		name = "blk." + m[1] + "." + name
	}
	return name + "." + m[3], ok
}

// keys returns the head's keys.
func (h *Block) keys() []gguf.Raw {
	s, b := h.Spec, &h.Spec.Block
	const a = blockArch + "."
	keys := append(layerKeys(a, s), []gguf.Raw{
		Text("general.architecture", blockArch),
		Text("general.type", "model"),
		Text("general.name", h.Name),
		number("general.file_type", fileType(h.Tensors)),
		number("general.quantization_version", 2),
		number("tokenizer.ggml.mask_token_id", int(b.Mask)),
		number(a+"block_size", b.Size),
		numbers(a+"target_layers", b.Taps),
	}...)
	if b.Markov != "" {
		keys = append(keys, truth(a+"sample_from_anchor", b.Shift))
	}
	// A target's tokenizer may have a mask token of its own; the head's is the one that stands in its blocks.
	of := slices.DeleteFunc(slices.Clone(h.Tokenizer), func(r gguf.Raw) bool { return r.Name == "tokenizer.ggml.mask_token_id" })
	return append(append(keys, of...), h.More...)
}
