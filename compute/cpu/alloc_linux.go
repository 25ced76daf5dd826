package cpu

import (
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	hugePage = 2 << 20
	// regionLen is the length of a mapping that several allocations share. Only pages that were
	// touched take memory, so what a long mapping costs is addresses, and the end of each is a huge page
	// of which a part is in use.
	regionLen = 128 * hugePage
	// leastAlloc is the smallest allocation worth a place in a mapping: a pass
	// misses the TLB once for every small page of a stream.
	leastAlloc = 64 << 10
)

// A region is a mapping on huge pages, if the kernel grants them. It is unmapped when it is no longer
// reachable.
type region struct {
	mem  []byte // from a huge page's start
	used int
}

// A share is a part of a region. Its pages go back to the system when it is no longer reachable.
type share struct{ in *region }

func newRegion(size int) *region {
	page := os.Getpagesize()
	size = (size + page - 1) &^ (page - 1)
	all, err := unix.Mmap(-1, 0, size+hugePage, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return nil
	}
	at := int(-uintptr(unsafe.Pointer(unsafe.SliceData(all))) % hugePage)
	r := &region{mem: all[at : at+size]}
	// A kernel without huge pages refuses the advice, which costs only speed. The end of a region that is no whole
	// huge page is not one that is mostly unused.
	_ = unix.Madvise(r.mem[:size&^(hugePage-1)], unix.MADV_HUGEPAGE)
	runtime.AddCleanup(r, func(all []byte) { _ = unix.Munmap(all) }, all)
	return r
}

// hugeAlloc returns n zeroed elements that live as long as the share, which is nil if they
// belong to the garbage collector. All but small ones lie outside the Go heap on huge pages: a
// pass streams through every weight once, and with small pages the TLB would miss on each.
func hugeAlloc[T byte | uint16 | float32](m *memory, n int) ([]T, *share) {
	const line = 128 // two cache lines, which the hardware fetches together
	size := (n*int(unsafe.Sizeof(T(0))) + line - 1) &^ (line - 1)
	if size < leastAlloc {
		return make([]T, n), nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.open
	switch {
	case size > regionLen/2:
		r = newRegion(size)
	case r == nil || len(r.mem)-r.used < size:
		r = newRegion(regionLen)
		m.open = r
	}
	if r == nil {
		return make([]T, n), nil
	}
	b := r.mem[r.used:][:size]
	r.used += size
	p := &share{r}
	// What the cleanup is given holds the region, which is therefore still mapped then.
	runtime.AddCleanup(p, func(x owned) { release(x.b) }, owned{r, b})
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), n), p
}

// owned is the memory of a share.
type owned struct {
	in *region
	b  []byte
}

// discard gives the whole pages of x, from hugeAlloc with a share, back to the system. They read
// as zeros from then on.
func discard[T uint16 | float32](x []T) {
	release(unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), uintptr(len(x))*unsafe.Sizeof(x[0])))
}

func release(b []byte) {
	page := uintptr(os.Getpagesize())
	skip := -uintptr(unsafe.Pointer(unsafe.SliceData(b))) % page
	if size := uintptr(len(b)); size >= skip+page {
		// If the kernel refuses, the memory stays.
		_ = unix.Madvise(b[skip:skip+(size-skip)/page*page], unix.MADV_DONTNEED)
	}
}
