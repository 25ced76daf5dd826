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

// ReadMemory returns the memory that this process may have, by the machine and its control groups.
func ReadMemory() Memory { return processMemory(os.DirFS("/")) }

// Processor returns the processor's name, or "" if the kernel does not say.
func Processor() string { return processor(os.DirFS("/")) }
