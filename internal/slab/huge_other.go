//go:build !linux

package slab

// huge does nothing: there is no such advice.
func huge([]float32) {}
