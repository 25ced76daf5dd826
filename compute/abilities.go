package compute

import "context"

// Abilities are what a queue can do beyond Queue. A nil field is an ability that it
// lacks.
//
// They are fields rather than interfaces to assert, so that a queue that wraps another
// hands each one on by a decision: wrapped, passed through or withheld.
// computetest.Decorates holds it to these decisions.
type Abilities struct {
	Peaks  Peaker
	Replay Replayer
	Choose Chooser
	Draw   Drawer
	Bulk   Bulker
	BF16   BF16Reader
	Train  TrainOps
	Block  BlockOps // with Train
	Remote Remote   // with Train, on a device with memory of its own
	Stash  Stasher
	Check  Checker
	Cancel Canceler
	// Variants also says that Attend knows the fields of Attention below Window, and Linear the
	// activations GELUTanh and ClampedSwiGLU.
	Variants Varier
	// Latent also says that there are stores with KVConfig.Latent.
	Latent Absorber
	Recur  Recurrer
}

// Until is Cancel's, or nothing if the queue lacks that.
func (a *Abilities) Until(ctx context.Context) {
	if a.Cancel != nil {
		a.Cancel.Until(ctx)
	}
}

// A Varier has the operations of models whose layers do more than Llama's.
type Varier interface {
	// AddScaled adds scale·norm(x) to dst, for n rows; a nil norm changes nothing.
	AddScaled(dst, x Buffer, norm *Norm, scale float32, n int)
	// ScaleCap multiplies the rows of x [n][W] by scale and then, unless limit is 0, sets each
	// element e to limit·tanh(e/limit). If peaks is not nil, it writes the largest of every
	// PeakLen elements of a row there, as LinearPeaks does.
	ScaleCap(x, peaks Buffer, scale, limit float32, n int)
	// ScatterAdd adds weights[i]·src[i] to row rows[i] of dst, in order; rows of one call differ.
	ScatterAdd(dst, src Buffer, rows []int32, weights []float32)
	// NormColumns normalises columns [col, col+len(norm.Weight)) of the rows of x in place.
	NormColumns(x Buffer, col int, norm *Norm, n int)
}

// An Absorber has the operations of multi-head latent attention whose up-projections are absorbed into queries and
// outputs (DeepSeek-AI 2024, DeepSeek-V2, §2.1.2).
type Absorber interface {
	// LinearHeads computes dst = x·w[h]ᵀ for n rows of the columns of every head h. The weights are
	// F32 or BF16. Every output is one chain over ascending k, as Linear's with F32 are.
	LinearHeads(dst, x Columns, w []Weight, n int)
	// CopyHeads copies n rows of width columns of every head.
	CopyHeads(dst, x Columns, heads, width, n int)
}

// Columns are equal parts of the rows of a buffer: those of head h begin at column Col + h·Step.
type Columns struct {
	Buf       Buffer
	Col, Step int
}

// A Canceler ends operations whose results nobody needs any more.
type Canceler interface {
	// Until says that what is queued from now on is not needed once ctx has ended. An operation may then end between two
	// pieces of its work and leave what it writes, wholly or in part, as it was; so may those after it. Sync with ctx says
	// so: it fails. A context that never ends undoes it: operations run to their end.
	Until(ctx context.Context)
}

// A Checker looks at logits where they are.
type Checker interface {
	// CheckRows sets ok[r], for rows [0,n) of logits [rows][V], to whether a token can be
	// chosen from row r: no element is NaN or +Inf, and at least one is finite. ok is valid when
	// it returns.
	CheckRows(ok []bool, logits Buffer, n int)
}

// DeviceAbilities are what a device can do beyond Device. A nil field is an ability
// that it lacks.
type DeviceAbilities struct {
	Plan    Planner // of memory that is reserved when a model is loaded
	Account Planner // of memory that is shared with others and taken as needed
	Release Releaser
	// Rounding names what products with weights of a type round the other operand to,
	// such as "int16", where that depends on more than Device.Arithmetic: on how the
	// device was opened, or on the class of processor. It decides bits of results.
	Rounding func(weights DType) string
	Training LibraryTrainer
	Join     Joiner
	// Keeps reports whether weights packed as Q4 or Stored keep blocks of a kind; nil: there are no such weights.
	Keeps func(Kept) bool
	// Stored says that there are weights packed as Stored.
	Stored bool
	// Table returns a weight for Embed alone, whose rows it reads from m.Data when they are asked for: Data must stay as
	// long as the weight. Rows have the bits that they have in F32. nil: there are none such.
	Table func(m Matrix) (Weight, error)
}

// A Joiner sums buffers of several devices without the host's memory.
type Joiner interface {
	// Join connects devices of one kind, each of another ordinal.
	Join(devices []Device) (Sums, error)
}

// Sums are devices that were joined.
type Sums interface {
	// By names what sums, such as "NCCL 2.27.3". With the number of devices it decides last bits; the sum of two has
	// those of any other way to add them.
	By() string
	// Sum replaces F32 buffers bufs[d][i] of every device d by their sum, for every i, and waits until that is done.
	// Whoever wrote them has been waited for. If a device fails or ctx ends long before the sums are done, an error
	// says so: buffers are lost then, and nothing is summed any more, but other devices can be used.
	Sum(ctx context.Context, bufs [][]Buffer) error
	Close() error
}

// A LibraryTrainer may have been opened so that a library computes products of its TrainOps.
type LibraryTrainer interface {
	// TrainsWith names the library, such as "cuBLAS 12.8.4 on 132 multiprocessors", which decides last bits of what is
	// trained; "" is the device itself, and the error then says why.
	TrainsWith() (by string, why error)
}

// A Releaser gives memory of a KV store back to the system. The store keeps its size.
type Releaser interface {
	// Chunk returns the number of consecutive blocks whose memory is given back together.
	Chunk(kv KV) int
	// Release gives the memory of blocks [chunk·Chunk, (chunk+1)·Chunk) back and loses what they
	// hold. They may be used again at once and take memory when they are.
	Release(kv KV, chunk int)
}

// A Planner says how much of a device's limited memory things take, before they take
// it. Sizes are in bytes.
type Planner interface {
	WeightBytes(as DType, kept Kept, out, in int) int64 // of a weight from Pack, not as Stored; kept are the blocks that Q4 packs
	KVBytes(c KVConfig, blocks int) int64               // of a store grown to so many blocks
	// WorkBytes is the most that a queue takes for itself in passes of the given number
	// of rows over so many positions. width is the largest number of inputs or outputs
	// of any product.
	WorkBytes(c KVConfig, heads, width, rows, positions int) int64
	Free() (int64, error) // memory that can be allocated now
}

// PeakLen is the number of consecutive outputs of a row that share a peak, which is
// the largest of them.
const PeakLen = 32

// A Peaker notes the peaks of a product while it computes it. They let it find the
// largest elements of a row without reading all of the row again.
type Peaker interface {
	// LinearPeaks is Linear with Store. It also writes each row's peaks
	// [n][⌈Out/PeakLen⌉].
	LinearPeaks(dst, peaks, x Buffer, l *Linear, n int)
	// TopPeaks is TopK of rows [row,row+n) of logits, given the peaks of all rows. The
	// results are the same. A nil logp asks for the ids alone.
	TopPeaks(ids, logp, logits, peaks Buffer, row, k, n int)
}

// A Replayer is a queue to a device for which round trips are expensive: it batches
// what a pass asks for.
type Replayer interface {
	// Pass says that what follows, up to the next Sync or Read, is one pass of at most
	// rows rows. None of it need run before then. Everything that it uses must stay
	// unchanged, except slices, which are copied at every call. Passes that differ only
	// in their rows, tokens and steps may be replayed.
	Pass(rows int)
	// ReadTopK is TopK to the host: ids [n][k] and logp [n][k] are valid after the next
	// Sync, unless that fails.
	ReadTopK(ids []int32, logp []float32, logits Buffer, k, n int)
}

// A Chooser is a Replayer that chooses nodes of a draft tree in the middle of a pass, so that several
// levels of it need no wait between them.
type Chooser interface {
	// Choose fills c after the ReadTopK of the pass that reads c.IDs and c.LogProb, or those of earlier
	// passes. It reports false, and does nothing, if that is impossible in this pass or there are more
	// than MostCandidates.
	//
	// What it fills is on the host after the next Sync, unless that fails. Before then the slices may be
	// given to the same pass: Tokens to Embed, Rows to Gather, Anc as Span.Late, and Score and Anc to the
	// next Choose. These operations then use what will have been chosen.
	Choose(c *Choice) bool
}

// MostCandidates is the largest number of candidates of a Choice.
const MostCandidates = 1024

// A Choice takes the best M of the K likeliest tokens after each of N nodes of a draft tree by score:
// the float64 sum of the node's own and of the log-probability, or of 0 if that is positive. Equal
// scores go to the lower node, then to the more likely token. Tokens without probability, or whose
// probability is NaN, are no candidates; what is filled beyond the others is a candidate whose score is −Inf.
type Choice struct {
	N, K, M int
	IDs     []int32   // [N][K]
	LogProb []float32 // [N][K]
	Score   []float64 // [N]
	Anc     []uint64  // [N][Stride] ancestor bits of the nodes
	Stride  int
	Row     int // of the first of the nodes, among hidden states
	Node    int // number of the first node that is chosen

	Best Chosen // slices of the caller's
}

// Chosen are the nodes of a Choice, best first.
type Chosen struct {
	Tokens []int32   // [M]
	Rows   []int32   // [M] Choice.Row plus the index of the parent
	Score  []float64 // [M]
	Anc    []uint64  // [M][Stride]
}

// A Drawer is a Replayer that draws tokens from logits in the pass that computes them.
type Drawer interface {
	// Draw sets tokens[r], for rows [0,n) of logits [rows][V], to the token that draws[r] asks for, or to -1 if it
	// asks for none. It reports false, and does nothing, if that is impossible in this pass.
	//
	// With the largest logit of a row, NaN aside, as m, token i has the weight e^((logits[i]−m)·By) in float64, or 0
	// for NaN. If m is infinite, the tokens that have it share the mass, and a row without a number has it all at token
	// 0. The token is the first one, by ascending id, with more than U of the row's mass up to and with it. Weights and
	// sums have the bits of the host's (package model/sample), so that it does not matter which of both draws.
	//
	// tokens are on the host after the next Sync, unless that fails. Before then the slice may be given to Embed in the
	// same pass, if every row asks for a token.
	Draw(tokens []int32, logits Buffer, draws []Draw, n int) bool
}

// A Draw asks for a token at a quantile of the distribution after a row of logits.
type Draw struct {
	By float64 // 1/temperature; 0 asks for no token
	U  float64 // quantile, 0 ≤ U < 1
}

// A Bulker has products for passes of many rows that are faster than Linear's but do
// not keep its promise: a row's bits may depend on the rows beside it. Labelling may
// use them, decoding must not.
type Bulker interface {
	// Bulk allows or forbids such products in what is queued from then on. They are
	// forbidden at first. It returns what computes them, or why nothing does.
	Bulk(on bool) (by string, err error)
}

// A BF16Reader reads rows rounded to bfloat16, which is half of what Read copies.
type BF16Reader interface {
	// ReadBF16 waits for src's producers and copies elements [off, off+len(dst)/2) of
	// src, an F32 buffer, to dst, rounded to nearest even, little endian.
	ReadBF16(dst []byte, src Buffer, off int)
}
