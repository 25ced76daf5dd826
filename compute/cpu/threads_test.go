package cpu

import (
	"runtime"
	"testing"

	"talf/compute/cpu/topology"
)

func TestDefaultThreadsAreThoseOfTheMachine(t *testing.T) {
	if got, want := Default().Threads, min(topology.Read().Threads(), runtime.GOMAXPROCS(0)); got != want {
		t.Errorf("%d threads, want %d", got, want)
	}
	old := runtime.GOMAXPROCS(1)
	defer runtime.GOMAXPROCS(old)
	if n := Default().Threads; n != 1 {
		t.Errorf("%d threads where GOMAXPROCS is 1", n)
	}
}
