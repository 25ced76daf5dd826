//go:build linux && !race

package cli

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// The race detector's runtime maps more address space than the limit below leaves, and says so
// instead of "out of memory".
func init() {
	crashes["no memory"] = crash{exhaust, "out of memory", "cli.exhaust"}
}

// exhaust asks for more memory than the process may have.
func exhaust() {
	const most = 8 << 30
	if err := unix.Setrlimit(unix.RLIMIT_AS, &unix.Rlimit{Cur: most, Max: most}); err != nil {
		panic(err)
	}
	b := make([]byte, 4*most)
	runtime.KeepAlive(b)
}
