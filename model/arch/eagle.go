package arch

import "strings"

// eagleTerms are the tensors of an EAGLE-1/2 draft head: Llama's layers after fc,
// without the first input norm, the final norm and the LM head.
var eagleTerms = func() []Term {
	terms := []Term{
		{Role: Embed, Name: "embed_tokens", Rows: VocabSize, Cols: HiddenSize, Optional: true},
		{Role: FC, Name: "fc", Rows: HiddenSize, Cols: TwoHidden, Bias: IfFCBias},
	}
	for _, t := range llamaTerms {
		if !t.perLayer() {
			continue
		}
		if t.Role == InputNorm {
			t.From = 1
		}
		t.Name = strings.TrimPrefix(t.Name, "model.")
		terms = append(terms, t)
	}
	return terms
}()

// DraftFor returns the spec of a one-layer EAGLE head for a target of any architecture:
// Llama's layer, as other systems' loaders of heads expect it, with the target's sizes
// and rope_theta. It has no rope scaling, no windows, no norms of queries and keys, and
// no biases except, on request, that of fc.
func (s *Spec) DraftFor(fcBias bool) *Spec {
	d := Llama()
	d.Vocab, d.Hidden, d.Layers, d.Heads, d.KVHeads, d.HeadDim = s.Vocab, s.Hidden, 1, s.Heads, s.KVHeads, s.HeadDim
	d.FFN, d.MaxPos, d.NormEps, d.Rope.Theta = s.FFN, s.MaxPos, s.NormEps, s.Rope.Theta
	d.BOS, d.EOS = s.BOS, append([]int32(nil), s.EOS...)
	d.Draft, d.FCBias, d.Terms = true, fcBias, eagleTerms
	return d
}

// eagle3Terms are the tensors of an EAGLE-3 head in SpecForge's layout: one layer that
// reads the embedding and fc's projection of the target's hidden states side by side,
// and an LM head of its own.
var eagle3Terms = []Term{
	{Role: FC, Name: "fc", Rows: HiddenSize, Cols: TapsSize},
	{Role: TapNorm, Name: "midlayer.hidden_norm", Rows: HiddenSize},
	{Role: InputNorm, Name: "midlayer.input_layernorm", Rows: HiddenSize},
	{Role: Q, Name: "midlayer.self_attn.q_proj", Rows: QuerySize, Cols: TwoHidden},
	{Role: K, Name: "midlayer.self_attn.k_proj", Rows: KeySize, Cols: TwoHidden},
	{Role: V, Name: "midlayer.self_attn.v_proj", Rows: KeySize, Cols: TwoHidden},
	{Role: O, Name: "midlayer.self_attn.o_proj", Rows: HiddenSize, Cols: QuerySize},
	{Role: PostNorm, Name: "midlayer.post_attention_layernorm", Rows: HiddenSize},
	{Role: Gate, Name: "midlayer.mlp.gate_proj", Rows: FFNSize, Cols: HiddenSize},
	{Role: Up, Name: "midlayer.mlp.up_proj", Rows: FFNSize, Cols: HiddenSize},
	{Role: Down, Name: "midlayer.mlp.down_proj", Rows: HiddenSize, Cols: FFNSize},
	{Role: FinalNorm, Name: "norm", Rows: HiddenSize},
	{Role: LMHead, Name: "lm_head", Rows: DraftSize, Cols: HiddenSize},
}

// Eagle3 returns the spec of an EAGLE-3 head (Li et al. 2025) with the sizes of s, of
// any family. Its fc reads taps elements of the target's hidden states per token, and
// it predicts draftVocab tokens.
func (s *Spec) Eagle3(taps, draftVocab int) *Spec {
	e := *s
	e.Draft, e.Taps, e.DraftVocab, e.Terms = true, taps, draftVocab, eagle3Terms
	return &e
}
