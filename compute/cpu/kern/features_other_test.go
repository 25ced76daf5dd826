//go:build !amd64 || purego

package kern

func hasVectors() bool { return false }
