package arch

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Block is what a block drafter adds to a Spec: DFlash (z-lab), DFlash 2, DSpark (deepseek-ai) or
// JetSpec (hao-ai-lab). With an anchor, the newest token x at position a, it predicts the tokens after it in
// one pass over Size rows, of which row k is at position a+k:
//
//	g_i = HiddenNorm(fc(states of the target at Taps, side by side))   // of each position i < a
//	rows = embeddings of [x, Mask, Mask, …]
//
// through layers of Qwen 3's shape, of which keys and values are those of [g_0 … g_{a−1}; rows]: g enters
// every layer without its InputNorm. With Group, attention and feed-forward network are each between two
// convolutions (DFlash 2). Row k then has h_k, after FinalNorm, and U_k = LMHead(h_k), the logits of the token
// at position a+k, or with Shift at a+k+1. Embedding and LM head are the target's unless OwnLMHead.
//
// Given the token before it, with embedding e in W1, logits become U_k + W2·e' (DSpark), where e' is
//
//	vanilla:  e
//	gated:    σ(gate_proj [h_k; e]) ⊙ e
//	rnn:      tanh o, with [g, c, o] = joint_proj [s; e; h_k] and s ← σ(g)⊙s + (1−σ(g))⊙tanh c from s = 0
//
// or, of the Top likeliest tokens alone, U_k(b) + ⟨A[token], P·h_k ⊙ C[b]⟩ (DFlash 2's selector).
//
// A Linear block has no layers, no mask and no final norm: h_k = R_k·[embedding of x; g_{a−1}]. The state of such a
// head is the last g alone, and the best linear prediction of what the target computes is one of them. It is talf's own.
type Block struct {
	On   bool `config:"block,omitzero"`
	Size int  `config:"block_size,omitzero"`
	// Taps are the boundaries of the target's layers at which fc reads the residual stream, in the order
	// of its columns: boundary j is the input of layer j, so boundary 0 is the embedding.
	Taps  []int `config:"target_layers,omitzero"`
	Mask  int32 `config:"mask_token_id,omitzero"`
	Shift bool  `config:"sample_from_anchor,omitzero"`
	// Linear heads have Shift, a row of their own for each token that they predict.
	Linear bool `config:"linear_rows,omitzero"`
	// Causal are the layers in which a row sees only the rows of its block up to itself; nil: none.
	//
	// In other layers it sees the whole block. A window, Spec.Windows, then bounds the context alone,
	// for all rows by the distance from the anchor.
	Causal []bool `config:"block_causal,omitzero"`

	Markov Markov `config:"markov_head_type,omitzero"`
	Rank   int    `config:"markov_rank,omitzero"` // elements of e
	// Confidence says that there is an estimate of the probability that the token of row k is accepted if
	// those before it were: σ(proj [h_k; e]), without e unless ConfidenceMarkov.
	Confidence       bool `config:"enable_confidence_head,omitzero"`
	ConfidenceMarkov bool `config:"confidence_head_with_markov,omitzero"`

	Group        int `config:"conv_group_size,omitzero"` // channels that share coefficients of a convolution; 0: there is none
	SelectorRank int `config:"selector_rank,omitzero"`   // 0: no selector
	SelectorTop  int `config:"selector_top_k,omitzero"`

	OwnLMHead bool `config:"own_lm_head,omitzero"` // over DraftVocab tokens
}

// A Markov says how a block's logits depend on the tokens before; "": they do not.
type Markov string

// The Markov heads.
const (
	VanillaMarkov Markov = "vanilla"
	GatedMarkov   Markov = "gated"
	RNNMarkov     Markov = "rnn"
)

// mostBlock bounds the rows of a block, and mostTaps the layers of the target that it reads: published heads have 16 and 5.
const mostBlock, mostTaps = 64, 256

// Family names the family of which the network is, or of which it has most.
func (b *Block) Family() string {
	switch {
	case b.Linear:
		return "linear"
	case b.Shift || b.Markov != "" || b.Confidence:
		return "DSpark"
	case b.Group > 0 || b.SelectorRank > 0:
		return "DFlash 2"
	case b.Causal != nil && !slices.Contains(b.Causal, false):
		return "JetSpec"
	}
	return "DFlash"
}

// Drafts returns the number of tokens that a block predicts.
func (b *Block) Drafts() int { return b.Size - b.Row(0) }

// Row returns the row that predicts the token after one at a depth, that of the anchor being 0.
func (b *Block) Row(depth int) int {
	if b.Shift {
		return depth
	}
	return depth + 1
}

// Chained reports whether logits depend on the token before.
func (b *Block) Chained() bool { return b.Markov != "" || b.SelectorRank > 0 }

// CausalIn reports whether rows of a layer see only those up to themselves.
func (b *Block) CausalIn(layer int) bool { return b.Causal != nil && b.Causal[layer] }

// DefaultBlockTaps returns the boundaries that DFlash reads if its configuration names none (z-lab's
// build_target_layer_ids), for a target of n layers and a head of some.
func DefaultBlockTaps(n, layers int) ([]int, error) {
	if n < 5 && layers > 1 || n < 2 {
		return nil, fmt.Errorf("the target has %d layers, want at least 5 for the default taps of %d draft layers: name the taps", n, layers)
	}
	if layers == 1 {
		return []int{n/2 + 1}, nil
	}
	taps := make([]int, layers)
	for i := range taps {
		taps[i] = 2 + roundHalfEven(i*(n-4), layers-1)
	}
	return taps, nil
}

// roundHalfEven returns p/q rounded as Python does.
func roundHalfEven(p, q int) int {
	n, rest := p/q, p%q
	if 2*rest > q || 2*rest == q && n%2 == 1 {
		n++
	}
	return n
}

// tapsOf returns the taps, if target has them.
func (b *Block) tapsOf(target *Spec) ([]int, error) {
	last := target.Layers - 1
	if b.Linear { // which no other loader reads
		last++
	}
	for _, tap := range b.Taps {
		if tap > last {
			if b.Linear {
				return nil, fmt.Errorf("the head reads the input of the target's layer %d, want at most %d, the output of its last (target_layer_ids)", tap, last)
			}
			return nil, fmt.Errorf("the head reads the output of the target's layer %d, want layers before its last, %d (target_layer_ids)", tap-1, target.Layers-1)
		}
	}
	return slices.Clone(b.Taps), nil
}

func (b *Block) validate(s *Spec) error {
	switch {
	case !b.On:
		return nil
	case !s.Draft:
		return errors.New("fields of a block drafter are set, but this is not a draft head")
	case b.Size < 1 || b.Size > mostBlock || b.Drafts() < 1:
		return fmt.Errorf("block_size is %d, want at most %d rows and one that predicts", b.Size, mostBlock)
	case len(b.Taps) == 0 || len(b.Taps) > min(mostTaps, maxDim/s.Hidden):
		return fmt.Errorf("target_layer_ids has %d entries, want 1 to %d and at most %d elements in all", len(b.Taps), mostTaps, maxDim)
	case b.Linear != (s.Layers == 0):
		return fmt.Errorf("num_hidden_layers is %d and linear_rows is %t, want layers or linear rows", s.Layers, b.Linear)
	case b.Linear && (!b.Shift || b.Group > 0 || b.SelectorRank > 0):
		return errors.New("linear_rows is true, want rows that predict the next token (sample_from_anchor), without convolutions and selector")
	case b.Mask < 0 || int(b.Mask) >= s.Vocab:
		return fmt.Errorf("mask_token_id is %d, want a token below vocab_size, %d", b.Mask, s.Vocab)
	case b.Causal != nil && len(b.Causal) != s.Layers:
		return fmt.Errorf("%d layers are causal or not, want one entry for each of num_hidden_layers = %d", len(b.Causal), s.Layers)
	case s.DraftVocab > 0 && b.SelectorRank > 0:
		return fmt.Errorf("draft_vocab_size is %d, want all %d tokens with a selector", s.DraftVocab, s.Vocab)
	}
	for i, tap := range b.Taps {
		if tap < 0 || tap > maxLayers || slices.Contains(b.Taps[:i], tap) {
			return fmt.Errorf("target_layer_ids read the target at the inputs of layers %v, want different numbers from 0 to %d", b.Taps, maxLayers)
		}
	}
	switch b.Markov {
	case "", VanillaMarkov, GatedMarkov, RNNMarkov:
	default:
		return fmt.Errorf("markov_head_type is %.100q, want vanilla, gated or rnn", string(b.Markov))
	}
	switch {
	case b.Rank < 0 || b.Rank > maxDim || (b.Rank > 0) != (b.Markov != ""):
		return fmt.Errorf("markov_rank is %d for markov_head_type %q, want both or neither", b.Rank, string(b.Markov))
	case b.ConfidenceMarkov && (b.Rank == 0 || !b.Confidence):
		return errors.New("confidence_head_with_markov is true, want a confidence head and a markov_rank")
	case b.Group < 0 || b.Group > 0 && s.Hidden%b.Group != 0:
		return fmt.Errorf("conv_group_size is %d, want a divisor of hidden_size, %d", b.Group, s.Hidden)
	case b.SelectorRank < 0 || b.SelectorRank > maxDim || b.SelectorRank > 0 && b.Markov != "":
		return fmt.Errorf("selector_rank is %d with markov_head_type %q, want one of them", b.SelectorRank, string(b.Markov))
	case b.Confidence && b.SelectorRank > 0:
		return errors.New("enable_confidence_head is true, want none with a selector")
	case (b.SelectorTop > 0) != (b.SelectorRank > 0) || b.SelectorTop < 0 || b.SelectorTop > s.Vocab:
		return fmt.Errorf("selector_top_k is %d with selector_rank %d, want up to %d tokens", b.SelectorTop, b.SelectorRank, s.Vocab)
	}
	return nil
}

// blockTerms are the tensors of a block drafter as the families name them.
var blockTerms = func() []Term {
	const markov, selector = "markov_head.", "candidate_selector."
	terms := []Term{
		{Role: Embed, Name: "embed_tokens", Rows: vocabSize, Cols: HiddenSize, Optional: true},
		{Role: FC, Name: "fc", Rows: HiddenSize, Cols: tapsSize},
		{Role: FuseNorm, Name: "hidden_norm", Rows: HiddenSize},
	}
	for _, t := range qwen3Terms {
		if !t.perLayer() {
			continue
		}
		t.Name = strings.TrimPrefix(t.Name, "model.")
		if t.Role == InputNorm {
			terms = append(terms, t,
				Term{Role: AttnConv, Name: "layers.%d.attention_conv.kernel_projection", Rows: convSize, Cols: HiddenSize, Only: ifConv},
				Term{Role: AttnConvBase, Name: "layers.%d.attention_conv.base_kernel", Rows: fourSize, Cols: HiddenSize, Only: ifConv, Bare: true})
			continue
		}
		if terms = append(terms, t); t.Role == PostNorm {
			terms = append(terms,
				Term{Role: FFNConv, Name: "layers.%d.mlp_conv.kernel_projection", Rows: convSize, Cols: HiddenSize, Only: ifConv},
				Term{Role: FFNConvBase, Name: "layers.%d.mlp_conv.base_kernel", Rows: fourSize, Cols: HiddenSize, Only: ifConv, Bare: true})
		}
	}
	return append(terms,
		Term{Role: RowMap, Name: "rows.%d", Rows: HiddenSize, Cols: twoHidden, Only: ifLinear, PerTap: true},
		Term{Role: FinalNorm, Name: "norm", Rows: HiddenSize, Unless: ifLinear},
		Term{Role: LMHead, Name: "lm_head", Rows: draftSize, Cols: HiddenSize, Only: ifOwnLMHead},
		Term{Role: MarkovIn, Name: markov + "markov_w1", Rows: vocabSize, Cols: markovSize, Only: ifMarkov},
		Term{Role: MarkovGate, Name: markov + "gate_proj", Rows: markovSize, Cols: markovGateSize, Only: ifGated, Bias: yes},
		Term{Role: MarkovJoint, Name: markov + "joint_proj", Rows: threeMarkov, Cols: markovJointSize, Only: ifRNN, Bias: yes},
		Term{Role: MarkovOut, Name: markov + "markov_w2", Rows: draftSize, Cols: markovSize, Only: ifMarkov},
		Term{Role: Confidence, Name: "confidence_head.proj", Rows: oneSize, Cols: confidenceSize, Only: ifConfidence, Bias: yes},
		Term{Role: SelectorHidden, Name: selector + "hidden_projection", Rows: selectorSize, Cols: HiddenSize, Only: ifSelector},
		Term{Role: SelectorBefore, Name: selector + "predecessor_codebook", Rows: vocabSize, Cols: selectorSize, Only: ifSelector, Bare: true},
		Term{Role: SelectorAfter, Name: selector + "successor_codebook", Rows: vocabSize, Cols: selectorSize, Only: ifSelector, Bare: true},
	)
}()

// size returns the sizes that only block drafters have.
func (b *Block) size(s *Spec, of Size) int {
	switch of {
	case fourSize:
		return 4
	case convSize:
		return 4 * s.Hidden / max(b.Group, 1)
	case markovSize:
		return b.Rank
	case markovGateSize:
		return s.Hidden + b.Rank
	case markovJointSize:
		return 2*b.Rank + s.Hidden
	case threeMarkov:
		return 3 * b.Rank
	case confidenceSize:
		if b.ConfidenceMarkov {
			return s.Hidden + b.Rank
		}
		return s.Hidden
	case selectorSize:
		return b.SelectorRank
	}
	return 0
}

// BlockFor returns the spec of a block drafter of some layers for a target of any architecture: Qwen 3's
// layer with the target's sizes and rope_theta, without rope scaling and biases. It predicts draftVocab of the
// target's tokens (0: all).
func (s *Spec) BlockFor(b Block, layers, draftVocab int) *Spec {
	d := s.DraftFor(false)
	d.Arch, d.Layers, d.DraftVocab, d.Terms = "qwen3", layers, draftVocab, blockTerms
	b.On, b.Taps, b.Causal = true, slices.Clone(b.Taps), slices.Clone(b.Causal)
	d.Block = b
	return d
}
