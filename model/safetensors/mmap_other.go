//go:build !unix

package safetensors

import "os"

// canRelease says that tensors lie in mappings of files.
const canRelease = false

func release([]byte) {}

// mapFile reads the file: its bytes and nothing to undo.
func mapFile(path string) ([]byte, func() error, error) {
	b, err := os.ReadFile(path)
	return b, func() error { return nil }, err
}
