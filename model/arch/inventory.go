package arch

import (
	"fmt"
	"slices"
	"strings"
)

// A Role says what the network does with a tensor.
type Role string

// The roles, in the order of a forward pass. Matrices are [out][in].
const (
	Embed      Role = "embedding"
	TapsNorm   Role = "norm of the target's hidden states"        // of an EAGLE-3 head: of all that fc reads
	TapNorm    Role = "norm of one of the target's hidden states" // of an EAGLE-3 head: one for each tap
	FC         Role = "fc"                                        // of a draft head: joins embedding and hidden state, or hidden states
	InputNorm  Role = "input norm"
	FuseNorm   Role = "norm of the fused hidden state" // of an EAGLE-3 head, beside its embedding
	EmbedNorm  Role = "norm of the embedding"          // of a multi-token prediction module
	StateNorm  Role = "norm of the hidden state"       // beside it
	Q          Role = "query projection"
	K          Role = "key projection"
	V          Role = "value projection"
	QKV        Role = "fused query, key and value projection"   // rows [head][q, k, v][HeadDim]
	QKVRows    Role = "stacked query, key and value projection" // rows of all queries, then keys, then values
	QNorm      Role = "query norm"                              // of every head, or of all together, before rotation
	KNorm      Role = "key norm"
	Sinks      Role = "attention sinks" // a score for each head
	O          Role = "output projection"
	QDown      Role = "query down-projection" // of latent attention; see Latent
	QDownNorm  Role = "norm of compressed queries"
	QUp        Role = "query up-projection"           // rows [head][Nope, rotated]
	KVDown     Role = "key and value down-projection" // rows [KVRank, rotated]
	KVDownNorm Role = "norm of compressed keys and values"
	KVUp       Role = "key and value up-projection"   // rows [head][Nope, ValueDim]
	KeyUp      Role = "key up-projection, transposed" // its first part: [head][KVRank][Nope]
	ValueUp    Role = "value up-projection"           // and its second: [head][ValueDim][KVRank]
	QGated     Role = "query projection with gates"   // rows [head][query, gate of the output][HeadDim]
	DeltaIn    Role = "projection of recurrent heads" // rows [key head][query, key, values, output gates]
	DeltaQKV   Role = "projection of recurrent heads to queries, keys and values"
	DeltaZ     Role = "output gates of recurrent heads" // [values]
	DeltaGates Role = "gates of recurrent heads"        // rows [key head][steps, decays]
	DeltaConv  Role = "convolution"                     // stored as [channels][1][tokens]
	DeltaDecay Role = "logarithm of decays"
	DeltaRate  Role = "decays" // minus the exponentials of their logarithms
	DeltaStep  Role = "bias of decays"
	DeltaNorm  Role = "norm of recurrent heads" // without NormOffset
	DeltaOut   Role = "output projection of recurrent heads"
	PostNorm   Role = "post-attention norm" // of what the feed-forward network reads
	Gate       Role = "gate projection"
	Up         Role = "up projection"
	GateUp     Role = "stacked gate and up projection"
	Down       Role = "down projection"
	FinalNorm  Role = "final norm"

	Router       Role = "router" // [experts][Hidden]
	RouterOffset Role = "router's score correction"
	ExpertGate   Role = "gate projection of an expert"
	ExpertUp     Role = "up projection of an expert"
	ExpertDown   Role = "down projection of an expert"
	SharedGate   Role = "gate projection of the shared expert"
	SharedUp     Role = "up projection of the shared expert"
	SharedDown   Role = "down projection of the shared expert"
	SharedRouter Role = "gate of the shared expert" // [1][Hidden]

	AttnOutNorm Role = "norm of attention's output" // before it is added to the residual stream
	FFNOutNorm  Role = "norm of the feed-forward network's output"

	LMHead Role = "LM head"

	// Of block drafters; see Block.
	AttnConv       Role = "coefficients of attention's convolution"
	AttnConvBase   Role = "base of attention's convolution" // stored as [before, after][this row, the one before][Hidden]
	FFNConv        Role = "coefficients of the feed-forward network's convolution"
	FFNConvBase    Role = "base of the feed-forward network's convolution"
	MarkovIn       Role = "Markov head's embedding"
	MarkovGate     Role = "Markov head's gate"       // reads [hidden state, embedding]
	MarkovJoint    Role = "Markov head's recurrence" // reads [state, embedding, hidden state]
	MarkovOut      Role = "Markov head's logits"
	Confidence     Role = "confidence head" // reads [hidden state, embedding]
	SelectorHidden Role = "selector's projection of hidden states"
	SelectorBefore Role = "selector's embedding of the token before"
	SelectorAfter  Role = "selector's embedding of a candidate"

	RowMap Role = "map to a row of a block" // of a linear block drafter: one for each row
)

// A Size is a length that is derived from a Spec.
type Size uint8

// The sizes.
const (
	none      Size = iota // 0: the second size of a vector
	vocabSize             // Vocab
	HiddenSize
	twoHidden // 2·Hidden: an embedding and a hidden state
	querySize // Heads·HeadDim
	keySize   // KVHeads·HeadDim
	fusedSize // queries, keys and values: (Heads+2·KVHeads)·HeadDim
	HeadSize  // HeadDim
	headCount // Heads
	FFNSize   // FFN
	tapsSize  // elements of the target's hidden states that an EAGLE-3 head's fc reads
	tapSize   // elements of one of them
	twoFFN    // 2·FFN: a stacked gate and up projection
	expertCount
	expertSize // elements between the projections of an expert
	sharedSize // and of the shared one
	oneSize
	draftSize    // DraftVocab; Vocab if that is 0
	qRankSize    // Latent.QRank
	kvRankSize   // Latent.KVRank
	latentSize   // KVRank and the rotated elements of a key
	latentUpSize // keys without rotated elements, and values: Heads·(Nope+ValueDim)
	latentRows   // Heads·KVRank
	nopeSize     // Latent.Nope
	valuesSize   // Heads·ValueDim
	twoQuery     // 2·querySize
	deltaInSize  // Channels and values once more: their gates
	deltaGateSize
	deltaChannels
	deltaKernel
	deltaHeads
	deltaHeadSize
	deltaValues
	fourSize
	convSize // coefficients of a block drafter's convolution: 4·Hidden/Block.Group
	markovSize
	markovGateSize
	markovJointSize
	threeMarkov
	confidenceSize
	selectorSize
)

// A Flag is a condition that a Spec meets or does not.
type Flag uint8

// The flags.
const (
	no Flag = iota
	yes
	ifTied // the LM head is the embedding
	ifQKVBias
	ifOBias
	IfMLPBias
	ifFCBias
	ifNormBeforeFC
	ifFCNorm
	ifQKNorm
	ifTargetLMHead
	ifShared
	ifQKNorms // Spec.HeadNorms
	ifQRank   // Latent.QRank is not 0
	ifConv    // Block.Group is not 0
	ifMarkov
	ifGated
	ifRNN
	ifConfidence
	ifSelector
	ifOwnLMHead // Block.OwnLMHead
	ifLinear    // Block.Linear
)

// A Term is one line of a family's inventory: a tensor of the model, or one tensor per
// layer.
//
// A family's list of terms is the only place that names its tensors and their shapes.
// The loader, the memory plan, random weights, the training graphs, the reported sizes
// and the conversion of heads all go through Spec.Tensors, so adding a tensor of an
// existing role to a family takes one line. A new role needs a constant above and the
// code that computes with it; until that code exists, package model refuses to load a
// model with such a tensor. A new shape needs a Size, a new condition a Flag.
type Term struct {
	Role Role
	// Name is the tensor's name in files, without ".weight" and ".bias". The name of a
	// per-layer tensor has one %d for the layer's index, unless Until is 1.
	Name       string
	Rows, Cols Size
	Bias       Flag // whether there is also a bias [Rows]
	Unless     Flag // the model lacks the tensor if this is true
	Only       Flag // if not No: the model has the tensor only if this is true
	From       int  // first layer that has the tensor
	Until      int  // first layer after those that have it; 0: all have
	PerTap     bool // %d is the index of a tap of an EAGLE-3 head or a row of a block, of which there is one tensor each
	PerExpert  bool // the name has a second %d, for the expert's index
	In         Kind // kind of layers that have the tensor
	Bare       bool // Name is the whole name: ".weight" does not follow
	Optional   bool // files may omit it: a head takes its target's
}

// A Kind of layers.
type Kind uint8

// The kinds: all layers, those without experts and with them, those with attention and recurrent ones.
const (
	anyLayer Kind = iota
	denseLayer
	sparseLayer
	attentionLayer
	recurrentLayer
)

// A Tensor is one stored tensor of a model.
type Tensor struct {
	Name     string // in files, in full
	Role     Role
	Layer    int  // or the index of a tap; -1: not in a layer
	Expert   int  // of roles that each expert has
	Bias     bool // a bias, not a weight
	Rows     int
	Cols     int  // 0: a vector [Rows]
	Optional bool // files may omit it: a head takes its target's
}

// Shape returns the tensor's shape.
func (t Tensor) Shape() []int {
	switch {
	case t.Cols == 0:
		return []int{t.Rows}
	case t.Role == DeltaConv:
		return []int{t.Rows, 1, t.Cols}
	case t.Role == AttnConvBase || t.Role == FFNConvBase:
		return []int{2, t.Rows / 2, t.Cols}
	}
	return []int{t.Rows, t.Cols}
}

// Len returns the number of elements.
func (t Tensor) Len() int { return t.Rows * max(t.Cols, 1) }

// after returns terms with more terms inserted after that of a role.
func after(terms []Term, role Role, more ...Term) []Term {
	i := slices.IndexFunc(terms, func(t Term) bool { return t.Role == role })
	return slices.Concat(terms[:i+1], more, terms[i+1:])
}

// without returns terms but those of a role.
func without(terms []Term, role Role) []Term {
	return slices.DeleteFunc(slices.Clone(terms), func(t Term) bool { return t.Role == role })
}

func (t *Term) perLayer() bool { return t.Until > 0 || !t.PerTap && strings.Contains(t.Name, "%d") }

func (t *Term) name(layer, expert int) string {
	switch {
	case t.PerExpert && t.Until == 1:
		return fmt.Sprintf(t.Name, expert)
	case t.PerExpert:
		return fmt.Sprintf(t.Name, layer, expert)
	}
	if strings.Contains(t.Name, "%d") {
		return fmt.Sprintf(t.Name, layer)
	}
	return t.Name
}

func (s *Spec) size(of Size) int {
	switch of {
	case vocabSize:
		return s.Vocab
	case HiddenSize:
		return s.Hidden
	case twoHidden:
		return 2 * s.Hidden
	case querySize:
		return s.Heads * s.HeadDim
	case keySize:
		return s.KVHeads * s.HeadDim
	case fusedSize:
		return (s.Heads + 2*s.KVHeads) * s.HeadDim
	case HeadSize:
		return s.HeadDim
	case headCount:
		return s.Heads
	case FFNSize:
		return s.FFN
	case twoFFN:
		return 2 * s.FFN
	case expertCount:
		return s.Mixture.Experts
	case expertSize:
		return s.Mixture.FFN
	case sharedSize:
		return s.Mixture.Shared
	case oneSize:
		return 1
	case qRankSize:
		return s.Latent.QRank
	case kvRankSize:
		return s.Latent.KVRank
	case latentSize:
		return s.Latent.KVRank + s.RotDim
	case latentUpSize:
		return s.Heads * (s.Latent.Nope + s.Latent.ValueDim)
	case latentRows:
		return s.Heads * s.Latent.KVRank
	case nopeSize:
		return s.Latent.Nope
	case valuesSize:
		return s.Heads * s.Latent.ValueDim
	case twoQuery:
		return 2 * s.Heads * s.HeadDim
	case deltaInSize:
		return s.Delta.Shape().Channels() + s.Delta.ValueHeads*s.Delta.ValueDim
	case deltaGateSize:
		return 2 * s.Delta.ValueHeads
	case deltaChannels:
		return s.Delta.Shape().Channels()
	case deltaKernel:
		return s.Delta.Kernel
	case deltaHeads:
		return s.Delta.ValueHeads
	case deltaHeadSize:
		return s.Delta.ValueDim
	case deltaValues:
		return s.Delta.ValueHeads * s.Delta.ValueDim
	case tapsSize:
		return s.FeatureSize()
	case tapSize:
		return s.TargetHidden()
	case draftSize:
		if s.DraftVocab != 0 {
			return s.DraftVocab
		}
		return s.Vocab
	}
	return s.Block.size(s, of)
}

func (s *Spec) holds(f Flag) bool {
	switch f {
	case yes:
		return true
	case ifTied:
		return s.Tied
	case ifQKVBias:
		return s.QKVBias
	case ifOBias:
		return s.OBias
	case IfMLPBias:
		return s.MLPBias
	case ifFCBias:
		return s.FCBias
	case ifNormBeforeFC:
		return s.Eagle3.NormBeforeFC
	case ifFCNorm:
		return s.Eagle3.FCNorm
	case ifQKNorm:
		return s.Eagle3.QKNorm
	case ifTargetLMHead:
		return s.Eagle3.TargetLMHead
	case ifShared:
		return s.Mixture.Shared > 0
	case ifQKNorms:
		return s.HeadNorms
	case ifQRank:
		return s.Latent.QRank > 0
	case ifConv:
		return s.Block.Group > 0
	case ifMarkov:
		return s.Block.Markov != ""
	case ifGated:
		return s.Block.Markov == GatedMarkov
	case ifRNN:
		return s.Block.Markov == RNNMarkov
	case ifConfidence:
		return s.Block.Confidence
	case ifSelector:
		return s.Block.SelectorRank > 0
	case ifOwnLMHead:
		return s.Block.OwnLMHead
	case ifLinear:
		return s.Block.Linear
	}
	return false
}

// Tensors lists the model's tensors in the order of the forward pass: each
// layer's together, a bias after its weight.
func (s *Spec) Tensors() []Tensor {
	var out []Tensor
	add := func(t *Term, layer int) {
		if s.holds(t.Unless) || t.Only != no && !s.holds(t.Only) {
			return
		}
		if layer >= 0 && !t.in(layer) {
			return
		}
		if !s.isA(layer, t.In) {
			return
		}
		experts := 1
		if t.PerExpert {
			experts = s.Mixture.Experts
		}
		for e := range experts {
			x := Tensor{
				Name: t.name(layer, e) + ".weight", Role: t.Role, Layer: layer, Expert: e,
				Rows: s.size(t.Rows), Cols: s.size(t.Cols), Optional: t.Optional,
			}
			if t.Bare {
				x.Name = t.name(layer, e)
			}
			if out = append(out, x); s.holds(t.Bias) {
				x.Name, x.Bias, x.Cols = t.name(layer, e)+".bias", true, 0
				out = append(out, x)
			}
		}
	}
	for i := 0; i < len(s.Terms); {
		end := i
		for end < len(s.Terms) && s.Terms[end].perLayer() {
			end++
		}
		for layer := range s.Layers {
			for j := i; j < end; j++ {
				add(&s.Terms[j], layer)
			}
		}
		if i = end; i == len(s.Terms) {
			break
		}
		if t := &s.Terms[i]; t.PerTap {
			n := s.Eagle3.Count()
			if s.Block.On {
				n = s.Block.Size
			}
			for tap := range n {
				add(t, tap)
			}
		} else {
			add(t, -1)
		}
		i++
	}
	return out
}

// Params returns the number of the model's parameters, without tensors that files may
// omit. For a draft head these are the trained parameters.
func (s *Spec) Params() int {
	n := 0
	for _, t := range s.Tensors() {
		if !t.Optional {
			n += t.Len()
		}
	}
	return n
}

// isA reports whether a layer is of a kind.
func (s *Spec) isA(layer int, k Kind) bool {
	switch k {
	case denseLayer, sparseLayer:
		return s.Mixture.Sparse(layer) == (k == sparseLayer)
	case attentionLayer, recurrentLayer:
		return s.Delta.On(layer) == (k == recurrentLayer)
	}
	return true
}

// in reports whether layers of the given index have the tensor.
func (t *Term) in(layer int) bool { return layer >= t.From && (t.Until == 0 || layer < t.Until) }

// term returns the first term of a role that a layer has, or the first of all if none does.
func (s *Spec) term(role Role, layer int) (first *Term) {
	for i := range s.Terms {
		t := &s.Terms[i]
		if t.Role != role {
			continue
		}
		if !t.perLayer() || t.in(layer) {
			return t
		}
		if first == nil {
			first = t
		}
	}
	return first
}

// Has reports whether the model's family has tensors of a role.
func (s *Spec) Has(role Role) bool { return s.term(role, 0) != nil }

// Weight returns the name of the weight with the given role in a layer; the layer
// matters only for roles that each layer has. It is "" if the family has no such role.
// It does not say whether this model or layer has the tensor.
func (s *Spec) Weight(role Role, layer int) string { return s.named(role, layer, ".weight") }

// Bias is Weight for biases.
func (s *Spec) Bias(role Role, layer int) string { return s.named(role, layer, ".bias") }

func (s *Spec) named(role Role, layer int, suffix string) string {
	t := s.term(role, layer)
	if t == nil {
		return ""
	}
	return t.name(layer, 0) + suffix
}
