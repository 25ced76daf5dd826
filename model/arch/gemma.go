package arch

import (
	"math"

	"talf/compute"
)

// gemmaTerms are Llama's tensors and the norms of what attention and the feed-forward network
// add to the residual stream.
var gemmaTerms = func() []Term {
	terms := after(llamaTerms, O, Term{Role: AttnOutNorm, Name: "model.layers.%d.post_attention_layernorm", Rows: HiddenSize})
	for i := range terms {
		if terms[i].Role == PostNorm {
			terms[i].Name = "model.layers.%d.pre_feedforward_layernorm"
		}
	}
	return after(terms, Down, Term{Role: FFNOutNorm, Name: "model.layers.%d.post_feedforward_layernorm", Rows: HiddenSize})
}()

// gemma3Terms also have norms of every head's queries and keys.
var gemma3Terms = after(gemmaTerms, V, headNorms...)

// headNorms are the norms of every head's queries and keys.
var headNorms = []Term{
	{Role: QNorm, Name: "model.layers.%d.self_attn.q_norm", Rows: HeadSize},
	{Role: KNorm, Name: "model.layers.%d.self_attn.k_norm", Rows: HeadSize},
}

// gemma reads what Gemma 2 and 3 have in common: norms by 1 + weight before and after attention
// and the feed-forward network, a tanh GELU, scaled embeddings, and a scale of scores that
// head_dim does not decide.
func (c *config) gemma(s *Spec, def missing, attnCap, logitCap float64) {
	c.common(s, def)
	s.Act, s.NormOffset = compute.GELUTanh, !c.bool("norms_include_one", false) // GGUF files have them so
	c.activation("hidden_activation", "hidden_act", "gelu_pytorch_tanh")
	c.attentionBias(s)
	s.EmbedScale = float32(math.Sqrt(float64(s.Hidden)))
	by := c.float("query_pre_attn_scalar", 256)
	if !(by > 0) {
		c.fail("query_pre_attn_scalar is %v, want more than 0", by)
	}
	s.AttnScale = float32(1 / math.Sqrt(by))
	s.AttnCap, s.LogitCap = c.orNull("attn_logit_softcapping", attnCap), c.orNull("final_logit_softcapping", logitCap)
}

// activation refuses another activation than want, which is also what a missing one means. It
// goes by either name; the first one counts.
func (c *config) activation(key, other, want string) {
	if !c.has(key) {
		key = other
	}
	if a := c.string(key, want); a != want {
		c.fail("%s is %.100q, want %q", key, a, want)
	}
}

// orNull reads a number, def if it is missing and 0 if it is null.
func (c *config) orNull(key string, def float64) float32 {
	if _, given := c.m[key]; given && !c.has(key) {
		return 0
	}
	return float32(c.float(key, def))
}

// parseGemma2 reads Gemma 2 (Gemma Team 2024): soft caps of scores and logits, and windows in the
// first of every two layers.
func parseGemma2(c *config, s *Spec) {
	c.gemma(s, missing{kvHeads: 4, headDim: 256, maxPos: 8192, tied: true}, 50, 30)
	s.Terms = gemmaTerms
	c.windows(s, 4096, func(i int) bool { return i%2 == 0 })
}

// parseGemma3 reads the text model of Gemma 3 (Gemma Team 2025): norms of queries and keys, and
// windows with a rotation of their own in all layers but each sixth.
func parseGemma3(c *config, s *Spec) {
	local := c.localRope()
	c.gemma(s, missing{kvHeads: 4, headDim: 256, maxPos: 131072, theta: 1e6, tied: true}, 0, 0)
	s.Terms, s.LocalRope = gemma3Terms, local
	pattern := c.int("sliding_window_pattern", 6)
	c.windows(s, 4096, func(i int) bool { return (i+1)%pattern != 0 })
}

// localRope reads the rotation of layers with a window: rope_local_base_freq, or an object for
// each kind of layer in rope_parameters, as transformers 5 writes it, which is replaced by that
// of the other layers.
func (c *config) localRope() Rope {
	r := Rope{Theta: c.float("rope_local_base_freq", 10000), Type: "default"}
	both := c.object("rope_parameters")
	if both == nil || !both.has(slidingAttention) {
		return r
	}
	o := both.object(slidingAttention)
	if o != nil {
		r.Theta = o.float("rope_theta", r.Theta)
		o.ropeScaling(&r)
		c.take(o)
	}
	c.take(both)
	if full, ok := both.m[fullAttention]; ok {
		c.m["rope_parameters"] = full
	} else {
		c.fail("rope_parameters.%s is missing, want an object beside that of %s", fullAttention, slidingAttention)
	}
	return r
}

// windows reads which layers have a sliding window: those that layer_types names, or else those
// that slides tells. A window that is missing is def; null is none.
func (c *config) windows(s *Spec, def int, slides func(layer int) bool) {
	window := c.slidingWindow(def)
	types := c.layerTypes(s)
	if c.err != nil {
		return
	}
	w, any := same(0, s.Layers), false
	for i := range w {
		if types == nil && !slides(i) || types != nil && types[i] == fullAttention {
			continue
		}
		if window == 0 {
			if types != nil {
				c.fail("layer_types[%d] is %.100q, but sliding_window sets no window", i, slidingAttention)
			}
			return
		}
		w[i], any = window, true
	}
	if any {
		s.Windows = w
	}
}
