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

import (
	"context"
	"errors"
	"fmt"
)

// A DType is the element type of a buffer or of a stored matrix.
type DType uint8

// The element types. Activations are F32. F16 and BF16 are storage types. Weights are
// packed as F32, BF16, Q8, which is 8-bit integers with a scale for every 32 of them, Q4,
// which keeps Blocks of the kinds that a device has (Kept) as they are and packs everything else as Q8, Stored, which
// does so but for floating-point numbers, which it keeps as they are, with products that have the bits of F32, or BF16DP,
// which is BF16 whose products round activations to bfloat16 as well and have the bits of
// AVX-512's VDPBF16PS.
const (
	F32 DType = iota
	F16
	BF16
	I32
	Q8
	Blocks // a storage type of files, which a BlockReader reads
	Q4
	BF16DP
	Stored
)

// Size returns the bytes of one element, or 0 if elements share bytes.
func (t DType) Size() int {
	switch t {
	case F16, BF16, BF16DP:
		return 2
	case Q8, Blocks, Q4, Stored:
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
	case Q4:
		return "Q4"
	case BF16DP:
		return "BF16DP"
	case Stored:
		return "STORED"
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
	Data       []byte      // little endian; Q8: an int8 an element; Blocks: rows of whole blocks
	Scales     []byte      // Q8: [Rows][⌈Cols/Q8Block⌉] float16
	Block      BlockReader // Blocks: what they mean
	// Done, unless nil, is called when bytes [lo,hi) of Data have been packed. It
	// is called from several goroutines at once. An error ends the packing soon: Pack returns it.
	Done func(lo, hi int) error
}

// A BlockReader reads blocks of weights that share scales, as GGUF files have them. It is safe for
// concurrent use.
type BlockReader interface {
	Elements() int // of a block, which divide 256
	Bytes() int    // of a block
	// Float32s decodes the whole blocks in src to dst.
	Float32s(dst []float32, src []byte)
	// Q8 sets q and d to int8s and a float16 for every Q8Block of them whose products are exactly the
	// elements of the blocks in src, and reports whether there are such.
	Q8(q, d, src []byte) bool
	// Kept returns the kind of blocks that these are, or NotKept.
	Kept() Kept
	// Integers sets q to the integers of the elements of the blocks in src, one a byte, and scales
	// to their scales as the kind has them. It is not for NotKept.
	Integers(q, scales, src []byte)
}

// A Kept is a kind of blocks whose integers and scales a weight packed as Q4 or Stored keeps, if the device has a layout
// for it (DeviceAbilities.Keeps). Their integers q are without sign.
type Kept uint8

// The kinds of blocks, by the names that ggml has for them, with what an element is and with the scales of a row, as
// BlockReader.Integers gives them: of 32 elements, or of 256, in which the shared ones, float16, come before those of
// every 32 or 16, a byte each, all of one kind together. All products in elements are exact in float32.
const (
	NotKept    Kept = iota
	KeptQ4_0        // d·(q−8), q < 16; 32: float16 d
	KeptQ4_K        // (d·sc)·q − dm·mn, q < 16; 256: d, dm, sc [8], mn [8], each from 0 to 63
	KeptQ6_K        // (d·sc)·(q−32), q < 64; 256: d, int8 sc [16]
	KeptQ4_1        // d·q + m, q < 16; 32: float16 d and m
	KeptQ5_0        // d·(q−16), q < 32; 32: float16 d
	KeptQ5_1        // d·q + m, q < 32; 32: float16 d and m
	KeptQ5_K        // (d·sc)·q − dm·mn, q < 32; scales as KeptQ4_K's
	KeptIQ4_NL      // d·v[q], where v are sixteen int8s; 32: float16 d
	KeptIQ4_XS      // (d·sc)·v[q], v as before; 256: d, int8 sc [8]
	KeptMXFP4       // d·v[q], where v are the sixteen E2M1, doubled; 32: bfloat16 d, a power of two
)

func (k Kept) String() string {
	if n := [...]string{"none", "Q4_0", "Q4_K", "Q6_K", "Q4_1", "Q5_0", "Q5_1", "Q5_K", "IQ4_NL", "IQ4_XS", "MXFP4"}; int(k) < len(n) {
		return n[k]
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// Row returns the bytes of n elements of a row of Blocks from element k on, which are whole blocks.
func (m *Matrix) Row(row, k, n int) []byte {
	e, b := m.Block.Elements(), m.Block.Bytes()
	return m.Data[(row*m.Cols+k)/e*b:][:n/e*b]
}

// CheckBlocks reports what is wrong with a matrix of Blocks.
func (m *Matrix) CheckBlocks() error {
	if m.Block == nil {
		return errors.New("blocks that nothing reads")
	}
	e, b := m.Block.Elements(), m.Block.Bytes()
	if m.Cols%e != 0 || len(m.Data) != m.Rows*(m.Cols/e)*b {
		return fmt.Errorf("%d bytes of [%d][%d], want rows of whole blocks of %d elements in %d bytes", len(m.Data), m.Rows, m.Cols, e, b)
	}
	return nil
}

// KVConfig is the shape of a KV store.
type KVConfig struct {
	Layers, KVHeads, HeadDim int
	Type                     DType // F32 or BF16: keys and values are rounded to it
	// Latent, unless 0, says that values are the last Latent elements of keys (multi-head latent
	// attention, DeepSeek-AI 2024, DeepSeek-V2, §2.1). It is for queues with Latent.
	Latent int
}

// ValueDim returns the number of elements of a value.
func (c KVConfig) ValueDim() int {
	if c.Latent != 0 {
		return c.Latent
	}
	return c.HeadDim
}

// Projection returns the number of elements of a row of queries, keys and values, as Attend takes
// them; with Latent there are no values of their own.
func (c KVConfig) Projection(heads int) int {
	if c.Latent != 0 {
		return (heads + c.KVHeads) * c.HeadDim
	}
	return (heads + 2*c.KVHeads) * c.HeadDim
}

// A KV holds keys and values in blocks of BlockLen positions. Slot s is offset
// s%BlockLen of block s/BlockLen, in every layer. The layout inside a block is
// the device's own.
type KV interface {
	Config() KVConfig
	Blocks() int           // blocks available
	Grow(blocks int) error // makes at least so many blocks available; contents stay
}

// A Device owns memory and runs operations. It is safe for concurrent use; a
// Queue is not.
type Device interface {
	// Name describes the device and the kernels that it chose.
	Name() string
	// Arithmetic names what the last bits of this device's results depend on, for
	// example "cuda sm_90". It is empty for the CPU, which others are compared with.
	Arithmetic() string
	Alloc(t DType, shape ...int) (Buffer, error)
	// Pack stacks parts, which share Cols, into one weight [ΣRows][Cols] of F32,
	// BF16, Q8, or Q4, Stored or BF16DP if the device has that. Products with blocks that a weight packed as Q4 or
	// Stored keeps, and that Q8 has exactly, have the bits that they have in Q8, if activations are rounded alike.
	Pack(as DType, parts ...Matrix) (Weight, error)
	NewKV(c KVConfig) (KV, error)
	Queue() Queue
	// Abilities returns what this device can do beyond this interface. It is the same
	// at every call.
	Abilities() DeviceAbilities
	Close() error
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
	// Abilities returns what this queue can do beyond this interface. It is the same at
	// every call: callers ask once and keep it.
	Abilities() Abilities
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
	Center bool // LayerNorm: the mean is subtracted from x first
}

// An Activation is applied to a product before it is stored.
type Activation uint8

// The activations. SiLU is x/(1+exp(−x)), GELU is x·Φ(x), and GELUTanh is its approximation
// x/2·(1 + tanh(√(2/π)·(x + 0.044715x³))), which only queues with Variants have. So do they
// ClampedSwiGLU, which is of gated products alone and changes their second part too: with
// g = min(x, Limit) and u = min(max(up, −Limit), Limit) the result is g·σ(1.702g)·(u+1)
// (OpenAI 2025, gpt-oss).
const (
	Identity Activation = iota
	SiLU
	GELU
	GELUTanh
	ClampedSwiGLU
)

func (a Activation) String() string {
	if n := [...]string{"identity", "SiLU", "GELU", "gelu_pytorch_tanh", "clamped SwiGLU"}; int(a) < len(n) {
		return n[a]
	}
	return fmt.Sprintf("activation %d", uint8(a))
}

// A Linear is a product with what is fused to it: act(norm(x)·wᵀ + bias), multiplied
// by norm(x)·upᵀ + upBias if Up is set.
// Every output is one chain over ascending k whose order and roundings depend
// on the weight's packing alone.
type Linear struct {
	Norm   *Norm // nil: none
	W      Weight
	Bias   Buffer // [Out] or nil
	Act    Activation
	Up     Weight  // of W's shape, or nil: a gated product
	UpBias Buffer  // [Out] or nil
	Limit  float32 // of ClampedSwiGLU
}

// Bytes returns the memory of weights that the product reads.
func (l *Linear) Bytes() int {
	n := l.W.Bytes()
	if l.Up != nil {
		n += l.Up.Bytes()
	}
	return n
}

// Attention says how queries and keys are made from a projection.
type Attention struct {
	// Rope holds the angles of every position. The first RotDim elements of each head
	// are rotated, by halves.
	Rope         Buffer // [positions][RotDim]
	RotDim       int
	QNorm, KNorm *Norm // of each head before the rotation, [headDim]; nil: none
	Window       int   // a row at position p sees positions beyond p−Window; 0: all

	// The following are for queues with Variants.
	Scale float32 // factor of scores; 0: 1/√headDim
	Cap   float32 // scaled scores s become Cap·tanh(s/Cap); 0: they stay
	// Sinks are scores of a position without a value, one for each query head: they are not
	// scaled or capped, and add to what the weights of a row are divided by.
	Sinks Buffer // [heads] or nil
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
	// in logical order. A span may see what another of the step writes. With a store whose values are parts of keys, the sizes of the
	// two are KVConfig.Projection and heads·Latent.
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
	Prefix int     // positions [0,Prefix) of the sequence are seen by all rows
	Blocks []int32 // KV blocks of the prefix, BlockLen positions each; −1: one of the first Unseen
	From   int     // first node that runs
	Own    []int32 // slot of every node [0,From+N)
	// Anc [From+N][Stride] are ancestor bits, a node's own bit included. In a span of one word they may be any nodes' of the span,
	// later ones' too: the rows of a block see one another both ways.
	Anc    []uint64
	Stride int
	// Late, unless nil, is a Choice's Anc [N][Stride] in a step of one span: ancestor bits of the rows, of
	// which only the number is known, and is that of Anc's.
	Late []uint64
}

// Unseen returns the number of leading blocks of the prefix that end before the window of every row.
func (p *Span) Unseen(window int) int {
	if window == 0 {
		return 0
	}
	return max(0, p.Prefix+1-window) / BlockLen
}

// Rope tables are Buffers [positions][RotDim]: row p is RotDim/2 cosines
// followed by RotDim/2 sines of p's angles, scaling applied.
