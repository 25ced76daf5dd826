//go:build !unix

package mapped

import (
	"math"

	"talf/internal/limits"
)

// Open returns the bytes of a regular file, which must not be written to, and a function that releases
// them.
func Open(path string) ([]byte, func() error, error) {
	b, err := limits.ReadFile(path, math.MaxInt64-1)
	return b, func() error { return nil }, err
}
