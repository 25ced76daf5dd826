//go:build unix

package safetensors

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// canRelease says that tensors lie in mappings of files.
const canRelease = true

// release drops the whole pages of b, part of a mapping of a file, from memory.
// The mapping is shared and read-only: the file keeps what they hold.
func release(b []byte) {
	page := uintptr(os.Getpagesize())
	at := uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	lo := (at + page - 1) / page * page
	hi := (at + uintptr(len(b))) / page * page
	if lo >= hi {
		return
	}
	// Advice that is refused costs only memory.
	_ = unix.Madvise(b[lo-at:hi-at], unix.MADV_DONTNEED)
}
