package doctor

import (
	"bytes"
	"errors"
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
			Device: "cpu avx2", Kernels: []string{"portable", "avx2"}, NoAMX: "no AMX: none", Pairs: "VDPBF16PS", Shapes: "f32=1/4",
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
kernels   portable avx2; no AMX: none
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

func TestThisMachineIsExamined(t *testing.T) {
	r, err := Examine()
	if err != nil {
		t.Fatal(err)
	}
	if r.CPU.CPUs < 1 || r.CPU.Threads < 1 || r.CPU.Device == "" || len(r.CPU.Kernels) == 0 || r.CPU.Kernels[0] != "portable" {
		t.Errorf("the CPU is not described: %+v", r.CPU)
	}
	if len(r.GPU.Devices) == 0 && r.GPU.Reason == "" {
		t.Error("there is no GPU, and nothing says why")
	}
}
