package cpu

import (
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// hugeMin is the smallest allocation worth its own mapping: a few huge pages.
const hugeMin = 4 << 20

// hugeAlloc returns n zeroed elements that live as long as owner. Large ones lie
// outside the Go heap on huge pages where the kernel grants them: a pass streams
// through every weight once, and with small pages the TLB would miss on each.
func hugeAlloc[T byte | uint16 | float32](owner *weight, n int) []T {
	size := n * int(unsafe.Sizeof(T(0)))
	if size < hugeMin {
		return make([]T, n)
	}
	mem, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return make([]T, n)
	}
	// A kernel without huge pages refuses the advice, which costs only speed.
	_ = unix.Madvise(mem, unix.MADV_HUGEPAGE)
	runtime.AddCleanup(owner, func(mem []byte) { _ = unix.Munmap(mem) }, mem)
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(mem))), n)
}
