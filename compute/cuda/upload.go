//go:build gpu && linux && cgo

package cuda

import (
	"encoding/binary"
	"fmt"
	"unsafe"

	"gorgonia.org/cu"

	"talf/compute/cuda/internal/driver"
)

// Floats that bfloat16 represents exactly, such as stored features, are copied as bfloat16, from page-locked memory of
// their own. It has room for a training step's features, which are packed while the device runs earlier work.
const (
	uploadMost  = 64 << 20 // bytes of page-locked memory, and of the device's
	uploadPiece = 4 << 20  // bytes that are packed before their copy begins
)

// An uploads is the memory of copies in transit to the device.
type uploads struct {
	pinned []byte
	twin   *block // the device's copy of the same bytes
	at     int
}

// widenArgs is kernels/product.cu's WidenArgs.
type widenArgs struct {
	dst, src uint64
	n        int64
}

// uploads16 guesses from the last of many floats whether bfloat16 represents all exactly.
func uploads16(raw []byte) bool {
	var last [32]byte
	return len(raw) > piece && packBF16(last[:], raw[len(raw)-2*len(last):])
}

// upload copies floats to b, as bfloat16 except for pieces with other values.
func (q *queue) upload(b *buffer, raw []byte) {
	u := &q.up
	if !q.uploadRoom(u.at + len(raw)) {
		return
	}
	for i := 0; i < len(raw); i += uploadPiece {
		p := raw[i:min(i+uploadPiece, len(raw))]
		if u.at+len(p) > len(u.pinned) && q.wait() != nil {
			return
		}
		dst := b.mem.ptr + uint64(i)
		if n := len(p) / 2; packBF16(u.pinned[u.at:][:n], p) {
			src := u.twin.ptr + uint64(u.at)
			q.send(src, u.pinned[u.at:][:n])
			launch(q, widen, flatBlocks((len(p)/4+7)/8), 1, 1, &widenArgs{dst: dst, src: src, n: int64(len(p) / 4)})
			u.at += (n + 15) / 16 * 16
			continue
		}
		to := u.pinned[u.at:][:len(p)]
		copy(to, p)
		q.send(dst, to)
		u.at += (len(p) + 15) / 16 * 16
	}
}

// uploadRoom makes room for so many bytes in transit, up to the bound. It reports false if the device has failed.
func (q *queue) uploadRoom(all int) bool {
	u := &q.up
	size := uploadPiece
	for size < min(all, uploadMost) {
		size *= 2
	}
	if size <= len(u.pinned) {
		return q.dev.failure() == nil
	}
	if q.wait() != nil {
		return false
	}
	err := q.dev.do(func() (err error) {
		u.pinned, err = q.dev.host(u.pinned, size)
		return err
	})
	if err == nil {
		u.twin, err = q.dev.alloc("floats on their way", int64(size), false)
	}
	if err != nil {
		q.dev.fail(fmt.Errorf("make room for %d bytes on their way: %w", size, err))
	}
	return err == nil
}

// send queues a copy from page-locked memory.
func (q *queue) send(dst uint64, src []byte) {
	d := q.dev
	d.send(command{f: func() {
		if d.lost.Load() != nil {
			return
		}
		if err := cu.MemcpyHtoDAsync(cu.DevicePtr(dst), unsafe.Pointer(&src[0]), int64(len(src)), d.stream); err != nil {
			d.fail(fmt.Errorf("copy to the device: %w", driver.Wrap(err)))
		}
	}})
}

// packBF16 sets dst to the upper halves of floats. It reports false, with dst undefined, if that loses a bit.
func packBF16(dst, floats []byte) bool {
	const low = 0x0000ffff0000ffff
	for len(floats) >= 8 {
		v := binary.LittleEndian.Uint64(floats)
		if v&low != 0 {
			return false
		}
		binary.LittleEndian.PutUint32(dst, uint32(v>>16)|uint32(v>>32))
		dst, floats = dst[4:], floats[8:]
	}
	if len(floats) == 4 {
		v := binary.LittleEndian.Uint32(floats)
		binary.LittleEndian.PutUint16(dst, uint16(v>>16))
		return v&0xffff == 0
	}
	return true
}
