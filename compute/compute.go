// Package compute is the contract between the models and the devices that run
// them: fused operations over resident buffers, never a general tensor.
//
// Every operation is batch-invariant: an output element is reduced in an order
// that depends only on the model and on the token's logical position, never on
// the number of rows, on the number of threads, or on where in memory a key or
// value lies. Speculative decoding is bit-identical to plain decoding because
// of it. computetest.Run holds a device to this.
//
// Shapes are dense and row-major. n is always the number of live rows: buffers
// are allocated for the largest pass and only their first n rows are touched.
// Wrong shapes and indices are caller bugs and panic; everything else surfaces
// at Queue.Sync.
package compute

import "context"

// A DType is the type of a buffer's or a stored matrix's elements.
type DType uint8

// The element types. F32 is what activations are kept in; F16 and BF16 occur
// as storage, and weights are packed as F32, BF16 or Q8: integers of 8 bits with
// a scale for every 32 of them.
const (
	F32 DType = iota
	F16
	BF16
	I32
	Q8
)

// Size returns the bytes of one element, 0 if elements do not stand alone.
func (t DType) Size() int {
	switch t {
	case F16, BF16:
		return 2
	case Q8:
		return 0
	}
	return 4
}

// String returns the safetensors spelling of t.
func (t DType) String() string {
	switch t {
	case F32:
		return "F32"
	case F16:
		return "F16"
	case BF16:
		return "BF16"
	case I32:
		return "I32"
	case Q8:
		return "Q8"
	}
	return "DType(?)"
}

// BlockLen is the number of positions in a KV block.
const BlockLen = 32

// A Buffer is memory of one device: [Shape...], dense, row-major.
type Buffer interface {
	DType() DType
	Shape() []int
}

// A Weight is a matrix [Out][In] in a device's own packing, for Linear and
// Embed. It is immutable and safe for concurrent use.
type Weight interface {
	Out() int
	In() int
	Bytes() int // memory that a product reads
}

// Q8Block is the number of consecutive elements of a row of Q8 that share a
// scale.
const Q8Block = 32

// A Matrix is a host matrix [Rows][Cols], row-major, as a checkpoint stores it.
// Data may be a memory mapping; a device does not keep it.
type Matrix struct {
	Rows, Cols int
	Type       DType
	Data       []byte // little endian; Q8: an int8 an element
	Scales     []byte // Q8: [Rows][⌈Cols/Q8Block⌉] float16
	// Done, unless nil, is told when bytes [lo,hi) of Data have been packed. It
	// is called from several goroutines at a time.
	Done func(lo, hi int)
}

// KVConfig is the shape of a KV store.
type KVConfig struct {
	Layers, KVHeads, HeadDim int
	Type                     DType // F32 or BF16, to which keys and values are rounded
}

// A KV holds keys and values in blocks of BlockLen positions. Slot s is offset
// s%BlockLen of block s/BlockLen, in every layer. The layout inside a block is
// the device's own.
type KV interface {
	Config() KVConfig
	Blocks() int           // blocks available
	Grow(blocks int) error // makes at least blocks available; contents stay
}

// A Device owns memory and runs operations. It is safe for concurrent use; a
// Queue is not.
type Device interface {
	// Name describes the device and the kernels that it chose.
	Name() string
	Alloc(t DType, shape ...int) (Buffer, error)
	// Pack stacks parts, which share Cols, into one weight [ΣRows][Cols] of F32,
	// BF16 or Q8.
	Pack(as DType, parts ...Matrix) (Weight, error)
	NewKV(c KVConfig) (KV, error)
	Queue() Queue
	Close() error
}

// A Planner is a Device of limited memory, which may be planned before it is taken.
type Planner interface {
	Device
	WeightBytes(as DType, out, in int) int64 // of Pack
	KVBytes(c KVConfig, blocks int) int64    // of a store grown to so many blocks
	// WorkBytes is what a queue takes for itself at most in passes of a number of
	// rows over so many positions: width is a product's most inputs or outputs.
	WorkBytes(c KVConfig, heads, width, rows, positions int) int64
	Free() (int64, error) // bytes that can be had now
}

// A Queue runs operations in call order, asynchronously where the device can.
type Queue interface {
	Ops
	// Write copies a host slice ([]float32 or []int32) to the start of dst.
	Write(dst Buffer, src any)
	// Read waits for src's producers and copies elements [off, off+len(dst))
	// of src to dst ([]float32 or []int32, or a pointer to one, which spares
	// the allocation of a slice in an interface).
	Read(dst any, src Buffer, off int)
	// Sync waits for everything queued and returns the first failure.
	Sync(ctx context.Context) error
}

// A Replayer is a Queue of a device that is far away: it takes one short
// conversation more willingly than many. A Queue that gains by it implements it.
type Replayer interface {
	// Pass says that what follows, up to the next Sync or Read, is one pass of at
	// most rows rows. Nothing of it need run before; what it uses must stay, slices
	// excepted, which are copied at every call. Passes that differ in their rows,
	// tokens and steps alone may be replayed.
	Pass(rows int)
	// ReadTopK is TopK to the host: ids [n][k] and logp [n][k] are there after the
	// next Sync, unless that fails.
	ReadTopK(ids []int32, logp []float32, logits Buffer, k, n int)
}

// An Epilogue says what Linear does with a product.
type Epilogue uint8

// Store overwrites the destination; Accumulate adds to it (residual streams).
const (
	Store Epilogue = iota
	Accumulate
)

// A Norm normalises rows: weight · x / √(mean(x²)+eps), or LayerNorm.
type Norm struct {
	Weight Buffer // [W]
	Bias   Buffer // [W] or nil: added at the end
	Eps    float32
	Center bool // LayerNorm: x less its mean takes the place of x
}

// An Activation is applied to a product before it is stored.
type Activation uint8

// The activations: SiLU is x/(1+exp(−x)), GELU is x·Φ(x).
const (
	Identity Activation = iota
	SiLU
	GELU
)

// A Linear is a product with what is fused to it:
// act(norm(x)·wᵀ + bias), and times norm(x)·upᵀ + upBias where Up is set.
// Every output is one chain over ascending k whose order and roundings depend
// on the weight's packing alone.
type Linear struct {
	Norm   *Norm // nil: x as it is
	W      Weight
	Bias   Buffer // [Out] or nil
	Act    Activation
	Up     Weight // of W's shape, or nil: a gated product
	UpBias Buffer // [Out] or nil
}

// Attention says how queries and keys are made from a projection.
type Attention struct {
	// Rope holds the angles of every position, RotDim of each head's first
	// elements being rotated by halves.
	Rope         Buffer // [positions][RotDim]
	RotDim       int
	QNorm, KNorm *Norm // of every head before the rotation, [headDim]; nil: none
	Window       int   // a row at position p sees positions beyond p−Window; 0: all
}

// Ops are the operations of a decoder's forward pass.
type Ops interface {
	// Embed sets dst[r][col:col+In] to row ids[r] of table.
	Embed(dst Buffer, col int, table Weight, ids []int32)
	// Gather sets dst[row+r][col:col+W] to src[rows[r]], W being src's row length.
	Gather(dst Buffer, row, col int, src Buffer, rows []int32)
	// Linear computes l over the rows of x [n][In] into dst [n][Out]. dst is not x.
	Linear(dst, x Buffer, l *Linear, epi Epilogue, n int)
	// Norm normalises the rows of x [n][W]. dst may be x.
	Norm(dst, x Buffer, norm *Norm, n int)
	// Attend takes qkv [n][(heads+2·kvHeads)·headDim], prepares queries and keys
	// in place as a says, writes keys and values to each row's slot of layer, and
	// computes dst [n][heads·headDim] over each row's prefix and own ancestors,
	// in logical order. Scores are scaled by 1/√headDim.
	Attend(dst, qkv Buffer, kv KV, layer int, a *Attention, s *Step)
	// SwiGLU computes dst [n][F] = silu(g)·u from gu [n][2F] = [g | u].
	SwiGLU(dst, gu Buffer, n int)
	// TopK writes the k largest of each row of logits [n][V], best first, ties
	// to the lower id: ids [n][k] I32 and logp [n][k], log-softmax values at
	// temperature 1.
	TopK(ids, logp, logits Buffer, k, n int)
	// MoveKV copies slot src[i] to slot dst[i] in every layer, in order.
	MoveKV(kv KV, dst, src []int32)
}

// PeakLen is how many outputs of a row share a peak, their largest.
const PeakLen = 32

// A Peaker is a queue that notes the peaks of a product while it makes it, by which
// it then finds the largest of a row without reading all of it again.
type Peaker interface {
	// LinearPeaks is Linear with Store, and writes each row's peaks
	// [n][⌈Out/PeakLen⌉].
	LinearPeaks(dst, peaks, x Buffer, l *Linear, n int)
	// TopPeaks is TopK of rows [row,row+n) of logits, given the peaks of all of them,
	// with the same results. A nil logp asks for the ids alone.
	TopPeaks(ids, logp, logits, peaks Buffer, row, k, n int)
}

// A Step describes the live rows of one pass. Slices are the caller's and must
// stay unchanged until Sync.
type Step struct {
	Rows  int
	Heads int
	Pos   []int32 // [Rows] rotary position, an index into rope
	Slot  []int32 // [Rows] slot that a row's key and value are written to
	Spans []Span  // consecutive rows, in order, covering [0,Rows)
}

// A Span is the rows of one tree over one sequence. Row Row+i is node From+i;
// nodes before From ran in an earlier pass and have their keys in place.
type Span struct {
	Row, N int
	Prefix int      // positions [0,Prefix) of the sequence are seen by all rows
	Blocks []int32  // KV blocks of the prefix, BlockLen positions each
	From   int      // first node that runs
	Own    []int32  // slot of every node [0,From+N)
	Anc    []uint64 // [From+N][Stride] ancestor bits, a node's own bit included
	Stride int
}

// Rope tables are Buffers [positions][RotDim]: row p is RotDim/2 cosines
// followed by RotDim/2 sines of p's angles, scaling applied.

// Mat is a matrix inside a buffer for Gemm: op(M) is [Rows][Cols]. T says that
// it is stored transposed, [Cols][Rows]. Element (i,j) of the stored matrix is
// Buf[Off + i·Stride + j].
type Mat struct {
	Buf        Buffer
	Off        int
	Rows, Cols int
	Stride     int
	T          bool
}

// TrainAttention is the geometry of tree attention in training. Queries of one
// level attend to the level-0 rows [First[r], Last[r]] (the true prefix of their
// own sequence) and then to one row of each deeper level, Anc[j][r] of level j+1.
// The own row is the last of these; on level 0 it is Last[r] and Anc is empty.
// Rows of one sequence are consecutive on every level.
type TrainAttention struct {
	Heads, KVHeads, HeadDim int
	First, Last             []int32   // [rows]
	Anc                     [][]int32 // [level][rows]
}

// SoftLabels are target distributions of rows: K most likely tokens, and the
// rest of the mass as one tail bucket. A row's IDs are distinct; negative ones
// pad it, with Prob 0.
type SoftLabels struct {
	K    int
	IDs  []int32   // [rows][K]
	Prob []float32 // [rows][K]
	Tail []float32 // [rows]; nil ignores the tail
	Full []float32 // [rows][V]: the whole distribution; IDs and Prob are unused
}

// AdamW are the constants of one update. Bias corrections use Step from 1.
type AdamW struct {
	LR, Beta1, Beta2, Eps, Decay float32
	Scale                        float32 // multiplies the gradient first: clipping
	Step                         int
}

// TrainOps are gradients and updates. A Queue that can train implements it.
// Gradients are overwritten unless a sentence says added. Every sum over rows
// runs in fixed blocks of rows, so results do not depend on the thread count.
type TrainOps interface {
	// Host makes data usable as a buffer of this device without a copy where
	// the device shares the host's memory.
	Host(data []float32, shape ...int) Buffer
	// Gemm computes c = op(a)·op(b) + beta·c, beta 0 or 1.
	Gemm(c, a, b Mat, beta float32)
	// Add computes dst = a + b over the first n elements; dst may be a or b.
	Add(dst, a, b Buffer, n int)
	// AddBias adds bias [W] to each of the first n rows of x [n][W].
	AddBias(x, bias Buffer, n int)
	// SumRows sets dst [W] to the sum of the first n rows of x [n][W].
	SumRows(dst, x Buffer, n int)
	// NormGrad gives dx and, if dw is not nil, dw of Norm.
	NormGrad(dx, dw, dy, x, weight Buffer, eps float32, n int)
	// Rope rotates the first heads·headDim columns of x [n][W] from column col
	// at pos[r], backwards (the gradient) if inverse.
	Rope(x Buffer, col, heads, headDim int, rope Buffer, pos []int32, inverse bool, n int)
	// SwiGLUGrad gives dgu [n][2F] of SwiGLU.
	SwiGLUGrad(dgu, dy, gu Buffer, n int)
	// TreeAttend computes o [n][Heads·HeadDim] and lse [n][Heads] (log Σ exp of
	// the scaled scores) from q [n][Heads·HeadDim] and the levels' keys and
	// values k[j], v[j] [rows_j][KVHeads·HeadDim], level 0 first, own level last.
	TreeAttend(o, lse, q Buffer, k, v []Buffer, g *TrainAttention)
	// TreeAttendGrad gives dq and adds to dk[j] and dv[j].
	TreeAttendGrad(dq Buffer, dk, dv []Buffer, do, o, lse, q Buffer, k, v []Buffer, g *TrainAttention)
	// SoftCE computes loss[r] = −Σ p·log softmax(h[r]·wᵀ) and dh[r] =
	// scale[r]·∂loss[r]/∂h[r], in chunks of rows: logits are never kept. With
	// labels.Tail the tail is one bucket, tail·log(1−Σ_topK q). If dw is not nil
	// [V][H], Σ_r scale[r]·∂loss[r]/∂w is added to it. Rows with scale 0 give
	// their loss and a zero gradient. A Weight of a device that trains is also a
	// Buffer [Out][In]: as w it costs no packing, so a frozen LM head is best
	// given so.
	SoftCE(loss, dh, dw, h, w Buffer, labels *SoftLabels, scale []float32, n int)
	// SmoothL1 computes loss[r] = mean over columns of SmoothL1(y−t), and dy[r] =
	// scale[r]·∂loss[r]/∂y; l1 takes |y−t| instead.
	SmoothL1(loss, dy, y, t Buffer, scale []float32, l1 bool, n int)
	// EmbedGrad adds dy[r][col:col+W] to row ids[r] of dtable [V][W], rows in
	// ascending r.
	EmbedGrad(dtable, dy Buffer, col int, ids []int32)
	// SumSquares returns Σ g² over fixed blocks, in float64, the buffers' sums
	// added in order.
	SumSquares(g ...Buffer) float64
	// AdamW updates p, m and v by gradient g: decoupled decay, then the step.
	AdamW(p, g, m, v Buffer, h AdamW)
}

// RemoteTrainOps are those of a device whose memory is not the host's: what Host
// returns is a copy there, and the two go separate ways.
type RemoteTrainOps interface {
	TrainOps
	// Alloc returns a zeroed buffer.
	Alloc(t DType, shape ...int) (Buffer, error)
	// View returns the first elements of b, whose memory it shares, as another
	// shape.
	View(b Buffer, shape ...int) Buffer
	// Clear sets the first n elements of b to zero.
	Clear(b Buffer, n int)
}
