package arch

import "strings"

// eagleTerms are the tensors of an EAGLE-1/2 draft head: Llama's layers after fc,
// without the first input norm, the final norm and the LM head.
var eagleTerms = func() []Term {
	terms := []Term{
		{Role: Embed, Name: "embed_tokens", Rows: vocabSize, Cols: HiddenSize, Optional: true},
		{Role: FC, Name: "fc", Rows: HiddenSize, Cols: twoHidden, Bias: ifFCBias},
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
