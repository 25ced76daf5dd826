//go:build !linux

package kern

import "testing"

// weightMemory returns n bytes.
func weightMemory(_ *testing.B, n int) []byte { return make([]byte, n) }
