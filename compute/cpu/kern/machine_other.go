//go:build (!amd64 && !arm64) || purego

package kern

func machine(Class) *Funcs { return nil }
