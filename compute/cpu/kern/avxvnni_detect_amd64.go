//go:build amd64 && !purego

package kern

import "golang.org/x/sys/cpu"

// avxVNNI reports whether the processor has the products of class avxvnni in their encoding of AVX. Tests that give
// them that of AVX-512 put another file in this one's place.
func avxVNNI() bool { return cpu.X86.HasAVXVNNI }
