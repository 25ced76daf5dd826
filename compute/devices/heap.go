package devices

import (
	"math"
	"os"
	"runtime/debug"
	"runtime/metrics"

	"talf/compute/cpu/topology"
)

// LimitHeap sets the Go runtime's limit of memory to what the machine and its control groups leave
// after reserved bytes outside the Go heap, such as keys and values that are still to come, so that
// the garbage collector works harder before the kernel kills the process. Weights, keys and values lie
// outside the heap, where the runtime does not see them. A GOMEMLIMIT in the environment stays in
// force. It returns the limit, or 0 if it set none.
func LimitHeap(reserved int64) int64 {
	if os.Getenv("GOMEMLIMIT") != "" {
		return 0
	}
	mem := topology.ReadMemory()
	if mem.Total == 0 {
		return 0
	}
	s := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(s)
	limit := heapLimit(mem.Available, s[0].Value.Uint64()-s[1].Value.Uint64(), reserved)
	debug.SetMemoryLimit(limit)
	return limit
}

// heapLimit returns the limit of a heap of used bytes. At least half of what is available is left to
// it: a limit near the size of the live heap keeps the collector busy all the time.
func heapLimit(available, used uint64, reserved int64) int64 {
	left := available - min(available/2, uint64(max(0, reserved)))
	return int64(min(used+left, math.MaxInt64))
}
