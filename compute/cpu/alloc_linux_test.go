package cpu

import (
	"bytes"
	"os"
	"runtime"
	"strconv"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"talf/internal/await"
)

// mapped reports whether p lies in a mapping of this process.
func mapped(t *testing.T, p uintptr) bool {
	t.Helper()
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Skip(err)
	}
	for _, line := range bytes.Split(maps, []byte("\n")) {
		from, rest, _ := bytes.Cut(line, []byte("-"))
		to, _, _ := bytes.Cut(rest, []byte(" "))
		lo, err1 := strconv.ParseUint(string(from), 16, 64)
		hi, err2 := strconv.ParseUint(string(to), 16, 64)
		if err1 == nil && err2 == nil && uint64(p) >= lo && uint64(p) < hi {
			return true
		}
	}
	return false
}

func TestHugeAllocSharesRegionsAndGivesThemBack(t *testing.T) {
	var m memory
	small, mem := hugeAlloc[float32](&m, 100)
	if len(small) != 100 || mem != nil {
		t.Errorf("%d elements of a share %v, want 100 of the heap", len(small), mem)
	}

	// Pieces of a region do not overlap, are aligned, and stay zero after writes to others.
	type part struct {
		b   []byte
		mem *share
	}
	var pieces []part
	const step = 4093 // of the bytes of large pieces that are written
	for i, n := range []int{leastAlloc, leastAlloc + 1, 1 << 20, 5 << 20, regionLen / 2, regionLen/2 + 1, 3 << 20, 12 << 20, regionLen / 2, 12 << 20} {
		b, mem := hugeAlloc[byte](&m, n)
		if len(b) != n || mem == nil {
			t.Fatalf("%d bytes of share %v, want %d of one", len(b), mem, n)
		}
		if at := uintptr(unsafe.Pointer(&b[0])); at%128 != 0 {
			t.Errorf("%d bytes lie at %#x", n, at)
		}
		by := 1
		if n > 8<<20 {
			by = step
		}
		for k := 0; k < n; k += by {
			if b[k] != 0 {
				t.Fatalf("%d bytes are not zero", n)
			}
			b[k] = byte(i + 1)
		}
		pieces = append(pieces, part{b, mem})
	}
	for i, p := range pieces {
		by := 1
		if len(p.b) > 8<<20 {
			by = step
		}
		for k := 0; k < len(p.b); k += by {
			if p.b[k] != byte(i+1) {
				t.Fatalf("piece %d holds %d", i, p.b[k])
			}
		}
	}
	if pieces[0].mem.in != pieces[3].mem.in || pieces[0].mem.in == pieces[5].mem.in {
		t.Error("small pieces lie in regions of their own, or a large one does not")
	}
	if at := uintptr(unsafe.Pointer(&pieces[5].b[0])); at%hugePage != 0 {
		t.Errorf("a region lies at %#x", at)
	}

	// A region is unmapped when the last owner of its pieces is gone, and not before.
	first, large := uintptr(unsafe.Pointer(&pieces[0].b[0])), uintptr(unsafe.Pointer(&pieces[5].b[0]))
	keep := pieces[3].mem
	pieces, m.open = nil, nil
	await.Until(t, "a region without owners to go", func() bool {
		runtime.GC()
		return !mapped(t, large)
	})
	if !mapped(t, first) {
		t.Error("a region is gone before its last owner")
	}
	runtime.KeepAlive(keep)
}

// What held memory in a region that others use still gives its pages back, and theirs stay.
func TestHugeAllocGivesPagesOfAShareBack(t *testing.T) {
	var m memory
	const n = 8 << 20
	gone, own := hugeAlloc[byte](&m, n)
	kept, keep := hugeAlloc[byte](&m, n+5)
	if own == nil || keep == nil || own.in != keep.in {
		t.Fatal("two pieces do not share a region")
	}
	for i := range gone {
		gone[i] = 1
	}
	for i := range kept {
		kept[i] = 2
	}
	at := unsafe.Pointer(&gone[0])
	runtime.KeepAlive(own)
	own, gone = nil, nil
	resident := func() (pages int) {
		in := make([]byte, n/os.Getpagesize())
		// The addresses are mapped as long as keep is: pages of a mapping, none of the Go heap.
		if _, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(at), n, uintptr(unsafe.Pointer(&in[0]))); errno != 0 {
			t.Fatal(errno)
		}
		for _, x := range in {
			pages += int(x & 1)
		}
		return pages
	}
	await.Until(t, "the pages of a share without an owner to go", func() bool {
		runtime.GC()
		return resident() <= 1 // the last page is shared
	})
	for i, v := range kept {
		if v != 2 {
			t.Fatalf("byte %d of the piece beside is %d", i, v)
		}
	}
	runtime.KeepAlive(keep)
}
