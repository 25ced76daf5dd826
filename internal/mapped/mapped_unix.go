//go:build unix

package mapped

import (
	"fmt"
	"math"

	"golang.org/x/sys/unix"

	"talf/internal/limits"
)

// Open returns the bytes of a regular file, which must not be written to, and a function that
// releases them. See the package comment for what happens if the file is truncated before that.
func Open(path string) ([]byte, func() error, error) {
	f, err := limits.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = f.Close() }() // the mapping outlives the descriptor
	st, err := f.Stat()
	if err != nil {
		return nil, nil, err
	}
	switch n := st.Size(); {
	case n == 0: // nothing can be mapped
		return nil, func() error { return nil }, nil
	case n > math.MaxInt:
		return nil, nil, fmt.Errorf("%s: %d bytes do not fit the address space", path, n)
	}
	b, err := unix.Mmap(int(f.OS().Fd()), 0, int(st.Size()), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, nil, fmt.Errorf("map %s: %w", path, err)
	}
	m := mappingOf(path, b)
	add(m)
	return b, func() error {
		remove(m)
		return unix.Munmap(b)
	}, nil
}
