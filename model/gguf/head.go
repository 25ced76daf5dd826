package gguf

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"

	"talf/model/ggml"
)

// HeadArch is the architecture of files of EAGLE-3 draft heads. Their names and keys are those of
// llama.cpp's src/models/eagle3.cpp.
const HeadArch = "eagle3"

// HeadVocab is the tensor of a head's draft vocabulary: I64 [draft tokens], the target's ids. In
// directories they are offsets, the target's id minus the draft token's number.
const HeadVocab = "d2t"

// plainI64 is the type of HeadVocab, which no tensor of weights has.
var plainI64 = &ggml.Type{Name: "I64", ID: 27, Elems: 1, Size: 8}

var headNames = map[string]string{
	"token_embd":      "embed_tokens",
	"enc.output_norm": "input_norm",
	"fc":              "fc",
	"output_norm":     "norm",
	"output":          "lm_head",
	"blk.attn_norm":   "midlayer.input_layernorm",
	"blk.attn_norm_2": "midlayer.hidden_norm",
	"blk.attn_q":      "midlayer.self_attn.q_proj",
	"blk.attn_k":      "midlayer.self_attn.k_proj",
	"blk.attn_v":      "midlayer.self_attn.v_proj",
	"blk.attn_output": "midlayer.self_attn.o_proj",
	"blk.ffn_norm":    "midlayer.post_attention_layernorm",
	"blk.ffn_gate":    "midlayer.mlp.gate_proj",
	"blk.ffn_up":      "midlayer.mlp.up_proj",
	"blk.ffn_down":    "midlayer.mlp.down_proj",
}

// HeadNames returns the name in a file of each module of a head, by its name in a directory. Those of
// the layer follow "blk.0.".
func HeadNames() map[string]string {
	names := make(map[string]string, len(headNames))
	for file, dir := range headNames {
		names[dir] = onLayer(file, 0)
	}
	return names
}

// onLayer inserts the number of a layer.
func onLayer(module string, layer int) string {
	if rest, ok := strings.CutPrefix(module, "blk."); ok {
		return fmt.Sprintf("blk.%d.%s", layer, rest)
	}
	return module
}

// IsHead reports whether path is a GGUF file of an EAGLE-3 head.
func IsHead(path string) bool {
	if !Is(path) {
		return false
	}
	f, err := Open(path)
	if err != nil {
		return false
	}
	is := f.isHead()
	return f.Close() == nil && is
}

func (f *File) isHead() bool {
	arch, _ := f.keys["general.architecture"].text()
	return arch == HeadArch
}

// headConfig adds what an EAGLE-3 head has beyond a layer of Llama.
func headConfig(k *reader, c map[string]any) {
	const a = HeadArch + "."
	rmsConfig(k, c)
	if c["num_hidden_layers"] != 1 {
		k.bad(a+"block_count", "1")
	}
	c["tie_word_embeddings"], c["mlp_bias"] = false, false
	c["draft_vocab_size"] = c["vocab_size"]
	if t := k.f.info(HeadVocab); t != nil {
		c["draft_vocab_size"] = t.dims[0]
	}
	c["target_hidden_size"] = k.count(a+"target_hidden_size", required)
	c["norm_before_residual"] = k.bool(a+"norm_before_residual", false)
	c["norm_before_fc"] = k.bool(a+"norm_before_fc", false)
	const taps = a + "target_layers"
	v := k.f.keys[taps]
	var ids []int
	for i := range int(min(v.n, 16)) {
		id, ok := v.at(i)
		if !ok || id < 0 || id > math.MaxInt32 {
			break
		}
		ids = append(ids, int(id))
	}
	switch {
	case !v.array || len(ids) != 3 || v.n != 3:
		k.bad(taps, "an array of 3 numbers of layers")
	case ids[0] == 1:
		k.bad(taps, "one that does not begin with 1: other systems take such a list for the layers whose outputs are meant")
	}
	c["eagle_aux_hidden_state_layer_ids"] = ids
}

// offsets returns the draft vocabulary of t as a directory has it.
func (t *info) offsets() []byte {
	out := make([]byte, 0, len(t.data))
	for i := range len(t.data) / 8 {
		out = binary.LittleEndian.AppendUint64(out, binary.LittleEndian.Uint64(t.data[8*i:])-uint64(i))
	}
	return out
}
