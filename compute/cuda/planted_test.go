//go:build gpu && linux && cgo

package cuda_test

import (
	"os"
	"path/filepath"
	"slices"
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
	attend, passes := conform("Attend_agrees"), "TestPassesHaveTheSameBitsHoweverTheyAreLaunched"
	// Compiling takes most of the time: bugs that different tests must find are planted together.
	for _, c := range []struct {
		name  string
		bugs  [][2]string
		tests []string // that must fail
	}{
		{"removed barriers, and a removed wait for the kernels in front", [][2]string{
			waitRemoved,
			{"wait_copies<parts == 1>(); // keys\n    barrier();", "wait_copies<parts == 1>(); // keys"},
			{"barrier(); // of a step", "// of a step"},
			{"barrier(); // weights of lines are there", ""},
			{"barrier(); // of column sums", ""},
			{"barrier(); // a step of halves is there, and the one before was read", ""},
			{"barrier(); // a tile of lines is there, and the other one was read", ""},
		}, []string{conform("Gemm_agrees"), conform("TreeAttendGrad"), conform("sums_and_biases"), "TestProductsInBF16", "TestTreeAttentionOnTensorCores", attend, passes}},
		{"a load before the wait for the kernels in front", earlyLoad, []string{passes}},
		{
			"a removed wait for a copy, and a store before the wait for the kernels in front",
			[][2]string{{"wait_copies<parts == 1>(); // keys\n", "\n"}, earlyStore},
			[]string{attend, passes},
		},
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
				if err == nil || !strings.Contains(out, name) || !shows(out) {
					t.Errorf("conformance passes: %v\n%s", err, out)
				}
			}
		})
	}
}

// shows reports whether the output of a test is about its results, or about threads that do not wait.
func shows(out string) bool {
	return slices.ContainsFunc([]string{"off by", "different bits", ", want ", "do not wait for the kernels in front"}, func(s string) bool { return strings.Contains(out, s) })
}

// Bugs of kernels that begin before those in front of them have ended.
var (
	waitRemoved = [2]string{"void gather(const GatherArgs a) {\n  follow();", "void gather(const GatherArgs a) {\n  launch_dependents();"}
	earlyLoad   = [][2]string{
		{
			"void norm(const NormArgs a) {\n  SHARED float part[8];\n  follow();",
			"void norm(const NormArgs a) {\n  SHARED float part[8];\n  launch_dependents();\n  float early = beyond(a.live, block_x()) ? 0 : a.x[block_x() * a.width];\n  wait_prerequisites();",
		},
		{"((float *)a.dst)[r * a.width + i] = n.at(i);", "((float *)a.dst)[r * a.width + i] = n.at(i) + (early - a.x[r * a.width]);"},
	}
	earlyStore = [2]string{
		"void norm(const NormArgs a) {\n  SHARED float part[8];\n  follow();",
		"void norm(const NormArgs a) {\n  SHARED float part[8];\n  launch_dependents();\n  if (!tid() && !beyond(a.live, block_x())) *((float *)a.dst + block_x() * a.width) = 1;\n  wait_prerequisites();",
	}
)

// The sanitizers show what the emulated device, which runs blocks one after the other in memory of its
// host, cannot: a read behind the last element, and stores that another block reads without a fence.
func TestPlantedBugsAreCaughtBySanitizers(t *testing.T) {
	needsEmulated(t)
	if testing.Short() {
		t.Skip("compiles the kernels four times more")
	}
	type finding struct{ test, want string }
	for _, c := range []struct {
		name, sanitizer string
		bugs            [][2]string
		finds           []finding
	}{
		{
			"a read behind the last element", "address",
			[][2]string{{"* inv * weight[i];\n", "* inv * weight[i] + 0 * weight[i + 1];\n"}},
			[]finding{{normTest + ".*", "heap-buffer-overflow"}},
		},
		{"a removed fence and a removed barrier", "races", [][2]string{
			{"    fence();\n    *last = add_ticket", "    *last = add_ticket"},
			{"wait_copies<parts == 1>(); // keys\n    barrier();", "wait_copies<parts == 1>(); // keys"},
		}, []finding{{sharedTest + "BF16.*", "of another block wrote"}, {attendTest + ".*", "of its block"}}},
		{"a fence too early", "races", [][2]string{{"    *last = add_ticket(ticket) + 1 == (u32)a.splits * (a.up ? 2 : 1);\n    fence();", "    *last = add_ticket(ticket) + 1 == (u32)a.splits * (a.up ? 2 : 1);"}}, []finding{{sharedTest + "BF16.*", "of another block wrote"}}},
		{"a load before the wait for the kernels in front", "races", earlyLoad, []finding{{passTest, "reads what a kernel in front wrote, before it waits"}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir, env, err := cudatest.Sanitized(plant(t, c.bugs), c.sanitizer)
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range c.finds {
				if out, err := again(t, f.test, dir, env...); err == nil || !strings.Contains(out, f.want) {
					t.Errorf("want %q: %v\n%.4000s", f.want, err, out)
				}
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
