//go:build !unix

package mapped

import "talf/internal/vfs"

// Open returns the bytes of a file, which must not be written to, and a function that releases
// them.
func Open(path string) ([]byte, func() error, error) {
	b, err := vfs.ReadFile(path)
	return b, func() error { return nil }, err
}
