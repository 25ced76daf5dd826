//go:build !linux

package topology

import "runtime"

// Read returns the topology of this process.
func Read() Topology {
	n := runtime.NumCPU()
	return Topology{CPUs: n, Cores: n, Nodes: 1, Node: n}
}

// Memory returns 0: it is unknown on this system.
func Memory() (total, available uint64) { return 0, 0 }

// Processor returns "": it is unknown on this system.
func Processor() string { return "" }
