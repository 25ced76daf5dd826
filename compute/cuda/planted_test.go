//go:build gpu && linux && cgo

package cuda_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"talf/compute/cuda/cudatest"
)

// The emulated device must show what a device would only do sometimes: a barrier
// or a wait for a copy that is missing.
func TestPlantedBugsAreCaught(t *testing.T) {
	needsEmulated(t)
	if testing.Short() {
		t.Skip("compiles the kernels twice more")
	}
	for _, c := range []struct{ name, from, to string }{
		{"a removed barrier", "wait_copies<1>(); // keys\n    barrier();", "wait_copies<1>(); // keys"},
		{"a removed wait for a copy", "wait_copies<1>(); // keys\n", "\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := plant(t, c.from, c.to)
			lib, err := cudatest.Driver(dir, "-O1")
			if err != nil {
				t.Fatal(err)
			}
			out, err := again(t, "TestDeviceConforms$/^Attend_agrees_with_the_reference", lib)
			if err == nil || !strings.Contains(out, "Attend_agrees") || !strings.Contains(out, "off by") {
				t.Fatalf("conformance passes: %v\n%s", err, out)
			}
		})
	}
}

// plant copies the kernels with one change.
func plant(t *testing.T, from, to string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "fake"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range cudatest.Sources {
		b, err := os.ReadFile(filepath.Join(cudatest.Kernels(), name))
		if err != nil {
			t.Fatal(err)
		}
		if name == "kernels.cu" {
			if strings.Count(string(b), from) != 1 {
				t.Fatalf("%q is there %d times", from, strings.Count(string(b), from))
			}
			b = []byte(strings.Replace(string(b), from, to, 1))
		}
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
