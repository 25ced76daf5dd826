//go:build !linux

package topology

import "runtime"

// Read returns the topology that this process has.
func Read() Topology {
	n := runtime.NumCPU()
	return Topology{CPUs: n, Cores: n, Nodes: 1, Node: n}
}
