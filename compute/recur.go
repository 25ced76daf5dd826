package compute

// A Recurrer has the operations of layers with the gated delta rule (Yang et al. 2024, Gated Delta
// Networks, eq. 10), whose tokens read a state of fixed size in place of keys and values, and of
// attention with gates.
//
// The bits of a node are those of its path run one token at a time: its state is made from its
// parent's, one node after another, whatever passes they run in.
type Recurrer interface {
	// DeltaRule computes dst [n][ValueHeads·ValueDim] of layer layer for the rows of the forks, and writes
	// their inputs to the forks' logs. A row of x is what the convolution reads, Channels elements, and then
	// the gates of the output, ValueHeads·ValueDim; one of gates is the gates of the steps and then those of
	// the decays, ValueHeads each.
	DeltaRule(dst, x, gates Buffer, d *Delta, layer int, forks []Fork)
	// Advance sets dst to the state after the last of f's nodes, which are a chain, in all layers. dst may be
	// f.State. Without nodes it is copied.
	Advance(dst Buffer, layers []Delta, f *Fork)
	// GateSigmoid multiplies n rows of x by the sigmoids of gate.
	GateSigmoid(x, gate Buffer, n int)
}

// DeltaShape are the sizes of a layer with the gated delta rule. Value head h belongs to key head
// h/(ValueHeads/KeyHeads).
type DeltaShape struct {
	KeyHeads, ValueHeads, KeyDim, ValueDim int
	Kernel                                 int // tokens that the convolution sees, its own included
}

// Channels returns the elements of queries, keys and values, in this order, of all heads.
func (d DeltaShape) Channels() int { return 2*d.KeyHeads*d.KeyDim + d.ValueHeads*d.ValueDim }

// State returns the elements of a layer's state: [ValueHeads][KeyDim][ValueDim], then what the convolution
// sees of earlier tokens, [Kernel−1][Channels], the oldest first.
func (d DeltaShape) State() int {
	return d.ValueHeads*d.KeyDim*d.ValueDim + (d.Kernel-1)*d.Channels()
}

// Log returns the elements that are kept of a node in a layer, so that states can be made from them
// again: Channels, and 2·ValueHeads gates.
func (d DeltaShape) Log() int { return d.Channels() + 2*d.ValueHeads }

// A Delta is a layer with the gated delta rule. With q, k and v after the convolution and SiLU, q and k
// divided by √(Σx²+1e-6), and q by √KeyDim too, a value head computes
//
//	S ← exp(Decay·softplus(a + Step))·S
//	S ← S + k ⊗ σ(b)(v − Sᵀk)
//	out = norm(Sᵀq)·silu(z)
type Delta struct {
	DeltaShape
	Conv  Buffer // [Kernel][Channels], the token's own weights last
	Decay Buffer // [ValueHeads], negative
	Step  Buffer // [ValueHeads]
	Norm  *Norm  // [ValueDim]
}

// A Fork is the nodes of one tree over one sequence that a step needs the states of.
type Fork struct {
	State Buffer // before the tree: [layers][State]
	Log   Buffer // [nodes][layers·Log]: inputs of nodes
	Nodes []ForkNode
	Slots int // states that are there at one time
}

// A ForkNode is one node. Parents come first.
type ForkNode struct {
	Node     int32 // its row of the log
	Row      int32 // of the step; −1: it has run before, and only its state is needed
	Up       int32 // its parent's index in Nodes; −1: the state before the tree
	From, To int32 // slots of the parent's state, −1: that before the tree, and of its own, which may be the same
}
