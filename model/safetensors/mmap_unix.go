//go:build unix

package safetensors

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// canRelease says whether opened files are mapped, so that pages can be released.
const canRelease = true

// release drops the whole pages within b, a part of a mapped file, from memory. The
// mapping is shared and read-only, so the file keeps their contents.
func release(b []byte) {
	page := uintptr(os.Getpagesize())
	at := uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	lo := (at + page - 1) / page * page
	hi := (at + uintptr(len(b))) / page * page
	if lo >= hi {
		return
	}
	// If the advice is refused, the only cost is memory.
	_ = unix.Madvise(b[lo-at:hi-at], unix.MADV_DONTNEED)
}
