package slab

import (
	"syscall"
	"unsafe"
)

// huge asks for huge pages below x: a pass over rows that are far apart misses the TLB at every small page.
func huge(x []float32) {
	const page = 2 << 20
	size := uintptr(len(x)) * unsafe.Sizeof(x[0])
	p := unsafe.Pointer(unsafe.SliceData(x))
	skip := -uintptr(p) % page
	if size < skip+page {
		return
	}
	b := unsafe.Slice((*byte)(unsafe.Add(p, skip)), (size-skip)/page*page)
	// A kernel without huge pages refuses the advice, which costs only speed.
	_ = syscall.Madvise(b, syscall.MADV_HUGEPAGE)
}
