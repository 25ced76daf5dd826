//go:build (!amd64 && !arm64) || purego

package kern

func offers(c Class) bool { return c == Portable }

func table(Class) *Funcs { return &portable }
