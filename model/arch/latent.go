package arch

import (
	"fmt"
	"math"
	"slices"

	"talf/internal/detmath"
)

// Latent says how multi-head latent attention (DeepSeek-AI 2024, DeepSeek-V2, §2.1) makes queries,
// keys and values of a layer's normed input h:
//
//	q = QUp QDownNorm(QDown h)        // or QUp h; each head has [Nope | rotated] elements
//	[c, r] = KVDown h                 // KVRank elements, and a key that is rotated
//	[k, v] = KVUp KVDownNorm(c)       // of each head: Nope and ValueDim elements
//
// A head's key is [k | rotated r], r being that of all heads. HeadDim is the size of a query, RotDim
// that of its rotated elements, which are the last as the tensors have them. The zero value is
// attention without latents.
type Latent struct {
	QRank    int `config:"q_lora_rank,omitzero"` // 0: queries are not compressed
	KVRank   int `config:"kv_lora_rank,omitzero"`
	Nope     int `config:"qk_nope_head_dim,omitzero"` // elements of a query that are not rotated
	ValueDim int `config:"v_head_dim,omitzero"`       // elements of a head's value
}

// LatentEps is the epsilon of the norms of compressed queries, keys and values, whatever that of the
// other norms is.
const LatentEps = 1e-6

// On reports whether attention has latents.
func (l *Latent) On() bool { return l.KVRank > 0 }

// KVElements returns the numbers that memory holds of a position in a layer: keys and values of all heads, or a
// rotated key and the latent, which is there once more as values (compute.KVConfig.Latent).
func (s *Spec) KVElements() int {
	if s.Latent.On() {
		return s.RotDim + 2*s.Latent.KVRank
	}
	return 2 * s.KVHeads * s.HeadDim
}

func (l *Latent) validate(s *Spec) error {
	if *l == (Latent{}) {
		return nil
	}
	for _, f := range []struct {
		name string
		v    int
	}{
		{"kv_lora_rank", l.KVRank},
		{"qk_nope_head_dim", l.Nope},
		{"v_head_dim", l.ValueDim},
	} {
		if f.v < 1 || f.v > maxDim/s.Heads/2 {
			return fmt.Errorf("%s is %d, want 1 to %d for %d heads", f.name, f.v, maxDim/s.Heads/2, s.Heads)
		}
	}
	switch {
	case l.QRank < 0 || l.QRank > maxDim:
		return fmt.Errorf("q_lora_rank is %d, want up to %d", l.QRank, maxDim)
	case s.RotDim < 2 || s.RotDim%2 != 0:
		return fmt.Errorf("qk_rope_head_dim is %d, want an even number of at least 2", s.RotDim)
	case l.Nope%2 != 0:
		return fmt.Errorf("qk_nope_head_dim is %d, want an even number", l.Nope)
	case s.HeadDim != l.Nope+s.RotDim:
		return fmt.Errorf("heads have %d elements, want qk_nope_head_dim = %d and qk_rope_head_dim = %d", s.HeadDim, l.Nope, s.RotDim)
	case l.KVRank%2 != 0:
		return fmt.Errorf("kv_lora_rank is %d, want an even number", l.KVRank)
	case s.KVHeads != s.Heads:
		return fmt.Errorf("num_key_value_heads is %d, want num_attention_heads, %d: latents have a key and a value for each", s.KVHeads, s.Heads)
	}
	return nil
}

// RotatedFirst returns the order of rows of heads of the given size in which those that are rotated,
// which are stored last, come first, and the pairs of a rotation lie half of them apart.
func (s *Spec) RotatedFirst(rows, head int) []int32 {
	order := make([]int32, rows)
	for i := range order {
		at, d := i/head*head, i%head
		switch half := s.RotDim / 2; {
		case d >= s.RotDim:
			d -= s.RotDim
		case !s.RopePairs:
			d += head - s.RotDim
		case d < half:
			d = head - s.RotDim + 2*d
		default:
			d = head - s.RotDim + 2*(d-half) + 1
		}
		order[i] = int32(at + d)
	}
	return order
}

// latentTerms are Llama's tensors with latents in place of queries, keys and values.
var latentTerms = func() []Term {
	const attn = "model.layers.%d.self_attn."
	terms := without(without(without(llamaTerms, Q), K), V)
	i := slices.IndexFunc(terms, func(t Term) bool { return t.Role == O })
	terms[i].Cols = valuesSize
	return after(terms, InputNorm,
		Term{Role: QDown, Name: attn + "q_a_proj", Rows: qRankSize, Cols: HiddenSize, Bias: ifQKVBias, Only: ifQRank},
		Term{Role: QDownNorm, Name: attn + "q_a_layernorm", Rows: qRankSize, Only: ifQRank},
		Term{Role: QUp, Name: attn + "q_b_proj", Rows: querySize, Cols: qRankSize, Only: ifQRank},
		Term{Role: QUp, Name: attn + "q_proj", Rows: querySize, Cols: HiddenSize, Unless: ifQRank},
		Term{Role: KVDown, Name: attn + "kv_a_proj_with_mqa", Rows: latentSize, Cols: HiddenSize, Bias: ifQKVBias},
		Term{Role: KVDownNorm, Name: attn + "kv_a_layernorm", Rows: kvRankSize},
		Term{Role: KVUp, Name: attn + "kv_b_proj", Rows: latentUpSize, Cols: kvRankSize},
	)
}()

// splitTerms have the up-projection of keys and values in two parts, as llama.cpp's converter stores it.
var splitTerms = after(without(latentTerms, KVUp), KVDownNorm,
	Term{Role: KeyUp, Name: "model.layers.%d.self_attn.k_b_proj", Rows: latentRows, Cols: nopeSize},
	Term{Role: ValueUp, Name: "model.layers.%d.self_attn.v_b_proj", Rows: valuesSize, Cols: kvRankSize})

var (
	deepSeekTerms      = experts(latentTerms, append(shared("shared_experts"), correction)...)
	deepSeekSplitTerms = experts(splitTerms, append(shared("shared_experts"), correction)...)
)

// parseDeepSeekV3 reads DeepSeek V3 and R1 (DeepSeek-AI 2024, DeepSeek-V3).
func parseDeepSeekV3(c *config, s *Spec) {
	// Transformers 5 writes head_dim, which is the number of rotated elements.
	rot := c.count("qk_rope_head_dim", 64)
	delete(c.m, "head_dim")
	c.common(s, missing{kvHeads: 128, headDim: max(1, rot), maxPos: 4096})
	if c.err != nil {
		return
	}
	if s.RotDim != 0 {
		c.fail("partial_rotary_factor is %v, want 1", float64(s.RotDim)/float64(s.HeadDim))
	}
	c.activation("hidden_act", "hidden_act", "silu")
	if s.Terms = deepSeekTerms; c.bool("kv_b_proj_split", false) { // of a GGUF file
		s.Terms = deepSeekSplitTerms
	}
	s.Latent = Latent{KVRank: c.int("kv_lora_rank", 512), Nope: c.int("qk_nope_head_dim", 128), ValueDim: c.int("v_head_dim", 128)}
	// A model without compressed queries says so by null.
	if raw, given := c.m["q_lora_rank"]; !given || string(raw) != "null" {
		s.Latent.QRank = c.count("q_lora_rank", 1536)
	}
	s.RotDim, s.HeadDim = rot, s.Latent.Nope+rot
	s.RopePairs = c.bool("rope_interleave", true)
	c.attentionBias(s)
	c.scaleByMscale(s)
	for _, f := range [][2]string{{"scoring_func", "sigmoid"}, {"topk_method", "noaux_tc"}} {
		if got := c.string(f[0], f[1]); got != f[1] {
			c.fail("%s is %.40q, want %q", f[0], got, f[1])
		}
	}
	if f := c.int("moe_layer_freq", 1); f != 1 {
		c.fail("moe_layer_freq is %d, want 1", f)
	}
	c.deepExperts(s, deepDefaults{experts: 256, top: 8, ffn: 2048, first: 3, factor: 2.5, groups: 8, topGroups: 4})
}

// scaleByMscale sets the factor of scores, which yarn with mscale_all_dim changes in this family.
func (c *config) scaleByMscale(s *Spec) {
	for _, key := range []string{"rope_scaling", "rope_parameters"} {
		o := c.object(key)
		if o == nil || s.Rope.Type == "default" || c.err != nil {
			continue
		}
		all, factor := o.float("mscale_all_dim", 0), o.float("factor", 1)
		if !(all >= 0 && all < 1e3) {
			o.fail("mscale_all_dim is %v, want 0 to 1000", all)
		}
		c.take(o)
		if c.err != nil || all == 0 || !(factor > 1) {
			continue
		}
		m := 0.1*float64(all*detmath.Log(min(factor, 1e9))) + 1
		s.AttnScale = float32(float64(m*m) / math.Sqrt(float64(s.HeadDim)))
	}
}
