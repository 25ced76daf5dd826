//go:build !linux

package mapped

// ReleaseProgram does nothing: only Linux says which pages can be dropped.
func ReleaseProgram() {}
