//go:build !unix

package safetensors

// canRelease says that tensors lie in mappings of files.
const canRelease = false

func release([]byte) {}
