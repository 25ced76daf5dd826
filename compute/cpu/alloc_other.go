//go:build !linux

package cpu

// A region would be a mapping, and a share a part of one: all memory is the Go heap's here.
type (
	region struct{}
	share  struct{}
)

// hugeAlloc returns n zeroed elements, and nil: they belong to the garbage collector.
func hugeAlloc[T byte | uint16 | float32](_ *memory, n int) ([]T, *share) { return make([]T, n), nil }

// discard does nothing: there are no regions.
func discard[T uint16 | float32]([]T) {}
