//go:build !unix

package limits

const nonblock = 0
