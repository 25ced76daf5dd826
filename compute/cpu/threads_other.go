//go:build !linux

package cpu

import "runtime"

// ReadTopology reads what this process has of its machine's processors.
func ReadTopology() Topology {
	n := runtime.NumCPU()
	return Topology{CPUs: n, Cores: n, Nodes: 1, Node: n}
}
