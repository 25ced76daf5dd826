package arch

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The lists are written out, names and shapes as the published files have them.
func TestTensorsMatchPublishedFiles(t *testing.T) {
	small := func(s *Spec) *Spec {
		s.Vocab, s.Hidden, s.Layers, s.Heads, s.KVHeads, s.HeadDim, s.FFN = 50, 8, 2, 4, 2, 3, 20
		return s
	}
	llama := small(Llama())
	qwen := small(Llama())
	qwen.Terms, qwen.Tied, qwen.Layers, qwen.QKVBias = qwen3Terms, true, 1, true
	neox := small(Llama())
	neox.Terms, neox.KVHeads, neox.Layers, neox.QKVBias, neox.MLPBias = gptNeoXTerms, 4, 1, true, true
	eagle := small(Llama()).DraftFor(true)
	eagle.Layers = 2
	layer := func(from string, norm bool) string {
		list := ` input_layernorm.weight [8]
			self_attn.q_proj.weight [12 8]
			self_attn.k_proj.weight [6 8]
			self_attn.v_proj.weight [6 8]
			self_attn.o_proj.weight [8 12]
			post_attention_layernorm.weight [8]
			mlp.gate_proj.weight [20 8]
			mlp.up_proj.weight [20 8]
			mlp.down_proj.weight [8 20]`
		if !norm {
			_, list, _ = strings.Cut(list, "\n")
		}
		var out strings.Builder
		for line := range strings.Lines(list) {
			fmt.Fprintln(&out, from+strings.TrimSpace(line))
		}
		return out.String()
	}
	for name, c := range map[string]struct {
		spec   *Spec
		want   string
		params int
	}{
		"llama": {
			llama, "model.embed_tokens.weight [50 8]\n" + layer("model.layers.0.", true) + layer("model.layers.1.", true) +
				"model.norm.weight [8]\nlm_head.weight [50 8]",
			2*50*8 + 8 + 2*(2*8+2*12*8+2*6*8+3*20*8),
		},
		"qwen3": {
			qwen, `model.embed_tokens.weight [50 8]
				model.layers.0.input_layernorm.weight [8]
				model.layers.0.self_attn.q_proj.weight [12 8]
				model.layers.0.self_attn.q_proj.bias [12]
				model.layers.0.self_attn.k_proj.weight [6 8]
				model.layers.0.self_attn.k_proj.bias [6]
				model.layers.0.self_attn.v_proj.weight [6 8]
				model.layers.0.self_attn.v_proj.bias [6]
				model.layers.0.self_attn.q_norm.weight [3]
				model.layers.0.self_attn.k_norm.weight [3]
				model.layers.0.self_attn.o_proj.weight [8 12]
				model.layers.0.post_attention_layernorm.weight [8]
				model.layers.0.mlp.gate_proj.weight [20 8]
				model.layers.0.mlp.up_proj.weight [20 8]
				model.layers.0.mlp.down_proj.weight [8 20]
				model.norm.weight [8]`,
			50*8 + 8 + 2*8 + 2*12*8 + 2*6*8 + 12 + 2*6 + 2*3 + 3*20*8,
		},
		"gpt_neox": {
			neox, `gpt_neox.embed_in.weight [50 8]
				gpt_neox.layers.0.input_layernorm.weight [8]
				gpt_neox.layers.0.input_layernorm.bias [8]
				gpt_neox.layers.0.attention.query_key_value.weight [36 8]
				gpt_neox.layers.0.attention.query_key_value.bias [36]
				gpt_neox.layers.0.attention.dense.weight [8 12]
				gpt_neox.layers.0.post_attention_layernorm.weight [8]
				gpt_neox.layers.0.post_attention_layernorm.bias [8]
				gpt_neox.layers.0.mlp.dense_h_to_4h.weight [20 8]
				gpt_neox.layers.0.mlp.dense_h_to_4h.bias [20]
				gpt_neox.layers.0.mlp.dense_4h_to_h.weight [8 20]
				gpt_neox.layers.0.mlp.dense_4h_to_h.bias [8]
				gpt_neox.final_layer_norm.weight [8]
				gpt_neox.final_layer_norm.bias [8]
				embed_out.weight [50 8]`,
			2*50*8 + 6*8 + 36*8 + 36 + 12*8 + 2*20*8 + 20 + 8,
		},
		"eagle": {
			eagle, "embed_tokens.weight [50 8] or the target's\nfc.weight [8 16]\nfc.bias [8]\n" + layer("layers.0.", false) + layer("layers.1.", true),
			8*16 + 8 + 3*8 + 2*(2*12*8+2*6*8+3*20*8),
		},
	} {
		var got, want []string
		for _, x := range c.spec.Tensors() {
			line := fmt.Sprint(x.Name, " ", x.Shape())
			if x.Optional {
				line += " or the target's"
			}
			got = append(got, line)
		}
		for line := range strings.Lines(c.want) {
			want = append(want, strings.TrimSpace(line))
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
		if n := c.spec.Params(); n != c.params {
			t.Errorf("%s: %d parameters, want %d", name, n, c.params)
		}
	}
}
