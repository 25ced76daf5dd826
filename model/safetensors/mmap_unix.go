//go:build unix

package safetensors

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// canRelease says whether opened files are mapped, so that pages can be released.
const canRelease = true

// release drops the whole pages within b, a part of a mapped file, from memory; with ends also the
// pages that b shares with its neighbours. The mapping is shared and read-only, so the file keeps
// their contents.
func release(b []byte, ends bool) {
	page := uintptr(os.Getpagesize())
	first := unsafe.Pointer(unsafe.SliceData(b))
	at := uintptr(first)
	lo, hi := (at+page-1)/page*page, (at+uintptr(len(b)))/page*page
	if ends { // a mapping has whole pages
		lo, hi = at/page*page, (at+uintptr(len(b))+page-1)/page*page
	}
	if lo >= hi {
		return
	}
	// If the advice is refused, the only cost is memory.
	_ = unix.Madvise(unsafe.Slice((*byte)(unsafe.Add(first, int(lo)-int(at))), hi-lo), unix.MADV_DONTNEED)
}
