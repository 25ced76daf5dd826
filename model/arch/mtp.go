package arch

import (
	"fmt"
	"strconv"
	"strings"
)

// mtpName is how the tensors of a multi-token prediction module begin: it is stored as the layer after
// the model's last.
func (s *Spec) mtpName() string { return "model.layers." + strconv.Itoa(s.Layers) }

// HasMTP reports whether a model's files hold a multi-token prediction module. has reports whether they
// have a tensor.
func (s *Spec) HasMTP(has func(name string) bool) bool {
	return !s.Draft && has(s.mtpName()+".eh_proj.weight")
}

// MTPFor returns the spec of the multi-token prediction module that a model's files hold behind its
// layers (DeepSeek-AI 2024, DeepSeek-V3, §2.2; GLM 4.5 has it, too), as a draft head. Position i takes
// the target's hidden state h at i and the embedding e of the token at i+1:
//
//	x = eh_proj [enorm(e), hnorm(h)]
//	x = layer(x)                       // as the model's last one
//	y = shared_head.norm(x)
//	logits = LM head of y              // the target's, unless the module has one of other values
//
// h is the target's hidden state after its final norm, and a drafted node takes the y of its parent in
// its place, as SGLang runs it: both are after a norm.
func (s *Spec) MTPFor() (*Spec, error) {
	last, name := s.Layers-1, s.mtpName()
	if s.Draft || s.LayerNorm || s.Parallel || s.EmbedScale != 0 || s.Delta.Layers != nil {
		return nil, fmt.Errorf("models of the architecture %s have no multi-token prediction modules that are known", s.Arch)
	}
	d := *s
	d.Layers, d.Draft, d.MTP, d.Tied, d.FCBias = 1, true, true, false, false
	if s.Windows != nil {
		d.Windows = s.Windows[last:]
	}
	if s.Unrotated != nil {
		d.Unrotated = s.Unrotated[last:]
	}
	if d.Mixture.Dense = nil; !s.Mixture.Sparse(last) {
		d.Mixture = Mixture{}
	}
	d.Terms = []Term{
		{Role: Embed, Name: name + ".embed_tokens", Rows: vocabSize, Cols: HiddenSize, Optional: true},
		{Role: EmbedNorm, Name: name + ".enorm", Rows: HiddenSize},
		{Role: StateNorm, Name: name + ".hnorm", Rows: HiddenSize},
		{Role: FC, Name: name + ".eh_proj", Rows: HiddenSize, Cols: twoHidden},
	}
	for _, t := range s.Terms {
		if t.perLayer() && t.in(last) && (t.In == anyLayer || (t.In == sparseLayer) == s.Mixture.Sparse(last)) {
			t.Name, t.From, t.Until = strings.Replace(t.Name, "%d", strconv.Itoa(s.Layers), 1), 0, 1
			d.Terms = append(d.Terms, t)
		}
	}
	d.Terms = append(
		d.Terms,
		Term{Role: FinalNorm, Name: name + ".shared_head.norm", Rows: HiddenSize},
		Term{Role: LMHead, Name: name + ".shared_head.head", Rows: vocabSize, Cols: HiddenSize, Optional: true},
	)
	return &d, d.Validate()
}
