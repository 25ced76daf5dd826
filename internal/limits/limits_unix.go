//go:build unix

package limits

import "golang.org/x/sys/unix"

// nonblock lets a pipe without a writer open at once. It does not matter to regular files.
const nonblock = unix.O_NONBLOCK
