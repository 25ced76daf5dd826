//go:build !linux

package topology

import "runtime"

// Read returns the topology that this process has.
func Read() Topology {
	n := runtime.NumCPU()
	return Topology{CPUs: n, Cores: n, Nodes: 1, Node: n}
}

// Memory returns 0: on this system it is not known.
func Memory() (total, available uint64) { return 0, 0 }

// Processor returns "": on this system it is not known.
func Processor() string { return "" }
