//go:build !amd64 || purego

package kern

func machine(Class) *Funcs { return nil }

func transpose(_, _ []float32, _, _ int) int { return 0 }
