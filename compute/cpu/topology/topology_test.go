package topology

import (
	"fmt"
	"io/fs"
	"runtime"
	"testing"
	"testing/fstest"
)

// machineFiles returns the files of a machine: nodes with cores, each with threads whose numbers
// are cores apart, as Linux counts them.
func machineFiles(nodes, cores, threads int) fstest.MapFS {
	m := fstest.MapFS{}
	n := nodes * cores
	m["sys/devices/system/cpu/online"] = &fstest.MapFile{Data: fmt.Appendf(nil, "0-%d\n", n*threads-1)}
	list := func(first, count int) (s string) {
		for t := range threads {
			if t > 0 {
				s += ","
			}
			if s += fmt.Sprint(first + t*n); count > 1 {
				s += fmt.Sprintf("-%d", first+t*n+count-1)
			}
		}
		return s + "\n"
	}
	for c := range n * threads {
		m[fmt.Sprintf("sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", c)] = &fstest.MapFile{Data: []byte(list(c%n, 1))}
	}
	for i := range nodes {
		m[fmt.Sprintf("sys/devices/system/node/node%d/cpulist", i)] = &fstest.MapFile{Data: []byte(list(i*cores, cores))}
	}
	return m
}

func TestTopology(t *testing.T) {
	all := func(int) bool { return true }
	for name, c := range map[string]struct {
		root    fs.FS
		allowed func(int) bool
		want    Topology
		threads int
	}{
		"laptop":              {machineFiles(1, 8, 2), all, Topology{16, 8, 1, 8, 0}, 8},
		"without hyperthread": {machineFiles(1, 2, 1), all, Topology{2, 2, 1, 2, 0}, 2},
		"two sockets":         {machineFiles(2, 24, 2), all, Topology{96, 48, 2, 24, 0}, 24},
		// 4 CPUs of node 0, two of which share a core, and 2 of node 1
		"affinity": {machineFiles(2, 8, 2), func(c int) bool { return c < 3 || c == 8 || c == 9 || c == 16 }, Topology{6, 5, 2, 3, 0}, 3},
		// one CPU of each core, the second ones
		"second threads": {machineFiles(1, 4, 2), func(c int) bool { return c >= 4 }, Topology{4, 4, 1, 4, 0}, 4},
		"no files":       {fstest.MapFS{}, all, Topology{6, 6, 1, 6, 0}, 6},
		"nothing right":  {fstest.MapFS{"sys/devices/system/cpu/online": &fstest.MapFile{Data: []byte("0-x")}}, all, Topology{6, 6, 1, 6, 0}, 6},
		"nothing allowed": {
			machineFiles(1, 8, 2), func(int) bool { return false }, Topology{6, 6, 1, 6, 0}, 6,
		},
		"no nodes": {
			fstest.MapFS{"sys/devices/system/cpu/online": &fstest.MapFile{Data: []byte("0-1,4")}}, all, Topology{3, 3, 1, 3, 0}, 3,
		},
	} {
		if got := read(c.root, 6, c.allowed); got != c.want || got.Threads() != c.threads {
			t.Errorf("%s: %+v, %d threads, want %+v, %d", name, got, got.Threads(), c.want, c.threads)
		}
	}
}

func TestTopologyHasTheQuota(t *testing.T) {
	const v2, v1 = "0::/a/b\n", "4:memory:/x\n3:cpu,cpuacct:/a\n"
	for name, c := range map[string]struct {
		group   string
		files   map[string]string
		quota   float64
		threads int
	}{
		"none":              {v2, nil, 0, 8},
		"max":               {v2, map[string]string{"a/b/cpu.max": "max 100000\n"}, 0, 8},
		"own":               {v2, map[string]string{"a/b/cpu.max": "350000 100000\n"}, 3.5, 3},
		"parent's":          {v2, map[string]string{"a/b/cpu.max": "400000 100000", "a/cpu.max": "200000 100000"}, 2, 2},
		"container's root":  {v2, map[string]string{"cpu.max": "50000 100000"}, 0.5, 1},
		"as good as none":   {v2, map[string]string{"cpu.max": "9223372036854775807 1"}, 1 << 63, 8},
		"more than cores":   {v2, map[string]string{"cpu.max": "6400000 100000"}, 64, 8},
		"version 1":         {v1, map[string]string{"cpu,cpuacct/a/cpu.cfs_quota_us": "150000\n", "cpu,cpuacct/a/cpu.cfs_period_us": "100000\n"}, 1.5, 1},
		"version 1, linked": {v1, map[string]string{"cpu/a/cpu.cfs_quota_us": "250000\n", "cpu/a/cpu.cfs_period_us": "100000\n"}, 2.5, 2},
		"version 1, none":   {v1, map[string]string{"cpu/a/cpu.cfs_quota_us": "-1\n", "cpu/a/cpu.cfs_period_us": "100000\n"}, 0, 8},
		"both":              {v1 + v2, map[string]string{"cpu/cpu.cfs_quota_us": "500000", "cpu/cpu.cfs_period_us": "100000", "unified/a/cpu.max": "400000 100000"}, 4, 4},
		"upwards":           {"0::/../../etc\n", map[string]string{"cpu.max": "300000 100000"}, 3, 3},
		"nonsense":          {"x\n0:/\n" + v2, map[string]string{"a/b/cpu.max": "many", "a/cpu.max": "1 0"}, 0, 8},
	} {
		m := machineFiles(1, 8, 2)
		m["proc/self/cgroup"] = &fstest.MapFile{Data: []byte(c.group)}
		for f, text := range c.files {
			m["sys/fs/cgroup/"+f] = &fstest.MapFile{Data: []byte(text)}
		}
		got := read(m, 16, func(int) bool { return true })
		if got.Quota != c.quota || got.Threads() != c.threads {
			t.Errorf("%s: a quota of %g, %d threads, want %g, %d", name, got.Quota, got.Threads(), c.quota, c.threads)
		}
	}
}

func TestReadIsOfThisMachine(t *testing.T) {
	m := Read()
	if m.CPUs < 1 || m.CPUs > runtime.NumCPU() || m.Cores < 1 || m.Cores > m.CPUs || m.Node < 1 || m.Node > m.Cores || m.Nodes < 1 {
		t.Errorf("%+v on %d CPUs", m, runtime.NumCPU())
	}
}

func FuzzParseCPUs(f *testing.F) {
	for _, s := range []string{"0-3,8", "0", "", "3-1", "-1", "0-99999999", "0-9,0-9"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		cpus, ok := parseCPUs(s)
		if ok != (len(cpus) > 0) || len(cpus) >= 3*mostCPUs {
			t.Errorf("%q: %d CPUs, %v", s, len(cpus), ok)
		}
		for _, c := range cpus {
			if c < 0 || c >= mostCPUs {
				t.Errorf("%q: CPU %d", s, c)
			}
		}
	})
}

func TestTopologyInWords(t *testing.T) {
	for want, m := range map[string]Topology{
		"2 CPUs of 2 cores": {CPUs: 2, Cores: 2, Nodes: 1, Node: 2},
		"96 CPUs of 48 cores in 2 NUMA nodes, at most 3.5 at a time": {CPUs: 96, Cores: 48, Nodes: 2, Node: 24, Quota: 3.5},
	} {
		if got := m.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestMemoryAndProcessor(t *testing.T) {
	root := fstest.MapFS{
		"proc/meminfo": &fstest.MapFile{Data: []byte("MemTotal:       16 kB\nMemFree: 1 kB\nMemAvailable:    x kB\nMemAvailable:    3 kB\nHugePages_Total:       0\n")},
		"proc/cpuinfo": &fstest.MapFile{Data: []byte("processor\t: 0\nmodel name\t: Planned: 9\nflags: a b\n")},
	}
	if total, available := memory(root); total != 16<<10 || available != 3<<10 {
		t.Errorf("%d of %d bytes, want 3 of 16 KiB", available, total)
	}
	if got, want := processor(root), "Planned: 9"; got != want {
		t.Errorf("processor %q, want %q", got, want)
	}
	empty := fstest.MapFS{}
	if total, available := memory(empty); total != 0 || available != 0 || processor(empty) != "" {
		t.Errorf("without files: %d of %d bytes, processor %q, want nothing", available, total, processor(empty))
	}
}
