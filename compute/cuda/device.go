//go:build gpu && linux && cgo

package cuda

import (
	"errors"
	"fmt"
	"hash/maphash"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"unsafe"

	"gorgonia.org/cu"

	"talf/compute"
	"talf/compute/cuda/internal/driver"
)

// A device is one GPU. Its context and the fields below belong to one goroutine at a time, the holder of
// the turn: the goroutine of own, which performs the sent commands in order, or a caller of do when no
// command is pending.
type device struct {
	cfg  Config
	info Info

	mu     sync.RWMutex // of closed and of sending on work
	closed bool
	work   chan command
	done   chan struct{} // own has returned
	sent   atomic.Int64  // pending commands
	turn   sync.Mutex

	lost atomic.Pointer[error] // the first failure of queued work: nothing runs after it

	// Fields of the holder of the turn.
	dev     cu.Device
	ctx     cu.CUContext
	mod     cu.Module
	stream  cu.Stream
	kernels [kernelCount]cu.Function
	graphs  bool // repeated passes are replayed
	overlap bool // kernels of a pass may begin before their predecessors have ended
	seed    maphash.Seed
	memory  map[cu.DevicePtr]int64
	used    int64
	pinned  map[*byte][]byte
	// The queues' libraries, closed with the device.
	libraries []*driver.BLAS

	slab, logits int // slabBytes and ceLogits
	// The library for large products of training, or why there is none. New sets them.
	training   *library
	noTraining error
}

// A command is a kernel to launch, or f to call.
type command struct {
	f func()
	launched
}

// New opens a device and loads the kernels.
func New(c Config) (compute.Device, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	r := Examine()
	switch {
	case r.Reason != "":
		return nil, fmt.Errorf("cuda: %s", r.Reason)
	case c.Device >= len(r.Devices):
		return nil, fmt.Errorf("cuda: no device %d: the driver finds %d", c.Device, len(r.Devices))
	case r.Devices[c.Device].Reason != "":
		return nil, fmt.Errorf("cuda: device %d, %s: %s", c.Device, r.Devices[c.Device].Name, r.Devices[c.Device].Reason)
	}
	d := &device{
		cfg: c, info: r.Devices[c.Device],
		// Deep enough that a queue never waits for launches of the same layer.
		work: make(chan command, 256), done: make(chan struct{}),
		memory: map[cu.DevicePtr]int64{}, pinned: map[*byte][]byte{},
		graphs: !c.NoGraphs, seed: maphash.MakeSeed(), slab: slabBytes, logits: ceLogits,
	}
	started := make(chan error)
	go d.own(started)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("cuda: open device %d, %s: %w", c.Device, d.info.Name, err)
	}
	d.startTraining()
	return d, nil
}

// own opens the device and performs what is sent until it is closed.
func (d *device) own(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := caught(d.start)
	started <- err
	if err != nil {
		close(d.done)
		return
	}
	d.serve()
}

// serve performs what is sent until the device is closed, and releases everything.
func (d *device) serve() {
	defer close(d.done)
	for c := range d.work {
		d.turn.Lock()
		d.perform(&c)
		d.sent.Add(-1)
		d.turn.Unlock()
	}
	d.fail(caught(func() error { d.stop(); return nil }))
}

// perform runs a command. A panic fails the device, as an error of queued work does: no caller waits
// for an answer, and no later command may run on a state that is half changed.
func (d *device) perform(c *command) {
	defer func() {
		if v := recover(); v != nil {
			d.fail(panicked(v))
		}
	}()
	if c.f != nil {
		c.f()
		return
	}
	d.launch(&c.launched)
}

// caught returns what f returns, or its panic as an error.
func caught(f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = panicked(v)
		}
	}()
	return f()
}

// panicked is a panic of the owner. It must not end the process: users of the device get it as an error.
func panicked(v any) error { return &panicError{v, debug.Stack()} }

type panicError struct {
	value any
	stack []byte
}

func (e *panicError) Error() string {
	return fmt.Sprintf("panic in the device's work: %v\n%s", e.value, e.stack)
}

// launch launches a kernel. It reports false, and does nothing, if the device has
// failed. It runs on the owner.
func (d *device) launch(l *launched) bool { return d.launchBehind(l, false) }

// launchBehind is launch; behind says that the kernel follows another one of the same pass.
func (d *device) launchBehind(l *launched, behind bool) bool {
	if d.lost.Load() != nil {
		return false
	}
	if err := d.enqueue(l, behind); err != nil {
		d.fail(err)
		return false
	}
	return true
}

// enqueue hands a launch to the driver. A kernel behind another one of its pass begins early if it waits for it
// by itself.
func (d *device) enqueue(l *launched, behind bool) error {
	start := driver.Launch
	if behind && d.overlap && kernels[l.kernel].waits {
		start = driver.LaunchDependent
	}
	if err := start(d.kernels[l.kernel], l.grid, l.threads, d.stream, l.args[:]); err != nil {
		return fmt.Errorf("launch %s: %w", kernels[l.kernel].name, err)
	}
	return nil
}

// withoutOverlap turns overlapping kernels off because of err and logs that.
func (d *device) withoutOverlap(err error) {
	if d.cfg.Log != nil {
		d.cfg.Log.Warn("every kernel begins when the one in front has ended", "device", d.Name(), "reason", err.Error())
	}
}

// withoutGraphs turns graphs off because of err and logs that.
func (d *device) withoutGraphs(err error) {
	d.graphs = false
	if d.cfg.Log == nil {
		return
	}
	why := err.Error()
	if missing := driver.Missing(driver.Graphs...); len(missing) > 0 {
		why = "the driver lacks " + strings.Join(missing, ", ")
	}
	d.cfg.Log.Warn("every kernel is launched by itself: no graphs on this device", "device", d.Name(), "reason", why)
}

func (d *device) start() error {
	dev, err := cu.GetDevice(d.cfg.Device)
	if err != nil {
		return driver.Wrap(err)
	}
	d.dev = dev
	ctx, err := dev.RetainPrimaryCtx()
	if err != nil {
		return fmt.Errorf("take its context: %w", driver.Wrap(err))
	}
	d.ctx = ctx
	undo := func(err error) error {
		return errors.Join(err, driver.Wrap(dev.ReleasePrimaryCtx()))
	}
	if err := cu.SetCurrentContext(ctx); err != nil {
		return undo(fmt.Errorf("use its context: %w", driver.Wrap(err)))
	}
	ptx := ptx80
	if d.info.Major >= waitingMajor {
		ptx = ptx90
		asked := d.cfg.Overlap || os.Getenv(OverlapVariable) == "1"
		d.overlap = asked && len(driver.Missing(driver.Dependent...)) == 0
	}
	if d.mod, err = cu.LoadData(ptx); err != nil {
		return undo(fmt.Errorf("load the kernels: %w", driver.Wrap(err)))
	}
	for k := range kernels {
		if d.kernels[k], err = d.mod.Function(kernels[k].name); err != nil {
			return undo(fmt.Errorf("find kernel %s: %w", kernels[k].name, driver.Wrap(err)))
		}
	}
	if d.stream, err = cu.MakeStream(cu.NonBlocking); err != nil {
		return undo(fmt.Errorf("make a stream: %w", driver.Wrap(err)))
	}
	return nil
}

// stop releases everything. It ignores failures, since a lost device refuses every
// call.
func (d *device) stop() {
	for _, b := range d.libraries {
		b.Close()
	}
	for p := range d.memory {
		_ = cu.MemFree(p)
	}
	for _, p := range d.pinned {
		_ = driver.HostFree(p)
	}
	d.memory, d.pinned = nil, nil
	_ = d.stream.Destroy()
	_ = d.mod.Unload()
	_ = d.dev.ReleasePrimaryCtx()
}

// fail records the first failure.
func (d *device) fail(err error) {
	if err != nil {
		d.lost.CompareAndSwap(nil, &err)
	}
}

// failure returns what fail recorded.
func (d *device) failure() error {
	if p := d.lost.Load(); p != nil {
		return *p
	}
	return nil
}

var errClosed = errors.New("the device is closed")

// send hands c to the owner. It reports false if the device is closed.
func (d *device) send(c command) bool {
	d.mu.RLock()
	defer d.mu.RUnlock()
	if d.closed {
		return false
	}
	d.sent.Add(1)
	d.work <- c
	return true
}

// do runs f as the owner, after all that was sent, and returns what it returns.
func (d *device) do(f func() error) error {
	if ran, err := d.here(f); ran {
		return err
	}
	done := make(chan error, 1)
	if !d.send(command{f: func() { done <- d.answer(f) }}) {
		return errClosed
	}
	return <-done
}

// here runs f on the caller's thread if the device is idle. Handing a pass to the owner and back takes
// two switches of threads, which take longer than all calls of the pass.
func (d *device) here(f func() error) (ran bool, err error) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	if d.closed || !d.turn.TryLock() {
		return false, nil
	}
	defer d.turn.Unlock()
	if d.sent.Load() != 0 {
		return false, nil
	}
	runtime.LockOSThread() // the context is a thread's
	defer runtime.UnlockOSThread()
	if cu.SetCurrentContext(d.ctx) != nil {
		return false, nil // the owner has it
	}
	return true, d.answer(f)
}

// answer returns what f returns. A panic is the device's failure too.
func (d *device) answer(f func() error) error {
	err := caught(f)
	var bug *panicError
	if errors.As(err, &bug) {
		d.fail(err)
	}
	return err
}

// Name returns, for example, "cuda:0 NVIDIA H200, compute capability 9.0".
func (d *device) Name() string {
	return fmt.Sprintf("cuda:%d %s, compute capability %d.%d", d.cfg.Device, d.info.Name, d.info.Major, d.info.Minor)
}

// Arithmetic returns, for example, "cuda sm_90".
func (d *device) Arithmetic() string { return d.info.Arithmetic() }

// Abilities returns what the device can do: its memory is planned.
func (d *device) Abilities() compute.DeviceAbilities {
	return compute.DeviceAbilities{Plan: d, Rounding: d.rounding, Training: d, Join: d, Keeps: keeps}
}

// rounding returns what activations are rounded to if that is not what weights of the type always meet.
func (d *device) rounding(weights compute.DType) string {
	if d.single(weights) {
		return "bf16"
	}
	return ""
}

// single reports whether weights of a type are multiplied by activations in one plane.
func (d *device) single(weights compute.DType) bool {
	return d.cfg.Planes == 1 && weights == compute.BF16
}

// Close waits for queued work and frees all memory: buffers, weights and stores
// are gone.
func (d *device) Close() error {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return nil
	}
	d.closed = true
	close(d.work)
	d.mu.Unlock()
	<-d.done
	return nil
}

// A block is a piece of device memory. It is freed once nothing refers to it and what
// was queued before has run.
type block struct {
	ptr  uint64
	size int64
	half atomic.Pointer[half]
}

// alloc returns size bytes, zero if cleared. what names them in errors.
func (d *device) alloc(what string, size int64, cleared bool) (*block, error) {
	if err := d.failure(); err != nil {
		return nil, err
	}
	b := &block{size: size}
	if size == 0 {
		return b, nil
	}
	try := func() error { return d.do(func() error { return d.take(b, cleared) }) }
	err := try()
	for range 3 {
		if !errors.Is(err, driver.OutOfMemory) {
			break
		}
		// Unreferenced blocks are freed when the collector finds them.
		runtime.GC()
		runtime.Gosched()
		err = try()
	}
	if errors.Is(err, driver.OutOfMemory) {
		var free, used int64
		_ = d.do(func() error {
			free, _, _ = cu.MemInfo()
			used = d.used
			return nil
		})
		return nil, fmt.Errorf("%s need %s, but %s of %s of the device are free; this program holds %s: %w",
			what, bytesText(size), bytesText(free), bytesText(d.info.Memory), bytesText(used), driver.OutOfMemory)
	}
	if err != nil {
		return nil, fmt.Errorf("allocate %s: %w", what, err)
	}
	runtime.AddCleanup(b, func(p uint64) { d.send(command{f: func() { d.free(p) }}) }, b.ptr)
	return b, nil
}

func (d *device) take(b *block, cleared bool) error {
	p, err := cu.MemAlloc(b.size)
	if err != nil {
		return driver.Wrap(err)
	}
	d.memory[p] = b.size
	d.used += b.size
	b.ptr = uint64(p)
	if cleared {
		return driver.Wrap(cu.MemsetD8Async(p, 0, b.size, d.stream))
	}
	return nil
}

// free runs on the owner.
func (d *device) free(ptr uint64) {
	p := cu.DevicePtr(ptr)
	size, ok := d.memory[p]
	if !ok {
		return
	}
	delete(d.memory, p)
	d.used -= size
	if err := cu.MemFree(p); err != nil {
		d.fail(fmt.Errorf("free memory: %w", driver.Wrap(err)))
	}
}

// host replaces old by size bytes of page-locked memory, which last until the device is
// closed. It runs on the owner.
func (d *device) host(old []byte, size int) ([]byte, error) {
	if old != nil {
		delete(d.pinned, &old[0])
		if err := driver.HostFree(old); err != nil {
			return nil, err
		}
	}
	p, err := driver.HostAlloc(size)
	if err != nil {
		return nil, err
	}
	d.pinned[&p[0]] = p
	return p, nil
}

// upload copies pageable host memory to the device and waits.
func (d *device) upload(dst uint64, src []byte) error {
	if len(src) == 0 {
		return nil
	}
	return d.do(func() error {
		err := cu.MemcpyHtoDAsync(cu.DevicePtr(dst), unsafe.Pointer(&src[0]), int64(len(src)), d.stream)
		if err == nil {
			err = d.stream.Synchronize()
		}
		if err = driver.Wrap(err); err != nil {
			d.fail(fmt.Errorf("copy to the device: %w", err))
		}
		return err
	})
}

// bytesText formats n in a suitable unit.
func bytesText(n int64) string {
	switch {
	case n >= 1<<30:
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%d bytes", n)
}

// Alloc returns a zeroed buffer of F32 or I32.
func (d *device) Alloc(t compute.DType, shape ...int) (compute.Buffer, error) {
	if t != compute.F32 && t != compute.I32 {
		return nil, fmt.Errorf("cuda: no buffers of %v, want F32 or I32", t)
	}
	n, err := elements(shape)
	if err != nil {
		return nil, err
	}
	m, err := d.alloc(fmt.Sprintf("a buffer of %v %v", t, shape), 4*int64(n), true)
	if err != nil {
		return nil, fmt.Errorf("cuda: %w", err)
	}
	return &buffer{dev: d, t: t, shape: append([]int(nil), shape...), n: n, mem: m}, nil
}

// maxElements keeps sizes in bytes within an int.
const maxElements = 1 << 40

func elements(shape []int) (int, error) {
	n := 1
	for _, s := range shape {
		if s < 0 || (s > 0 && n > maxElements/s) {
			return 0, fmt.Errorf("cuda: buffer of shape %v", shape)
		}
		n *= s
	}
	return n, nil
}

// A buffer is device memory of 4 bytes an element.
type buffer struct {
	dev   *device
	t     compute.DType
	shape []int
	n     int
	mem   *block
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
