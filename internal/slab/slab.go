// Package slab reuses the memory of slices.
package slab

import "slices"

// Resize returns n elements whose contents are undefined, in s's memory if that suffices.
func Resize[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}

// Zeros is Resize with all elements zero.
func Zeros[T any](s []T, n int) []T {
	s = slices.Grow(s[:0], n)[:n]
	clear(s)
	return s
}

// At returns element i of s, appending as many zeros as needed for s to have one.
func At[T any](s *[]T, i int) *T {
	for len(*s) <= i {
		var zero T
		*s = append(*s, zero)
	}
	return &(*s)[i]
}

// Floats returns n zeros. Many lie on huge pages where the system has them.
func Floats(n int) []float32 {
	x := make([]float32, n)
	if n >= 1<<20 {
		huge(x)
	}
	return x
}
