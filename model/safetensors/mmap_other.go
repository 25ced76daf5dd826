//go:build !unix

package safetensors

// canRelease says whether opened files are mapped, so that pages can be released.
const canRelease = false

func release([]byte, bool) {}
