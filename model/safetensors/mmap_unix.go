//go:build unix

package safetensors

import (
	"fmt"
	"math"
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

// mapFile returns the file's bytes, read-only, and what ends the mapping.
func mapFile(path string) ([]byte, func() error, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close() // the mapping outlives the descriptor
	st, err := f.Stat()
	if err != nil {
		return nil, nil, err
	}
	if !st.Mode().IsRegular() {
		return nil, nil, fmt.Errorf("%s: not a regular file", path)
	}
	switch n := st.Size(); {
	case n == 0: // nothing can be mapped
		return nil, func() error { return nil }, nil
	case n > math.MaxInt:
		return nil, nil, fmt.Errorf("%s: %d bytes do not fit the address space", path, n)
	}
	b, err := unix.Mmap(int(f.Fd()), 0, int(st.Size()), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, nil, fmt.Errorf("map %s: %w", path, err)
	}
	return b, func() error { return unix.Munmap(b) }, nil
}
