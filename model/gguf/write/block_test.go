package write_test

import (
	"bytes"
	"encoding/binary"
	"slices"
	"strings"
	"testing"

	"talf/model/arch"
	"talf/model/gguf"
	"talf/model/gguf/write"
	"talf/model/safetensors"
)

// blockHead returns a DSpark head for the embedded model, with a draft vocabulary and the LM head that one needs.
func blockHead(t *testing.T) *write.Block {
	t.Helper()
	spec, err := arch.Load(target)
	if err != nil {
		t.Fatal(err)
	}
	s := spec.BlockFor(arch.Block{
		Size: 5, Taps: []int{0, 4, 9}, Mask: 7, Shift: true, Markov: arch.VanillaMarkov, Rank: 6, Confidence: true, ConfidenceMarkov: true, OwnLMHead: true,
	}, 2, 3)
	h := &write.Block{Spec: s, Name: "sample", Vocab: []int32{2, 3, 11}}
	for _, x := range s.Tensors() {
		if x.Name != "embed_tokens.weight" {
			size := safetensors.Tensor{DType: "BF16", Shape: x.Shape()}
			data := make([]byte, size.Size())
			for i := range data {
				data[i] = byte(i*7 + len(x.Name))
			}
			h.Tensors = append(h.Tensors, safetensors.Tensor{Name: x.Name, DType: "BF16", Shape: x.Shape(), Data: data})
		}
	}
	if h.Tokenizer, err = write.Tokenizer(target, s.Vocab); err != nil {
		t.Fatal(err)
	}
	h.Tokenizer = append(h.Tokenizer, gguf.Raw{Name: "tokenizer.ggml.mask_token_id", Type: 4, Value: []byte{1, 0, 0, 0}})
	return h
}

// Names, keys and the order of rows are those of llama.cpp's src/models/dflash.cpp, load_arch_tensors.
func TestABlockHeadHasTheNamesOfItsLoader(t *testing.T) {
	h := blockHead(t)
	f, err := h.File()
	if err != nil {
		t.Fatal(err)
	}
	keys := map[string][]byte{}
	for _, k := range f.Keys {
		if keys[k.Name] != nil {
			t.Errorf("key %s is there twice", k.Name)
		}
		keys[k.Name] = k.Value
	}
	u32 := func(n uint32) []byte { return binary.LittleEndian.AppendUint32(nil, n) }
	for name, want := range map[string][]byte{
		"dflash.block_count": u32(2), "dflash.block_size": u32(5), "tokenizer.ggml.mask_token_id": u32(7), "dflash.sample_from_anchor": {1},
		"dflash.target_layers": slices.Concat(u32(5), u32(3), u32(0), u32(0), u32(4), u32(9)), // inputs of layers
	} {
		if !bytes.Equal(keys[name], want) {
			t.Errorf("%s is %v, want %v", name, keys[name], want)
		}
	}
	want := map[string]string{"d2t": ""}
	for file, dir := range map[string]string{
		"fc.weight": "fc.weight", "enc.output_norm.weight": "hidden_norm.weight", "output_norm.weight": "norm.weight", "output.weight": "lm_head.weight",
		"markov_w1.weight": "markov_head.markov_w1.weight", "markov_w2.weight": "markov_head.markov_w2.weight",
		"conf_proj.weight": "confidence_head.proj.weight", "conf_proj.bias": "confidence_head.proj.bias",
	} {
		want[file] = dir
	}
	for file, dir := range map[string]string{
		"attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
		"attn_output": "self_attn.o_proj", "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm",
		"ffn_norm": "post_attention_layernorm", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
	} {
		for _, l := range []string{"0", "1"} {
			want["blk."+l+"."+file+".weight"] = "layers." + l + "." + dir + ".weight"
		}
	}
	for _, x := range f.Tensors {
		dir, ok := want[x.Name]
		delete(want, x.Name)
		i := slices.IndexFunc(h.Tensors, func(y safetensors.Tensor) bool { return y.Name == dir })
		switch {
		case x.Name == "d2t":
			if x.DType != "I64" || !bytes.Equal(x.Data, []byte{2, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 11, 0, 0, 0, 0, 0, 0, 0}) {
				t.Errorf("d2t is %s %v", x.DType, x.Data)
			}
		case !ok || i < 0:
			t.Errorf("tensor %s is not one of the loader's", x.Name)
		case len(x.Shape) == 1 && x.DType != "F32":
			t.Errorf("%s is %s, want F32", x.Name, x.DType)
		case len(x.Shape) > 1 && !bytes.Equal(x.Data, h.Tensors[i].Data):
			t.Errorf("%s is not %s as it was", x.Name, dir)
		}
	}
	if len(want) > 0 {
		t.Errorf("missing: %v", want)
	}
	if err := f.Write(new(bytes.Buffer)); err != nil {
		t.Error(err)
	}
}

// Heads that the file cannot say are refused by the field.
func TestBlockHeadsThatNoFileCanSay(t *testing.T) {
	for want, edit := range map[string]func(s *arch.Spec){
		"conv_group_size":              func(s *arch.Spec) { s.Block.Group = 4 },
		"markov_head_type":             func(s *arch.Spec) { s.Block.Markov = arch.RNNMarkov },
		"markov_rank is 0":             func(s *arch.Spec) { s.Block.Markov, s.Block.Rank = "", 0 },
		"confidence_head_with_markov":  func(s *arch.Spec) { s.Block.ConfidenceMarkov = false },
		"is_causal":                    func(s *arch.Spec) { s.Block.Causal = []bool{false, true} },
		"sliding_window":               func(s *arch.Spec) { s.Windows = []int{0, 9} },
		"attention_bias":               func(s *arch.Spec) { s.QKVBias = true },
		"rope_scaling is of type yarn": func(s *arch.Spec) { s.Rope.Type = "yarn" },
	} {
		h := blockHead(t)
		edit(h.Spec)
		if _, err := h.File(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	h := blockHead(t)
	h.Tensors = append(h.Tensors, safetensors.F32("layers.0.other.weight", []float32{1}, 1))
	if _, err := h.File(); err == nil || !strings.Contains(err.Error(), `no place for tensor "layers.0.other.weight"`) {
		t.Errorf("a tensor too many: %v", err)
	}
}
