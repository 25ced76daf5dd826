//go:build !linux

package topology

import "runtime"

// Read returns the topology of this process.
func Read() Topology {
	n := runtime.NumCPU()
	return Topology{CPUs: n, Cores: n, Nodes: 1, Node: n}
}

// ReadMemory returns nothing: memory is unknown on this system.
func ReadMemory() Memory { return Memory{} }

// Processor returns "": it is unknown on this system.
func Processor() string { return "" }
