package devices

import (
	"math"
	"runtime/debug"
	"testing"

	"talf/compute/cpu/topology"
)

func TestHeapLimit(t *testing.T) {
	for _, c := range []struct {
		available, used uint64
		reserved, want  int64
	}{
		{1000, 100, 0, 1100},
		{1000, 100, 300, 800},
		{1000, 100, 900, 600}, // half is the heap's
		{1000, 100, math.MaxInt64, 600},
		{0, 100, 10, 100},
		{math.MaxUint64, 0, 0, math.MaxInt64},
	} {
		if got := heapLimit(c.available, c.used, c.reserved); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
}

func TestTheUsersLimitOfTheHeapStays(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	defer debug.SetMemoryLimit(before)
	t.Setenv("GOMEMLIMIT", "1GiB")
	if got := LimitHeap(0); got != 0 || debug.SetMemoryLimit(-1) != before {
		t.Errorf("limit %d, the runtime's is %d, want %d", got, debug.SetMemoryLimit(-1), before)
	}
	if topology.ReadMemory().Total == 0 {
		t.Skip("this system does not say how much memory there is")
	}
	t.Setenv("GOMEMLIMIT", "")
	if got := LimitHeap(1 << 20); got <= 0 || debug.SetMemoryLimit(-1) != got {
		t.Errorf("limit %d, the runtime's is %d", got, debug.SetMemoryLimit(-1))
	}
}
