package topology

import (
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// Read returns the topology that this process has.
func Read() Topology {
	var set unix.CPUSet
	allowed := func(int) bool { return true }
	if unix.SchedGetaffinity(0, &set) == nil {
		allowed = set.IsSet
	}
	return read(os.DirFS("/"), runtime.NumCPU(), allowed)
}
