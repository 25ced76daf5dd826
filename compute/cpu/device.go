// Package cpu runs compute's operations on the CPU, in Go and assembly, with the
// same bits on every class of CPU and at every number of threads.
//
// Weights lie in panels of 32 outputs, [⌈out/32⌉][in][32], which one kernel
// multiplies with any number of rows: an output is one chain of fused
// multiply-adds over ascending k. Keys lie transposed in their KV block, so
// scores are the same product over a panel; values do too, so the weighted sum
// is one more chain, over positions in logical order.
package cpu

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"sync"

	"talf/compute"
	"talf/compute/cpu/kern"
)

// EnvClass names the environment variable that sets Default's class: portable,
// avx2 or avx512.
const EnvClass = "TALF_CPU"

// A Config says how a device computes. Results do not depend on it.
type Config struct {
	Class   kern.Class // kernels to use
	Threads int        // workers, the calling goroutine included
}

// Default returns the fastest class of this machine, or the one that EnvClass
// names, and as many threads as the Go scheduler uses, which follows the
// machine's cores, the process's affinity and the container's quota.
func Default() Config {
	c := Config{Class: kern.Best(), Threads: runtime.GOMAXPROCS(0)}
	if name := os.Getenv(EnvClass); name != "" {
		if class, err := kern.ParseClass(name); err == nil {
			c.Class = class
		} else {
			c.Class = badClass
		}
	}
	return c
}

// badClass is what an unknown name in the environment becomes: Validate reports
// it.
const badClass kern.Class = 255

// maxThreads keeps a mistyped number from starting a worker for every digit.
const maxThreads = 1024

// Validate reports what New would refuse.
func (c Config) Validate() error {
	if c.Class == badClass {
		return fmt.Errorf("cpu: %s=%q: want %s", EnvClass, os.Getenv(EnvClass), kern.ClassNames())
	}
	if _, err := kern.For(c.Class); err != nil {
		return fmt.Errorf("cpu: %w", err)
	}
	if c.Threads < 1 || c.Threads > maxThreads {
		return fmt.Errorf("cpu: %d threads, want 1..%d", c.Threads, maxThreads)
	}
	return nil
}

// A Device computes on the CPU. It is safe for concurrent use: operations of
// different queues take turns on its workers.
type Device struct {
	cfg  Config
	k    *kern.Funcs
	pool *pool
}

var (
	_ compute.Device   = (*Device)(nil)
	_ compute.Queue    = (*Queue)(nil)
	_ compute.TrainOps = (*Queue)(nil)
)

// New starts a device's workers. They use no CPU while there is nothing to do.
func New(c Config) (*Device, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	k, err := kern.For(c.Class)
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

// Close ends the workers. Buffers stay readable.
func (d *Device) Close() error {
	d.pool.stop()
	return nil
}

// Queue returns a queue whose operations run at once, in the calling goroutine
// and the device's workers. It implements compute.TrainOps as well.
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

// width returns the elements of a row: of everything below the first dimension.
func (b *buffer) width() int {
	n := 1
	for _, s := range b.shape[min(1, len(b.shape)):] {
		n *= s
	}
	return n
}

// f32 returns the elements of b, at least n of them. op names the operation in
// the panic that meets a wrong buffer.
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

// check panics with a message when a caller broke the contract. Its arguments
// are evaluated in the caller, so it stands only outside inner loops.
func check(ok bool, op, what string, got, want int) {
	if !ok {
		panic(fmt.Sprintf("cpu: %s: %s is %d, want %d", op, what, got, want))
	}
}

// A Queue runs operations as they are called: Sync has nothing to wait for. It
// belongs to one goroutine at a time.
type Queue struct {
	dev  *Device
	pool *pool

	// One field per operation, so that handing it to the pool allocates nothing.
	embed  embedTask
	gather gatherTask
	mul    mulTask
	norm   normTask
	rope   ropeStoreTask
	attend attendTask
	swiglu swigluTask
	topk   topkTask
	move   moveTask
	normed []float32 // Linear's normalised rows
	train  trainTasks
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

// Sync reports whether ctx has ended; everything queued has already run.
func (q *Queue) Sync(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("cpu: %w", err)
	}
	return nil
}

// A weight is a matrix in panels [⌈out/32⌉][in][32].
type weight struct {
	out, in int
	panels  []float32

	// back is the transposed packing [⌈in/32⌉][out][32] for gradients, made when
	// first used.
	once sync.Once
	back []float32
}

func (w *weight) Out() int { return w.out }
func (w *weight) In() int  { return w.in }

// Pack packs parts, stacked, as F32.
func (d *Device) Pack(as compute.DType, parts ...compute.Matrix) (compute.Weight, error) {
	if as != compute.F32 {
		return nil, fmt.Errorf("cpu: pack as %v: want F32", as)
	}
	if len(parts) == 0 {
		return nil, fmt.Errorf("cpu: pack: no matrix")
	}
	w := &weight{in: parts[0].Cols}
	for i, m := range parts {
		if m.Rows < 1 || m.Cols < 1 || m.Cols != w.in {
			return nil, fmt.Errorf("cpu: pack: part %d is [%d][%d], the first [%d][%d]", i, m.Rows, m.Cols, parts[0].Rows, w.in)
		}
		if m.Type != compute.F32 && m.Type != compute.F16 && m.Type != compute.BF16 {
			return nil, fmt.Errorf("cpu: pack: part %d is %v, want F32, F16 or BF16", i, m.Type)
		}
		if n, err := elements([]int{m.Rows, m.Cols}); err != nil || len(m.Data) != n*m.Type.Size() {
			return nil, fmt.Errorf("cpu: pack: part %d has %d bytes, want %d for %v [%d][%d]",
				i, len(m.Data), n*m.Type.Size(), m.Type, m.Rows, m.Cols)
		}
		w.out += m.Rows
	}
	w.panels = hugeAlloc(w, kern.PanelLen(w.out, w.in))
	t := &packTask{dst: w.panels, parts: parts, out: w.out, in: w.in}
	d.pool.run(t, panels(w.out))
	return w, nil
}

func panels(n int) int { return (n + kern.Panel - 1) / kern.Panel }

// packTask packs one panel a part.
type packTask struct {
	dst     []float32
	parts   []compute.Matrix
	out, in int
}

func (t *packTask) run(w *worker, part int) {
	const step = 256
	dst := t.dst[part*t.in*kern.Panel:][:t.in*kern.Panel]
	n := min(kern.Panel, t.out-part*kern.Panel)
	buf := w.buf(0, kern.Panel*step)
	for k := 0; k < t.in; k += step {
		s := min(step, t.in-k)
		m, first := 0, 0
		for j := range n {
			row := part*kern.Panel + j
			for row >= first+t.parts[m].Rows {
				first += t.parts[m].Rows
				m++
			}
			decode(buf[j*step:][:s], t.parts[m], (row-first)*t.in+k)
		}
		// A last panel that is not full is zeroed by PackRows.
		kern.PackRows(dst[k*kern.Panel:][:s*kern.Panel], buf, n, s, step)
	}
}

func decode(dst []float32, m compute.Matrix, off int) {
	src := m.Data[off*m.Type.Size():]
	switch m.Type {
	case compute.F16:
		kern.FromF16(dst, src)
	case compute.BF16:
		kern.FromBF16(dst, src)
	default:
		kern.FromF32(dst, src)
	}
}
