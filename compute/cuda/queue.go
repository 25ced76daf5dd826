//go:build gpu && linux && cgo

package cuda

import (
	"context"
	"fmt"
	"runtime"
	"unsafe"

	"gorgonia.org/cu"

	"talf/compute"
	"talf/compute/cuda/internal/driver"
)

// A queue belongs to one goroutine at a time. All queues of a device share its stream, so each
// has its own scratch memory: between two launches of one operation those of another queue may
// run.
type queue struct {
	dev *device

	// Arguments are written to page-locked memory and copied to the same offset of a buffer on
	// the device. Both are reused from the start once the stream is idle.
	pinned []byte
	twin   *block
	at     int
	steps  []*step // attention's arguments that are on the device
	up     uploads

	rows    *block // activations as products take them
	part    *block // sums that blocks share, and chunks of attention
	gated   *block // products of two weights in different layouts
	bulk    *bulk  // products of many rows; nil before Bulk
	rounded *block // of ReadBF16
	tickets *block // one for each product's block of outputs and rows, zero between products

	pass  pass
	build stepBuilder
	train training
}

var _ compute.Queue = (*queue)(nil)

// Queue returns a queue of the device's one stream.
func (d *device) Queue() compute.Queue { return &queue{dev: d} }

// Abilities returns what the queue can do.
func (q *queue) Abilities() compute.Abilities {
	return compute.Abilities{Replay: q, Choose: q, Draw: q, Bulk: q, BF16: q, Train: q, Remote: q, Variants: q}
}

// pinnedSize is the bytes of arguments that can be queued without waiting.
const pinnedSize = 1 << 20

// reserve makes room for n bytes of arguments of one operation. It reports false if the
// device has failed: then nothing need be queued.
func (q *queue) reserve(n int) bool {
	if q.dev.failure() != nil {
		return false
	}
	if q.pass.on {
		if q.pass.at+n <= len(q.pass.pinned) {
			return true
		}
		q.flush()
	}
	if q.at+n <= len(q.pinned) {
		return true
	}
	if q.wait() != nil {
		return false
	}
	if n <= len(q.pinned) {
		return true
	}
	size := pinnedSize
	for size < n {
		size *= 2
	}
	err := q.dev.do(func() (err error) {
		q.pinned, err = q.dev.host(q.pinned, size)
		return err
	})
	if err == nil {
		q.twin, err = q.dev.alloc("arguments of operations", int64(size), false)
	}
	if err != nil {
		q.dev.fail(fmt.Errorf("make room for %d bytes of arguments: %w", size, err))
	}
	return err == nil
}

// bytesOf returns the memory of s. Devices and their hosts are little endian.
func bytesOf[T any](s []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), len(s)*int(unsafe.Sizeof(*new(T))))
}

// put copies x, for which reserve made room, to the device and returns its address
// there.
func (q *queue) put(x []byte) uint64 { return q.putIn(x, len(x)) }

// putIn is put with room for size bytes.
func (q *queue) putIn(x []byte, size int) uint64 {
	if p := &q.pass; p.on {
		copy(p.pinned[p.at:], x)
		return q.room(size)
	}
	at, n := q.at, len(x)
	q.at += (n + 15) / 16 * 16
	copy(q.pinned[at:], x)
	dst, src, d := q.twin.ptr+uint64(at), unsafe.Pointer(&q.pinned[at]), q.dev
	d.send(command{f: func() {
		if d.lost.Load() != nil {
			return
		}
		if err := cu.MemcpyHtoDAsync(cu.DevicePtr(dst), src, int64(n), d.stream); err != nil {
			d.fail(fmt.Errorf("copy arguments: %w", driver.Wrap(err)))
		}
	}})
	return dst
}

// room returns the device address of n bytes, for which reserve made room.
func (q *queue) room(n int) uint64 {
	if p := &q.pass; p.on {
		at := p.twin.ptr + uint64(p.at)
		p.at += (n + 15) / 16 * 16
		return at
	}
	p := q.twin.ptr + uint64(q.at)
	q.at += (n + 15) / 16 * 16
	return p
}

// launch queues a kernel. args is a pointer to its structure.
func launch[T any](q *queue, k kernel, x, y, z int, args *T) {
	grid := [3]uint32{uint32(x), uint32(y), uint32(z)}
	words := unsafe.Slice((*uint64)(unsafe.Pointer(args)), unsafe.Sizeof(*args)/8)
	if q.pass.on {
		q.pass.launch(k, grid, words)
		return
	}
	c := command{launched: launched{kernel: k, grid: grid, threads: kernels[k].threads}}
	copy(c.args[:], words)
	q.dev.send(c)
}

// scratch makes *b at least size bytes long, replacing it if it is shorter. It reports
// false if there is no memory.
func (q *queue) scratch(b **block, what string, size int64, cleared bool) bool {
	if *b != nil && (*b).size >= size {
		return true
	}
	if *b != nil {
		size = max(size, 2*(*b).size)
		if q.pass.on {
			q.pass.keep = append(q.pass.keep, *b)
		}
	}
	m, err := q.dev.alloc(what, size, cleared)
	if err != nil {
		q.dev.fail(err)
		return false
	}
	*b = m
	return true
}

// wait waits for everything queued and reuses the arguments' memory.
func (q *queue) wait() error {
	d := q.dev
	p := &q.pass
	err := d.do(func() error {
		if p.on {
			q.play()
		}
		if d.lost.Load() == nil {
			if err := d.stream.Synchronize(); err != nil {
				d.fail(fmt.Errorf("run queued work: %w", driver.Wrap(err)))
			}
		}
		return d.failure()
	})
	if err == nil {
		p.arrived()
	}
	p.on, p.sent, p.reads, p.late = false, false, p.reads[:0], p.late[:0]
	clear(p.keep)
	p.keep = p.keep[:0]
	q.at, q.up.at = 0, 0
	clear(q.steps)
	q.steps = q.steps[:0]
	return err
}

// Sync waits for everything queued and returns the device's first failure.
func (q *queue) Sync(ctx context.Context) error {
	if err := q.wait(); err != nil {
		return fmt.Errorf("cuda: %w", err)
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("cuda: %w", err)
	}
	return nil
}

// piece is how many bytes Write and Read copy at a time.
const piece = 256 << 10

// Write copies src, []float32 or []int32, to the start of dst.
func (q *queue) Write(dst compute.Buffer, src any) {
	var b *buffer
	var raw []byte
	switch s := src.(type) {
	case []float32:
		b, raw = q.dev.bufferOf("Write", dst, compute.F32, len(s)), bytesOf(s)
	case []int32:
		b, raw = q.dev.bufferOf("Write", dst, compute.I32, len(s)), bytesOf(s)
	default:
		panic(fmt.Sprintf("cuda: Write: source of type %T, want []float32 or []int32", src))
	}
	q.flush()
	if b.t == compute.F32 && uploads16(raw) {
		q.upload(b, raw)
		return
	}
	for i := 0; i < len(raw); i += piece {
		p := raw[i:min(i+piece, len(raw))]
		if !q.reserve(len(p)) {
			return
		}
		q.copy(b.mem.ptr+uint64(i), q.put(p), len(p))
	}
	runtime.KeepAlive(b)
}

// copy copies within the device.
func (q *queue) copy(dst, src uint64, n int) {
	d := q.dev
	d.send(command{f: func() {
		if d.lost.Load() != nil {
			return
		}
		if err := cu.MemcpyDtoDAsync(cu.DevicePtr(dst), cu.DevicePtr(src), int64(n), d.stream); err != nil {
			d.fail(fmt.Errorf("copy within the device: %w", driver.Wrap(err)))
		}
	}})
}

// Read waits and copies elements [off, off+len(dst)) of src.
func (q *queue) Read(dst any, src compute.Buffer, off int) {
	switch d := dst.(type) {
	case []float32:
		q.read(q.dev.readOf("Read", src, compute.F32, off+len(d)), off, bytesOf(d))
	case *[]float32:
		q.read(q.dev.readOf("Read", src, compute.F32, off+len(*d)), off, bytesOf(*d))
	case []int32:
		q.read(q.dev.readOf("Read", src, compute.I32, off+len(d)), off, bytesOf(d))
	case *[]int32:
		q.read(q.dev.readOf("Read", src, compute.I32, off+len(*d)), off, bytesOf(*d))
	default:
		panic(fmt.Sprintf("cuda: Read: destination of type %T, want []float32 or []int32", dst))
	}
}

// read copies to page-locked memory, a piece at a time, and from there to dst. Sync
// reports a failure.
func (q *queue) read(b *buffer, off int, dst []byte) {
	q.readAt(b.mem.ptr+uint64(4*off), dst)
	runtime.KeepAlive(b)
}

// readAt reads len(dst) bytes of the device.
func (q *queue) readAt(src uint64, dst []byte) {
	q.flush()
	for i := 0; i < len(dst); i += piece {
		n := min(piece, len(dst)-i)
		if !q.reserve(n) {
			return
		}
		p, d := q.pinned[q.at:][:n], q.dev
		from := src + uint64(i)
		d.send(command{f: func() {
			if d.lost.Load() != nil {
				return
			}
			if err := cu.MemcpyDtoHAsync(unsafe.Pointer(&p[0]), cu.DevicePtr(from), int64(n), d.stream); err != nil {
				d.fail(fmt.Errorf("copy from the device: %w", driver.Wrap(err)))
			}
		}})
		if q.wait() != nil {
			return
		}
		copy(dst[i:], p)
	}
}

// bufferOf returns b, which has at least n elements of type t, as this device's. It may be written then.
func (d *device) bufferOf(op string, b compute.Buffer, t compute.DType, n int) *buffer {
	c := d.readOf(op, b, t, n)
	c.mem.stale()
	return c
}

// readOf is bufferOf of a buffer that is only read.
func (d *device) readOf(op string, b compute.Buffer, t compute.DType, n int) *buffer {
	c, ok := b.(*buffer)
	if !ok || c.dev != d || c.t != t {
		panic(fmt.Sprintf("cuda: %s: a %T is not a buffer of %v of this device", op, b, t))
	}
	if c.n < n {
		panic(fmt.Sprintf("cuda: %s: buffer of shape %v, need %d elements", op, c.shape, n))
	}
	return c
}
