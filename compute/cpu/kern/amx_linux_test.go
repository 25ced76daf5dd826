//go:build amd64 && !purego

package kern

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

func TestAnswersToTheRequestForTiles(t *testing.T) {
	for _, c := range []struct {
		name     string
		req, get syscall.Errno
		granted  uint64
		is       error
		want     string
	}{
		{name: "granted", granted: 1<<18 | 7},
		{name: "an old kernel", req: syscall.EINVAL, is: syscall.EINVAL, want: "older than Linux 5.16"},
		{name: "not supported", req: syscall.EOPNOTSUPP, is: syscall.EOPNOTSUPP, want: "does not support tiles"},
		{name: "not supported, by the kernel's own number", req: 524, is: syscall.EOPNOTSUPP, want: "does not support tiles"},
		{name: "small signal stacks", req: syscall.ENOSPC, is: syscall.ENOSPC, want: "signal stack is too small"},
		{name: "not permitted", req: syscall.EPERM, is: syscall.EPERM, want: "operation not permitted"},
		{name: "no answer", get: syscall.EFAULT, is: syscall.EFAULT, want: "bad address"},
		{name: "no effect", granted: 7, want: "without effect"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := askTiles(
				func() syscall.Errno { return c.req },
				func() (uint64, syscall.Errno) {
					if c.req != 0 {
						t.Error("a refused permission is looked up")
					}
					return c.granted, c.get
				})
			if c.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), c.want) || c.is != nil && !errors.Is(err, c.is) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

// Tile loads and stores must not touch memory beyond a slice.
func TestAMXKernelsStayInsideTheirSlices(t *testing.T) {
	f := amxTable(t)
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	pages := make([][]float32, 3)
	for i := range pages {
		pages[i] = fenced(t)
	}
	for n := 1; n < 40; n++ {
		for _, atEnd := range []bool{false, true} {
			at := func(i, n int) []float32 {
				p := pages[i]
				if atEnd {
					return p[len(p)-n:]
				}
				return p[:n:n]
			}
			rows, planes := 1+n%16, 1+n%2
			// A page is 1024 words, which limits k.
			k := 1 + n%min(40, 31*rows)
			if steps := (k + BF16Step - 1) / BF16Step; rows*steps*BF16AStepLen(planes) > 1024 {
				k = min(k, BF16Step)
			}
			step := (k + BF16Step - 1) / BF16Step * BF16AStepLen(planes)
			half := halfWords(at(2, BF16PanelLen(k)/2))
			f.SplitA(words(at(1, step)), at(2, k), planes)
			f.GemmSplit(at(0, rows*Panel), Panel, words(at(1, rows*step)), step, half, rows, k, planes, n%3 == 0)
			f.QuantA(words(at(1, Q8ABlockLen)), at(2, 1+n%32), planes)
			q8 := octets(at(2, Q8BlockLen/4))
			x := words(at(1, rows*Q8ABlockLen))
			f.GemmQ8(at(0, rows*Panel), Panel, x, Q8ABlockLen, q8, rows, 1, planes, n%3 == 0)
			gemmQ8Tiles(at(0, rows*Panel), Panel, x, Q8ABlockLen, q8, rows, 1, planes, n%3 == 0, 0)
		}
	}
}

// TestAMXUnderEmulation runs the tests of class AMX in this binary under tools/amxemu if the
// processor or the kernel does not allow them to run directly.
func TestAMXUnderEmulation(t *testing.T) {
	switch {
	case emulated:
		t.Skip("this is the emulated run")
	case NoAMX() == nil:
		t.Skip("class AMX is available: its tests run directly")
	case testing.Short():
		t.Skip("takes seconds")
	}
	needVNNI(t)
	t.Parallel() // it waits for a process
	emu := filepath.Join(t.TempDir(), "amxemu")
	build := exec.Command("go", "build", "-o", emu, "./amxemu")
	build.Dir = "../../../tools"
	build.Env = append(os.Environ(), "GOPROXY=off", "GOFLAGS=")
	if out, err := build.CombinedOutput(); err != nil {
		t.Skipf("the emulator cannot be built here: %v\n%s", err, out)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(emu, "-v", exe, "-test.v", "-test.short", "-test.run", `^TestAMX|^Test(Gemm|Activations|Tables|ProductsDo)/^amx$`)
	cmd.Env = append(os.Environ(), EnvClass+"=") // it bounds this process
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err = cmd.Run()
	if cmd.ProcessState != nil && cmd.ProcessState.ExitCode() == 126 {
		t.Skipf("the emulator cannot trace here: %s", &stderr)
	}
	if err != nil {
		t.Fatalf("%v\n%s\n%s", err, &stdout, &stderr)
	}
	for _, want := range []string{
		"TestAMXGemmSplitHasTheOraclesBits", "TestAMXTilesHaveThePortableBitsOfQ8", "TestAMXRowsAreIndependent",
		"TestAMXInManyGoroutines", "TestAMXKernelsStayInsideTheirSlices", "TestGemmQ8HasThePortableBits/amx",
		"TestProductsDoNotAllocate/amx",
	} {
		if !strings.Contains(stdout.String(), "--- PASS: "+want+" ") {
			t.Errorf("%s did not run:\n%s", want, &stdout)
		}
	}
	count := map[string]int{}
	for _, m := range regexp.MustCompile(`(?m)^amxemu: ([a-z0-9]+) ([0-9]+)$`).FindAllStringSubmatch(stderr.String(), -1) {
		if count[m[1]], err = strconv.Atoi(m[2]); err != nil {
			t.Fatal(err)
		}
	}
	for _, op := range []string{"tdpbf16ps", "tdpbssd", "tdpbusd"} {
		if count[op] == 0 {
			t.Errorf("no %s was executed", op)
		}
	}
	if c, r := count["ldtilecfg"], count["tilerelease"]; c != r {
		t.Errorf("tiles were configured %d times and released %d times", c, r)
	}
	t.Logf("%v", count)
}
