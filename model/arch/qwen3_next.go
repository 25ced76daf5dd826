package arch

import (
	"fmt"
	"slices"

	"talf/compute"
)

// Delta says which layers are recurrent, with the gated delta rule in place of attention, and their sizes
// (compute.Delta). The zero value is a model without such layers.
type Delta struct {
	Layers     []bool `config:"linear_attention_layers,omitzero"` // [Layers]; nil: none
	KeyHeads   int    `config:"linear_num_key_heads,omitzero"`
	ValueHeads int    `config:"linear_num_value_heads,omitzero"`
	KeyDim     int    `config:"linear_key_head_dim,omitzero"`
	ValueDim   int    `config:"linear_value_head_dim,omitzero"`
	Kernel     int    `config:"linear_conv_kernel_dim,omitzero"`
}

// Shape returns the sizes of a recurrent layer.
func (d *Delta) Shape() compute.DeltaShape {
	return compute.DeltaShape{KeyHeads: d.KeyHeads, ValueHeads: d.ValueHeads, KeyDim: d.KeyDim, ValueDim: d.ValueDim, Kernel: d.Kernel}
}

// On reports whether a layer is recurrent.
func (d *Delta) On(layer int) bool { return layer >= 0 && layer < len(d.Layers) && d.Layers[layer] }

// Count returns the number of recurrent layers.
func (d *Delta) Count() (n int) {
	for i := range d.Layers {
		if d.Layers[i] {
			n++
		}
	}
	return n
}

// StateElements returns the numbers that memory holds of a sequence, however long it is, in all
// recurrent layers together.
func (d *Delta) StateElements() int { return d.Count() * d.Shape().State() }

func (d *Delta) validate(s *Spec) error {
	switch sizes := []int{d.KeyHeads, d.ValueHeads, d.KeyDim, d.ValueDim, d.Kernel}; {
	case d.Layers == nil:
		return nil
	case len(d.Layers) != s.Layers || d.Count() == s.Layers:
		return fmt.Errorf("%d of %d layers are recurrent, want an entry for each of num_hidden_layers = %d and one with attention", d.Count(), len(d.Layers), s.Layers)
	case slices.Min(sizes) < 1 || slices.Max(sizes) > 1<<12:
		return fmt.Errorf("linear_num_key_heads, linear_num_value_heads, linear_key_head_dim, linear_value_head_dim and linear_conv_kernel_dim are %v, want 1 to %d", sizes, 1<<12)
	case d.Kernel < 2:
		return fmt.Errorf("linear_conv_kernel_dim is %d, want at least 2", d.Kernel)
	case d.ValueHeads%d.KeyHeads != 0:
		return fmt.Errorf("linear_num_value_heads is %d, want a multiple of linear_num_key_heads, %d", d.ValueHeads, d.KeyHeads)
	}
	if n := d.Shape().State(); n > maxDim {
		return fmt.Errorf("a layer's state has %d numbers, want at most %d", n, maxDim)
	}
	return nil
}

// qwen3NextTerms have gates beside the queries of layers with attention, and the tensors of recurrent
// layers. Those of their projections are grouped by key head.
var qwen3NextTerms = func() (terms []Term) {
	const name = "model.layers.%d.linear_attn."
	for _, t := range qwen2MoETerms {
		switch t.Role {
		case Q:
			terms = append(terms, Term{Role: QGated, Name: t.Name, Rows: twoQuery, Cols: HiddenSize, In: attentionLayer})
		case V:
			t.Bias, t.In = no, attentionLayer
			terms = append(terms, t)
			for _, n := range headNorms {
				n.In = attentionLayer
				terms = append(terms, n)
			}
		case K, O:
			t.Bias, t.In = no, attentionLayer
			terms = append(terms, t)
		default:
			terms = append(terms, t)
		}
	}
	return after(terms, O,
		Term{Role: DeltaIn, Name: name + "in_proj_qkvz", Rows: deltaInSize, Cols: HiddenSize, In: recurrentLayer},
		Term{Role: DeltaGates, Name: name + "in_proj_ba", Rows: deltaGateSize, Cols: HiddenSize, In: recurrentLayer},
		Term{Role: DeltaConv, Name: name + "conv1d", Rows: deltaChannels, Cols: deltaKernel, In: recurrentLayer},
		Term{Role: DeltaDecay, Name: name + "A_log", Rows: deltaHeads, In: recurrentLayer, Bare: true},
		Term{Role: DeltaStep, Name: name + "dt_bias", Rows: deltaHeads, In: recurrentLayer, Bare: true},
		Term{Role: DeltaNorm, Name: name + "norm", Rows: deltaHeadSize, In: recurrentLayer},
		Term{Role: DeltaOut, Name: name + "out_proj", Rows: HiddenSize, Cols: deltaValues, In: recurrentLayer})
}()

// asConverted returns the terms of a model as llama.cpp's converter stores it: with what decays are made from, and,
// if split, with output gates apart from queries, keys and values, all of which are in the order of heads.
func asConverted(terms []Term, split bool) (out []Term) {
	const name = "model.layers.%d.linear_attn."
	for _, t := range terms {
		switch {
		case t.Role == DeltaDecay:
			t.Role, t.Name = DeltaRate, name+"decay"
		case t.Role == DeltaIn && split:
			out = append(out, Term{Role: DeltaQKV, Name: name + "in_proj_qkv", Rows: deltaChannels, Cols: HiddenSize, In: recurrentLayer})
			t.Role, t.Name, t.Rows = DeltaZ, name+"in_proj_z", deltaValues
		}
		out = append(out, t)
	}
	return out
}

// parseQwen3Next reads Qwen 3 Next (Qwen Team 2025): recurrent layers, of which every fourth is
// one with gated attention instead, and experts in all.
func parseQwen3Next(c *config, s *Spec) {
	c.common(s, missing{kvHeads: 2, headDim: 256, maxPos: 32768, part: 0.25})
	s.Terms, s.NormOffset = qwen3NextTerms, true
	if c.bool("norms_include_one", false) { // of a GGUF file
		s.Terms, s.NormOffset = asConverted(qwen3NextTerms, c.bool("in_proj_split", false)), false
	}
	c.activation("hidden_act", "hidden_act", "silu")
	c.mustBe("attention_bias", false)
	c.qwenExperts(s, Mixture{Experts: c.int("num_experts", 512), Top: c.int("num_experts_per_tok", 10), FFN: c.int("moe_intermediate_size", 512)})
	s.Mixture.Renorm = c.bool("norm_topk_prob", true)
	s.Mixture.Shared, s.Mixture.Gated = c.int("shared_expert_intermediate_size", 512), true
	s.Delta = Delta{
		KeyHeads: c.int("linear_num_key_heads", 16), ValueHeads: c.int("linear_num_value_heads", 32),
		KeyDim: c.int("linear_key_head_dim", 128), ValueDim: c.int("linear_value_head_dim", 128), Kernel: c.int("linear_conv_kernel_dim", 4),
	}
	every, types := c.int("full_attention_interval", 4), c.strings("layer_types")
	if c.err != nil || s.Layers > maxLayers {
		return
	}
	if types != nil && len(types) != s.Layers {
		c.fail("layer_types has %d entries, want num_hidden_layers = %d", len(types), s.Layers)
		return
	}
	s.Delta.Layers = make([]bool, s.Layers)
	for i := range s.Layers {
		s.Delta.Layers[i] = (i+1)%every != 0
		if types == nil {
			continue
		}
		if s.Delta.Layers[i] = types[i] != fullAttention; types[i] != fullAttention && types[i] != "linear_attention" {
			c.fail("layer_types[%d] is %.100q, want %q or %q", i, types[i], fullAttention, "linear_attention")
		}
	}
	if s.Delta.Count() == 0 {
		s.Delta = Delta{}
	}
}
