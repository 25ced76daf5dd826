// Package arch maps the configurations and tensor names of published
// architectures to one Spec.
package arch

// A Spec is what a forward pass needs to know of a model.
type Spec struct {
	Arch     string // as in the table: "llama"
	Vocab    int
	Hidden   int
	Layers   int
	Heads    int
	KVHeads  int
	HeadDim  int
	FFN      int
	MaxPos   int
	NormEps  float32
	Tied     bool // LM head is the embedding
	AttnBias bool
	MLPBias  bool
	BOS      int32   // -1: none
	EOS      []int32 // config.json and generation_config.json
	Draft    bool    // a draft head: fc over [embedding; feature], no input norm in layer 0, no final norm
	FCBias   bool
}
