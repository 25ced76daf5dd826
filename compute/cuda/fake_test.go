//go:build gpu && linux && cgo

package cuda_test

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"talf/compute"
	"talf/compute/cuda"
	"talf/compute/cuda/cudatest"
)

// envDevice says which device a test process has: "real" is this machine's, which whoever runs
// the tests may request; "emulated" is set by TestMain. Tests of features that only the emulated
// device has skip on a real one.
const envDevice = "TALF_TEST_CUDA"

var sanitizer = flag.String("sanitize", "", "check every load and store of the emulated device: address or races")

// TestMain runs the tests in a process whose driver is the emulated device's: a driver is bound
// before main.
func TestMain(m *testing.M) {
	flag.Parse()
	if os.Getenv(envDevice) != "" {
		if *runPTX {
			if err := interpret(); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
		}
		code := m.Run()
		if *runPTX && testing.Verbose() {
			report()
		}
		os.Exit(code)
	}
	var env []string
	dir, err := cudatest.Driver(cudatest.Kernels())
	if *sanitizer != "" {
		dir, env, err = cudatest.Sanitized(cudatest.Kernels(), *sanitizer)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	cmd := exec.Command(os.Args[0], os.Args[1:]...)
	if os.Getenv(cuda.OverlapVariable) == "" { // of most tests, so that they cover what begins early
		env = append(env, cuda.OverlapVariable+"=1")
	}
	cmd.Env = append(append(cudatest.Environ(os.Environ(), dir), env...), envDevice+"=emulated")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// emulated reports whether this process has the emulated device.
func emulated() bool { return os.Getenv(envDevice) == "emulated" }

// needsEmulated skips a test on a real device.
func needsEmulated(t *testing.T) {
	t.Helper()
	if !emulated() {
		t.Skip("for the emulated device")
	}
}

func device(t testing.TB) compute.Device {
	t.Helper()
	d, err := cuda.New(cuda.Default())
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// again runs one test in a separate process, with the driver in dir, or the usual one if dir is
// empty, and env. It returns what the test prints.
func again(t *testing.T, test, dir string, env ...string) (string, error) {
	t.Helper()
	if dir != "" {
		env = cudatest.Environ(env, dir)
	}
	var flags []string
	if *runPTX {
		flags = []string{"-ptx"}
	}
	return run(t, "^"+test+"$", flags, env...)
}

// run runs tests in a separate process, with flags of its own and env.
func run(t *testing.T, tests string, flags []string, env ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], append([]string{"-test.run=" + tests, "-test.v", "-test.short=" + strconv.FormatBool(testing.Short())}, flags...)...)
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}
