//go:build !amd64 || purego

package kern

// unpackAsm returns nil: plain Go unpacks compact formats.
func unpackAsm(string) func(dst, src *byte, blocks int) { return nil }
