package cpu_test

import (
	"fmt"
	"testing"

	"talf/compute"
	"talf/compute/computetest"
	"talf/compute/cpu"
	"talf/compute/cpu/kern"
)

func device(t testing.TB, class kern.Class, threads int) compute.Device {
	t.Helper()
	d, err := cpu.New(cpu.Config{Class: class, Threads: threads})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestDevicesConform(t *testing.T) {
	for _, class := range kern.Available() {
		t.Run(class.String(), func(t *testing.T) {
			computetest.Run(t, func() compute.Device { return device(t, class, 2) })
		})
	}
}

func TestResultsDependNeitherOnClassNorOnThreads(t *testing.T) {
	devices := map[string]func() compute.Device{}
	for _, class := range kern.Available() {
		for _, threads := range []int{1, 2, 3} {
			devices[fmt.Sprintf("%v with %d threads", class, threads)] = func() compute.Device { return device(t, class, threads) }
		}
	}
	computetest.Same(t, devices, func() compute.Device { return device(t, kern.Portable, 1) })
}
