package cpu

import (
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// ReadTopology reads what this process has of its machine's processors.
func ReadTopology() Topology {
	var set unix.CPUSet
	allowed := func(int) bool { return true }
	if unix.SchedGetaffinity(0, &set) == nil {
		allowed = set.IsSet
	}
	return readTopology(os.DirFS("/"), runtime.NumCPU(), allowed)
}
