//go:build gpu && linux && cgo

package cuda_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"math"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"talf/compute/cuda"
	"talf/compute/cuda/cudatest"
)

// TestKernelsOfAPassBeginEarly covers which kernels of a pass may begin before those in front of them have ended: if that is asked for, from
// compute capability 9.0 on all but the first, unless the driver lacks what that takes, and with the same results.
func TestKernelsOfAPassBeginEarly(t *testing.T) {
	needsEmulated(t) // which reports its calls
	if os.Getenv(envVictim) != "" {
		printPass(t)
		return
	}
	old, err := cudatest.Driver(cudatest.Kernels(), "-O0", "-DNO_LAUNCH_ATTRIBUTES")
	if err != nil {
		t.Fatal(err)
	}
	var first string
	for _, c := range []struct {
		name, dir string
		env       []string
		early     bool
		log       string
	}{
		{"compute capability 9.0", "", nil, true, ""},
		{"compute capability 12.0", "", []string{"TALF_FAKE_COMPUTE=120"}, true, ""},
		{"compute capability 8.9", "", []string{"TALF_FAKE_COMPUTE=89"}, false, ""},
		{"as the variable says", "", []string{cuda.OverlapVariable + "=1", envVictim + "=none"}, true, ""},
		{"unless asked for", "", []string{envVictim + "=none"}, false, ""},
		{"a driver without attributes of launches", old, nil, false, ""},
		{"a driver that does not capture them", "", []string{"TALF_FAKE_CAPTURE_DEPENDENT=801"}, false, "every kernel begins when the one in front has ended"},
	} {
		t.Run(c.name, func(t *testing.T) {
			out, err := again(t, "TestKernelsOfAPassBeginEarly", c.dir, append([]string{envVictim + "=1", cuda.OverlapVariable + "="}, c.env...)...)
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			var kernels, dependent int
			if _, err := fmt.Sscanf(out[max(0, strings.Index(out, "kernels ")):], "kernels %d dependent %d", &kernels, &dependent); err != nil || kernels < 10 {
				t.Fatalf("%v\n%s", err, out)
			}
			if want := map[bool]int{true: kernels - 1}[c.early]; dependent != want {
				t.Errorf("%d of %d kernels may begin early, want %d", dependent, kernels, want)
			}
			if strings.Contains(out, "WARN") != (c.log != "") || !strings.Contains(out, c.log) {
				t.Errorf("logged\n%s\nwant %q", out, c.log)
			}
			bits := regexp.MustCompile(`bits .*`).FindString(out)
			if first == "" {
				first = bits
			}
			if bits == "" || bits != first {
				t.Errorf("results %s, want %s", bits, first)
			}
		})
	}
}

// printPass prints how many kernels a captured pass has, how many of them may begin early, and its results.
func printPass(t *testing.T) {
	var log bytes.Buffer
	y := newToy(t, cuda.Config{Overlap: os.Getenv(envVictim) != "none", Log: slog.New(slog.NewTextHandler(&log, nil))})
	y.run(true, 0, 5, 1)
	var kernels, dependent int
	for _, call := range calls(t, func() { y.run(true, 0, 5, 1) }) {
		_, _ = fmt.Sscanf(call, "capture %d", &kernels)
		_, _ = fmt.Sscanf(call, "dependent %d", &dependent)
	}
	ids, values := y.run(true, 17, 7, 2)
	var bits []uint32
	for _, v := range values {
		bits = append(bits, math.Float32bits(v))
	}
	fmt.Printf("kernels %d dependent %d\n%sbits %v %x\n", kernels, dependent, &log, ids, bits)
}

// TestPTXWaitsForTheKernelsInFront covers the PTX of kernels that begin early: those that the table of kernels names, and
// no others, wait, and what is loaded as read-only is loaded by those that read weights alone.
func TestPTXWaitsForTheKernelsInFront(t *testing.T) {
	for arch, file := range ptxFiles {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		waiting := cuda.Waiting()
		found := 0
		for _, m := range regexp.MustCompile(`(?s)\.entry (\w+)\((.*?)\n\}\n`).FindAllStringSubmatch(string(text), -1) {
			found++
			waits, triggers := strings.Count(m[2], "griddepcontrol.wait;"), strings.Count(m[2], "griddepcontrol.launch_dependents;")
			if want := arch == "sm_90" && slices.Contains(waiting, m[1]); want != (waits > 0) || want != (triggers == 1) {
				t.Errorf("%s for %s waits at %d places and lets others begin at %d", m[1], arch, waits, triggers)
			}
			if i := strings.Index(strings.ReplaceAll(m[2], "ld.global.nc.L1::no_allocate", ""), "ld.global.nc"); arch == "sm_90" && i >= 0 {
				t.Errorf("%s for %s loads as read-only what is no weight", m[1], arch)
			}
		}
		if found < 70 || len(waiting) < 30 {
			t.Errorf("%d kernels of %s, of which %d wait", found, file, len(waiting))
		}
	}
}
