package kern

import (
	"testing"

	"golang.org/x/sys/unix"
)

// weightMemory returns n bytes allocated like weights: on huge pages, if the kernel grants them.
func weightMemory(b *testing.B, n int) []byte {
	n = (n + 2<<20 - 1) &^ (2<<20 - 1)
	mem, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		b.Fatal(err)
	}
	_ = unix.Madvise(mem, unix.MADV_HUGEPAGE) // a refusal costs only speed
	b.Cleanup(func() {
		if err := unix.Munmap(mem); err != nil {
			b.Error(err)
		}
	})
	return mem
}
