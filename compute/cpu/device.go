// Package cpu runs compute's operations on the CPU, in Go and assembly, with the
// same bits on every class of CPU and at every number of threads.
//
// Weights lie in panels of 32 outputs, f32 ones as [⌈out/32⌉][in][32], which one
// kernel multiplies with any number of rows: an output is one chain of fused
// multiply-adds over ascending k, or over blocks of k where weights are integers. Keys
// are stored transposed in their KV block, so scores are the same product over a panel.
// So are values, which makes the weighted sum one more chain, over positions in logical
// order.
package cpu

import (
	"context"
	"fmt"
	"os"
	"runtime"

	"talf/compute"
	"talf/compute/cpu/kern"
	"talf/compute/cpu/topology"
)

// EnvShapes names the environment variable that sets Default's Shapes.
const EnvShapes = "TALF_SHAPES"

// FixedShapes are the Shapes of a device that measures nothing and takes those that the kernels come with.
const FixedShapes = "fixed"

// A Config says how a device computes. Results do not depend on Threads and Shapes, nor on Class except
// with BF16 weights, for which class amx rounds activations.
type Config struct {
	Class   kern.Class // kernels to use
	Threads int        // workers, the calling goroutine included
	// ActBits are what activations are rounded to for products with integers, and with
	// BF16 weights where tiles multiply them: 16, or 8, which is faster with many rows and less
	// exact. 0 is 8 for weights packed as Q4 and 16 for others.
	ActBits int
	// Shapes are how products cut many rows: a list that kern.ParseShapes reads, FixedShapes, or
	// "" for those that are fastest here, which the process measures once.
	Shapes string
}

// Default returns the fastest class of this process, and as many threads as the machine's topology
// suggests, but at most as many as the Go scheduler uses.
func Default() Config {
	return Config{Class: kern.Best(), Threads: min(topology.Read().Threads(), runtime.GOMAXPROCS(0)), Shapes: os.Getenv(EnvShapes)}
}

// maxThreads keeps a mistyped number from starting millions of workers.
const maxThreads = 1024

// Validate reports what New would refuse.
func (c Config) Validate() error {
	if _, err := c.kernels(kern.For); err != nil {
		return fmt.Errorf("cpu: %w", err)
	}
	if c.Threads < 1 || c.Threads > maxThreads {
		return fmt.Errorf("cpu: %d threads, want 1..%d", c.Threads, maxThreads)
	}
	if c.ActBits != 0 && c.ActBits != 8 && c.ActBits != 16 {
		return fmt.Errorf("cpu: activations of %d bits, want 8 or 16", c.ActBits)
	}
	return nil
}

// kernels returns the table of the class, which measured returns where nothing says what shapes it has.
func (c Config) kernels(measured func(kern.Class) (*kern.Funcs, error)) (*kern.Funcs, error) {
	switch c.Shapes {
	case "":
		return measured(c.Class)
	case FixedShapes:
		return kern.For(c.Class)
	}
	f, err := kern.For(c.Class)
	if err != nil {
		return nil, err
	}
	s, err := kern.ParseShapes(c.Shapes)
	if err == nil {
		f, err = f.With(s)
	}
	if err != nil {
		return nil, fmt.Errorf("shapes %q, which %s may set: %w", c.Shapes, EnvShapes, err)
	}
	return f, nil
}

// planes returns the number of bytes that activations are rounded to for weights packed as t.
func (c Config) planes(t compute.DType) int {
	if c.ActBits == 8 || c.ActBits == 0 && t == compute.Q4 {
		return 1
	}
	return 2
}

// A Device computes on the CPU. It is safe for concurrent use: operations of
// different queues take turns on its workers.
type Device struct {
	cfg  Config
	k    *kern.Funcs
	pool *pool
	mem  memory
}

var (
	_ compute.Device = (*Device)(nil)
	_ compute.Queue  = (*Queue)(nil)
)

// New starts a device's workers. They use no CPU while there is nothing to do.
func New(c Config) (*Device, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	k, err := c.kernels(kern.Tuned)
	if err != nil {
		return nil, fmt.Errorf("cpu: %w", err)
	}
	return &Device{cfg: c, k: k, pool: newPool(c.Threads, k)}, nil
}

// Config returns the configuration that the device was made with.
func (d *Device) Config() Config { return d.cfg }

// Name returns, for example, "cpu avx512, 2 threads".
func (d *Device) Name() string {
	if d.cfg.Threads == 1 {
		return fmt.Sprintf("cpu %v, 1 thread", d.cfg.Class)
	}
	return fmt.Sprintf("cpu %v, %d threads", d.cfg.Class, d.cfg.Threads)
}

// Shapes returns how products cut many rows, as kern.ParseShapes reads it; "" if they can do so in one way only.
func (d *Device) Shapes() string { return d.k.Shapes.String() }

// Pairs says what multiplies weights packed as BF16DP, for example "VDPBF16PS". It is empty where plain Go
// does, many times slower than other types.
func (d *Device) Pairs() string { return d.k.Pairs }

// Arithmetic returns "": other devices are compared with the CPU.
func (d *Device) Arithmetic() string { return "" }

// Abilities returns what the device can do: it gives memory of keys and values back, and says how
// much things take of the host's memory, which is not reserved.
func (d *Device) Abilities() compute.DeviceAbilities {
	return compute.DeviceAbilities{Account: d, Release: d, Rounding: d.rounding, Keeps: keeps, Stored: true, Table: newTable}
}

// keeps reports whether there is a layout for blocks of a kind.
func keeps(k compute.Kept) bool { return k != compute.NotKept }

// rounding returns "f32" where activations are not rounded, otherwise what to: integers
// with a scale, a bfloat16, or the tiles' one or two bfloat16 for an activation.
func (d *Device) rounding(weights compute.DType) string {
	planes := d.cfg.planes(weights)
	switch {
	case weights == compute.Q8 || weights == compute.Q4 || weights == compute.Stored:
		return [...]string{1: "int8", "int16"}[planes]
	case weights == compute.BF16DP:
		return "bf16"
	case weights == compute.BF16 && d.k.GemmSplit != nil:
		return [...]string{1: "amx bf16", "amx 2×bf16"}[planes]
	}
	return "f32"
}

// Close stops the workers. Buffers stay readable.
func (d *Device) Close() error {
	d.pool.stop()
	return nil
}

// Queue returns a queue whose operations run at once, in the calling goroutine
// and the device's workers.
func (d *Device) Queue() compute.Queue { return &Queue{dev: d, pool: d.pool} }

// Alloc returns a zeroed buffer of F32 or I32.
func (d *Device) Alloc(t compute.DType, shape ...int) (compute.Buffer, error) {
	n, err := elements(shape)
	if err != nil {
		return nil, err
	}
	b := &buffer{t: t, shape: append([]int(nil), shape...)}
	switch t {
	case compute.F32:
		b.f = make([]float32, n)
	case compute.I32:
		b.i = make([]int32, n)
	default:
		return nil, fmt.Errorf("cpu: no buffers of %v, want F32 or I32", t)
	}
	return b, nil
}

// maxElements keeps sizes in bytes within an int everywhere.
const maxElements = 1 << 40

func elements(shape []int) (int, error) {
	n := 1
	for _, s := range shape {
		if s < 0 || (s > 0 && n > maxElements/s) {
			return 0, fmt.Errorf("cpu: buffer of shape %v", shape)
		}
		n *= s
	}
	return n, nil
}

// A buffer is host memory: f for F32, i for I32.
type buffer struct {
	t     compute.DType
	shape []int
	f     []float32
	i     []int32
}

func (b *buffer) DType() compute.DType { return b.t }
func (b *buffer) Shape() []int         { return b.shape }

// width returns the elements of a row, the product of all dimensions but the first.
func (b *buffer) width() int {
	n := 1
	for _, s := range b.shape[min(1, len(b.shape)):] {
		n *= s
	}
	return n
}

// f32 returns the elements of b, at least n of them. It panics, naming op, if b is not
// an F32 buffer of this device.
func f32(op string, b compute.Buffer, n int) []float32 {
	c, ok := b.(*buffer)
	if !ok || c.t != compute.F32 {
		panic(fmt.Sprintf("cpu: %s: a %T is not an F32 buffer of this device", op, b))
	}
	if len(c.f) < n {
		panic(fmt.Sprintf("cpu: %s: buffer of shape %v, need %d elements", op, c.shape, n))
	}
	return c.f
}

func i32(op string, b compute.Buffer, n int) []int32 {
	c, ok := b.(*buffer)
	if !ok || c.t != compute.I32 {
		panic(fmt.Sprintf("cpu: %s: a %T is not an I32 buffer of this device", op, b))
	}
	if len(c.i) < n {
		panic(fmt.Sprintf("cpu: %s: buffer of shape %v, need %d elements", op, c.shape, n))
	}
	return c.i
}

func width(b compute.Buffer) int { return b.(*buffer).width() }

// check panics with a message if a caller broke the contract. Its arguments are always
// evaluated, so it must not be called in inner loops.
func check(ok bool, op, what string, got, want int) {
	if !ok {
		panic(fmt.Sprintf("cpu: %s: %s is %d, want %d", op, what, got, want))
	}
}

// A Queue runs operations as they are called, so Sync has nothing to wait for. It
// belongs to one goroutine at a time.
type Queue struct {
	dev   *Device
	pool  *pool
	until context.Context // what ends operations early, or nil

	// One task per operation, so that handing it to the pool allocates nothing.
	embed   embedTask
	gather  gatherTask
	mul     mulTask
	norm    normTask
	rope    prepareTask
	attend  attendTask
	swiglu  swigluTask
	topk    topkTask
	check   checkTask
	move    moveTask
	blend   addScaledTask
	cap     capTask
	columns columnsTask
	scatter scatterTask
	heads   headsTask
	copies  copyTask
	gate    gateTask
	logs    logTask
	delta   deltaTask
	windows windowTask
	normed  []float32 // Linear's normalised rows
	rounds  roundTask
	train   trainTasks
}

// Abilities returns what the queue can do: it trains, stashes, finds peaks, checks logits, ends
// operations early and knows the variants of layers and those with states.
func (q *Queue) Abilities() compute.Abilities {
	return compute.Abilities{Peaks: q, Cancel: q, Train: q, Block: q, Stash: q, Check: q, Variants: q, Latent: q, Recur: q}
}

// Write copies src, []float32 or []int32, to the start of dst.
func (q *Queue) Write(dst compute.Buffer, src any) {
	switch s := src.(type) {
	case []float32:
		copy(f32("Write", dst, len(s)), s)
	case []int32:
		copy(i32("Write", dst, len(s)), s)
	default:
		panic(fmt.Sprintf("cpu: Write: source of type %T, want []float32 or []int32", src))
	}
}

// Read copies elements [off, off+len(dst)) of src.
func (q *Queue) Read(dst any, src compute.Buffer, off int) {
	switch d := dst.(type) {
	case []float32:
		copy(d, f32("Read", src, off+len(d))[off:])
	case []int32:
		copy(d, i32("Read", src, off+len(d))[off:])
	case *[]float32:
		copy(*d, f32("Read", src, off+len(*d))[off:])
	case *[]int32:
		copy(*d, i32("Read", src, off+len(*d))[off:])
	default:
		panic(fmt.Sprintf("cpu: Read: destination of type %T, want []float32 or []int32", dst))
	}
}

// Until implements compute.Canceler: once ctx has ended, no part of an operation begins.
func (q *Queue) Until(ctx context.Context) {
	if q.until = ctx; ctx != nil && ctx.Done() == nil {
		q.until = nil // it never ends
	}
}

// run runs the parts of an operation, all of them unless Until says otherwise.
func (q *Queue) run(t task, parts int) { q.pool.run(q.until, t, parts) }

// Sync reports whether ctx has ended; everything queued has already run.
func (q *Queue) Sync(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("cpu: %w", err)
	}
	return nil
}
