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

// classes returns the classes to test. Under the race detector, which makes the
// portable kernels many times slower, the fastest stands for all: what may race
// is the same for every class.
func classes() []kern.Class {
	if raceEnabled {
		return []kern.Class{kern.Best()}
	}
	return kern.Available()
}

// formats are those whose products have the same bits on all classes.
var formats = []compute.DType{compute.F32, compute.BF16, compute.Q8}

func TestDevicesConform(t *testing.T) {
	for _, class := range classes() {
		t.Run(class.String(), func(t *testing.T) {
			computetest.Run(t, func() compute.Device { return device(t, class, 2) })
		})
	}
}

func TestResultsDependNeitherOnClassNorOnThreads(t *testing.T) {
	counts := []int{1, 2, 3}
	if testing.Short() {
		counts = []int{3}
	}
	devices := map[string]func() compute.Device{}
	for _, class := range classes() {
		for _, threads := range counts {
			devices[fmt.Sprintf("%v with %d threads", class, threads)] = func() compute.Device { return device(t, class, threads) }
		}
	}
	computetest.Same(t, formats, devices, func() compute.Device { return device(t, classes()[0], 1) })
}

// TestBitsArePinned holds every platform and build to the same bits: GOAMD64=v3
// and arm64 fuse products and sums unless the code says otherwise.
func TestBitsArePinned(t *testing.T) {
	const want = "210673f6e90463c79831c2bb99e62f5dd3495d681c101835a3a34e4b8e03553f"
	for _, class := range classes() {
		t.Run(class.String(), func(t *testing.T) {
			if got := computetest.Digest(t, formats, func() compute.Device { return device(t, class, 2) }); got != want {
				t.Errorf("digest of the results is %s, want %s", got, want)
			}
		})
	}
}

func TestNewRefusesBadConfigurations(t *testing.T) {
	t.Setenv(cpu.EnvClass, "sse9")
	for name, c := range map[string]cpu.Config{
		"an unknown class in the environment": cpu.Default(),
		"no threads":                          {Class: kern.Portable},
		"too many threads":                    {Class: kern.Portable, Threads: 1 << 20},
		"a class that does not exist":         {Class: 77, Threads: 1},
	} {
		if _, err := cpu.New(c); err == nil {
			t.Errorf("New accepts %s", name)
		}
	}
	t.Setenv(cpu.EnvClass, "portable")
	c := cpu.Default()
	if c.Class != kern.Portable || c.Threads < 1 {
		t.Fatalf("Default() = %+v with %s=portable", c, cpu.EnvClass)
	}
	d, err := cpu.New(cpu.Config{Class: c.Class, Threads: 3})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if got, want := d.Name(), "cpu portable, 3 threads"; got != want {
		t.Errorf("Name() = %q, want %q", got, want)
	}
}
