package cpu

import (
	"bytes"
	"os"
	"runtime"
	"strconv"
	"testing"
	"time"
	"unsafe"
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
		t.Errorf("%d elements of a region %v, want 100 of the heap", len(small), mem)
	}

	// Pieces of a region do not overlap, are aligned, and stay zero after writes to others.
	type piece struct {
		b   []byte
		mem *region
	}
	var pieces []piece
	for i, n := range []int{leastAlloc, leastAlloc + 1, 1 << 20, 5 << 20, regionLen / 2, regionLen/2 + 1, 3 << 20, regionLen, 12 << 20, 12 << 20} {
		b, mem := hugeAlloc[byte](&m, n)
		if len(b) != n || mem == nil {
			t.Fatalf("%d bytes of region %v, want %d of one", len(b), mem, n)
		}
		if at := uintptr(unsafe.Pointer(&b[0])); at%128 != 0 {
			t.Errorf("%d bytes lie at %#x", n, at)
		}
		for _, v := range b {
			if v != 0 {
				t.Fatalf("%d bytes are not zero", n)
			}
		}
		for k := range b {
			b[k] = byte(i + 1)
		}
		pieces = append(pieces, piece{b, mem})
	}
	for i, p := range pieces {
		for _, v := range p.b {
			if v != byte(i+1) {
				t.Fatalf("piece %d holds %d", i, v)
			}
		}
	}
	if pieces[0].mem != pieces[3].mem || pieces[0].mem == pieces[5].mem {
		t.Error("small pieces lie in regions of their own, or a large one does not")
	}
	if at := uintptr(unsafe.Pointer(&pieces[5].b[0])); at%hugePage != 0 {
		t.Errorf("a region lies at %#x", at)
	}

	// A region is unmapped when the last owner of its pieces is gone, and not before.
	first, large := uintptr(unsafe.Pointer(&pieces[0].b[0])), uintptr(unsafe.Pointer(&pieces[5].b[0]))
	keep := pieces[3].mem
	pieces, m.open = nil, nil
	for i := 0; mapped(t, large); i++ {
		if i == 100 {
			t.Fatal("a region without owners is still there")
		}
		runtime.GC()
		time.Sleep(time.Millisecond)
	}
	if !mapped(t, first) {
		t.Error("a region is gone before its last owner")
	}
	runtime.KeepAlive(keep)
}
