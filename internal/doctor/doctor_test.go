package doctor

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"talf/compute/cpu/topology"
	"talf/compute/devices"
	"talf/internal/version"
)

func TestAReportForPeople(t *testing.T) {
	r := Report{
		Version: version.Info{Version: "v1", Go: "go1", Platform: "p/q", Deps: map[string]string{"b": "v2", "a": "v3"}},
		CPU: CPU{
			Topology: topology.Topology{CPUs: 4, Cores: 4, Nodes: 2, Node: 2}, Features: []string{"avx2", "fma"},
			Device: "cpu avx2", Kernels: []string{"portable", "avx2"}, Barred: []string{"avx512"}, SelfTest: "passed", NoAMX: "no AMX: none", Pairs: "VDPBF16PS", Shapes: "f32=1/4",
		},
		Memory: Memory{Total: 2 << 30, Available: 1 << 30, Limit: "memory.max of /a"},
		GPU: devices.Report{API: "CUDA", Driver: "12.4", Devices: []devices.Info{
			{Device: devices.Name("cuda:0"), Name: "one", Capability: "9.0", Memory: 4 << 30, Free: 3 << 30, CopyRate: 5 << 30},
			{Name: "two", Capability: "2.0", Memory: 1 << 20, Reason: "too old"},
		}},
		Others: []devices.Report{{Reason: "no driver"}},
	}
	const want = `talf      v1, go1, p/q
cpu       4 CPUs of 4 cores in 2 NUMA nodes; avx2 fma
device    cpu avx2; bind talf to one NUMA node, as with numactl --cpunodebind=0 --membind=0
kernels   portable avx2; TALF_CLASS=avx2 bars avx512; no AMX: none
self-test passed
bf16dp    by VDPBF16PS
shapes    f32=1/4
memory    1.0 GiB free of 2.0 GiB, by memory.max of /a
gpu       one, 4.0 GiB of memory, compute capability 9.0, driver for CUDA 12.4; used by --device cuda:0; 3.0 GiB are free, and a copy moves 5.0 GiB a second
gpu       two, 1.0 MiB of memory, compute capability 2.0, driver for CUDA 12.4; cannot be used: too old
gpu       not used: no driver
module    a v3
module    b v2
`
	var b bytes.Buffer
	if err := r.Write(&b); err != nil || b.String() != want {
		t.Errorf("%v\n%s\nwant\n%s", err, &b, want)
	}
	b.Reset()
	r.CPU.Features, r.CPU.Pairs, r.Memory = nil, "", Memory{}
	if err := r.Write(&b); err != nil || !strings.Contains(b.String(), "nodes; no vector extensions in use\n") || !strings.Contains(b.String(), "bf16dp    by plain Go, many times slower than bf16\n") || !strings.Contains(b.String(), "memory    not known on "+runtime.GOOS+"\n") {
		t.Errorf("%v: what is not known is not said:\n%s", err, &b)
	}
	if err := r.Write(full{}); err == nil {
		t.Error("a report that could not be written has no error")
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("disk full") }

func TestTooLittleMemoryIsAProblem(t *testing.T) {
	for _, c := range []struct {
		m    Memory
		want string
	}{
		{Memory{Total: 1 << 30, Available: leastMemory - 1}, "512.0 MiB of memory are free: 512.0 MiB is the least that quickstart needs"},
		{Memory{Total: 1 << 30, Available: leastMemory}, ""},
		{Memory{}, ""}, // not known
	} {
		if got := strings.Join(c.m.problems(), "; "); got != c.want {
			t.Errorf("%+v: %q, want %q", c.m, got, c.want)
		}
	}
}

func TestAFailedSelfTestIsAProblem(t *testing.T) {
	r, err := Examine(func() error { return errors.New("in GemmQ8: wrong") })
	if err != nil {
		t.Fatal(err)
	}
	if r.CPU.SelfTest != "in GemmQ8: wrong" || r.CPU.Shapes != "" || !strings.Contains(strings.Join(r.Problems, ""), "set TALF_CLASS to a class before it: in GemmQ8: wrong") {
		t.Errorf("%+v", r)
	}
}

// Another process runs the self-test: where it ends by a fault, the kernel is named.
func TestAFaultOfASelfTestIsNamed(t *testing.T) {
	const env = "TALF_TEST_SELFTEST"
	switch os.Getenv(env) {
	case "passes":
		if err := RunSelfTest(os.Stdout); err != nil {
			os.Exit(1)
		}
		os.Exit(0)
	case "fault":
		fmt.Println("Gemm\nGemmQ8")
		fmt.Fprintln(os.Stderr, "SIGILL: illegal instruction\nPC=0x1234")
		os.Exit(2)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for how, want := range map[string]string{"passes": "<nil>", "fault": "in GemmQ8: exit status 2: SIGILL: illegal instruction"} {
		cmd := exec.Command(self, "-test.run=^TestAFaultOfASelfTestIsNamed$")
		cmd.Env = append(os.Environ(), env+"="+how)
		if err := selfTestBy(cmd); fmt.Sprint(err) != want {
			t.Errorf("%s: %v, want %s", how, err, want)
		}
	}
	if err := selfTestBy(exec.Command(self + ".none")); err == nil || !strings.Contains(err.Error(), "start the self-test: ") {
		t.Errorf("a program that is not there: %v", err)
	}
}

func TestThisMachineIsExamined(t *testing.T) {
	r, err := Examine(func() error { return SelfTest(false) })
	if err != nil {
		t.Fatal(err)
	}
	if r.CPU.CPUs < 1 || r.CPU.Threads < 1 || r.CPU.Device == "" || len(r.CPU.Kernels) == 0 || r.CPU.Kernels[0] != "portable" || r.CPU.SelfTest != "passed" || len(r.Problems) > 0 && r.Memory.problems() == nil {
		t.Errorf("the CPU is not described: %+v", r.CPU)
	}
	if len(r.GPU.Devices) == 0 && r.GPU.Reason == "" {
		t.Error("there is no GPU, and nothing says why")
	}
}
