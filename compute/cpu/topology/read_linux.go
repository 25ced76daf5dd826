package topology

import (
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// Read returns the topology of this process.
func Read() Topology {
	var set unix.CPUSet
	allowed := func(int) bool { return true }
	if unix.SchedGetaffinity(0, &set) == nil {
		allowed = set.IsSet
	}
	return read(os.DirFS("/"), runtime.NumCPU(), allowed)
}

// Memory returns the machine's total and available memory in bytes, 0 if the kernel does not
// say.
func Memory() (total, available uint64) { return memory(os.DirFS("/")) }

// Processor returns the processor's name, or "" if the kernel does not say.
func Processor() string { return processor(os.DirFS("/")) }
