//go:build !linux

package cpu

// A region keeps memory outside the Go heap: there is none here.
type region struct{}

// hugeAlloc returns n zeroed elements, and nil: they belong to the garbage collector.
func hugeAlloc[T byte | uint16 | float32](_ *memory, n int) ([]T, *region) { return make([]T, n), nil }

// discard does nothing: there are no regions.
func discard[T uint16 | float32]([]T) {}
