//go:build gpu && linux && cgo

package cuda_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"talf/compute/cuda/cudatest"
)

// The emulated device must always show what a real one would show only sometimes: a missing
// barrier or a missing wait for a copy.
func TestPlantedBugsAreCaught(t *testing.T) {
	needsEmulated(t)
	if testing.Short() {
		t.Skip("compiles the kernels three times more")
	}
	conform := func(test string) string { return "TestDeviceConforms$/^" + test + ".*" }
	attend := []string{conform("Attend_agrees")}
	for _, c := range []struct {
		name  string
		bugs  [][2]string
		tests []string // that must fail
	}{
		{"a removed barrier", [][2]string{{"wait_copies<parts == 1>(); // keys\n    barrier();", "wait_copies<parts == 1>(); // keys"}}, attend},
		{"a removed wait for a copy", [][2]string{{"wait_copies<parts == 1>(); // keys\n", "\n"}}, attend},
		{"removed barriers of training", [][2]string{
			{"barrier(); // of a step", "// of a step"},
			{"barrier(); // weights of lines are there", ""},
			{"barrier(); // of column sums", ""},
			{"barrier(); // a step of halves is there, and the one before was read", ""},
			{"barrier(); // a tile of lines is there, and the other one was read", ""},
		}, []string{conform("Gemm_agrees"), conform("TreeAttendGrad"), conform("sums_and_biases"), "TestProductsInBF16", "TestTreeAttentionOnTensorCores"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := plant(t, c.bugs)
			lib, err := cudatest.Driver(dir, "-O1")
			if err != nil {
				t.Fatal(err)
			}
			for _, test := range c.tests {
				out, err := again(t, test, lib)
				name, _, _ := strings.Cut(test, "$")
				if err == nil || !strings.Contains(out, name) || !strings.Contains(out, "off by") && !strings.Contains(out, "different bits") {
					t.Errorf("conformance passes: %v\n%s", err, out)
				}
			}
		})
	}
}

// The sanitizers show what the emulated device, which runs blocks one after the other in memory of its
// host, cannot: a read behind the last element, and stores that another block reads without a fence.
func TestPlantedBugsAreCaughtBySanitizers(t *testing.T) {
	needsEmulated(t)
	if testing.Short() {
		t.Skip("compiles the kernels four times more")
	}
	for _, c := range []struct {
		name, sanitizer string
		bug             [2]string
		test, want      string
	}{
		{
			"a read behind the last element", "address",
			[2]string{"* inv * weight[i];\n", "* inv * weight[i] + 0 * weight[i + 1];\n"},
			normTest + ".*", "heap-buffer-overflow",
		},
		{"a removed fence", "races", [2]string{"    fence();\n    *last = add_ticket", "    *last = add_ticket"}, sharedTest + "BF16.*", "of another block wrote"},
		{"a fence too early", "races", [2]string{"    *last = add_ticket(ticket) + 1 == (u32)a.splits * (a.up ? 2 : 1);\n    fence();", "    *last = add_ticket(ticket) + 1 == (u32)a.splits * (a.up ? 2 : 1);"}, sharedTest + "BF16.*", "of another block wrote"},
		{"a removed barrier", "races", [2]string{"wait_copies<parts == 1>(); // keys\n    barrier();", "wait_copies<parts == 1>(); // keys"}, attendTest + ".*", "of its block"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir, env, err := cudatest.Sanitized(plant(t, [][2]string{c.bug}), c.sanitizer)
			if err != nil {
				t.Fatal(err)
			}
			out, err := again(t, c.test, dir, env...)
			if err == nil || !strings.Contains(out, c.want) {
				t.Errorf("want %q: %v\n%.4000s", c.want, err, out)
			}
		})
	}
}

// plant copies the kernels with changes, each of one place in one of their files.
func plant(t *testing.T, bugs [][2]string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "fake"), 0o755); err != nil {
		t.Fatal(err)
	}
	planted := make([]int, len(bugs))
	for _, name := range cudatest.Sources {
		b, err := os.ReadFile(filepath.Join(cudatest.Kernels(), name))
		if err != nil {
			t.Fatal(err)
		}
		for i, bug := range bugs {
			planted[i] += strings.Count(string(b), bug[0])
			b = []byte(strings.Replace(string(b), bug[0], bug[1], 1))
		}
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for i, n := range planted {
		if n != 1 {
			t.Fatalf("%q is there %d times", bugs[i][0], n)
		}
	}
	return dir
}
