package topology

import (
	"testing"
	"testing/fstest"
)

func TestMemoryIsWhatTheControlGroupsLeave(t *testing.T) {
	const (
		mib  = 1 << 20
		info = "MemTotal: 16777216 kB\nMemAvailable: 8388608 kB\n" // 16 and 8 GiB
	)
	for _, c := range []struct {
		name   string
		groups string
		files  map[string]string
		want   Memory
	}{
		{"no groups", "", nil, Memory{16 << 30, 8 << 30, ""}},
		{"no limit", "0::/a/b\n", map[string]string{
			"a/b/memory.max": "max\n", "a/b/memory.high": "max\n", "a/b/memory.current": "5000000\n",
		}, Memory{16 << 30, 8 << 30, ""}},
		{"a limit", "0::/a/b\n", map[string]string{
			"a/b/memory.max": "1073741824\n", "a/b/memory.current": "268435456\n",
		}, Memory{1 << 30, 768 * mib, "memory.max of /a/b"}},
		{"its cache is available", "0::/a/b\n", map[string]string{
			"a/b/memory.max": "1073741824\n", "a/b/memory.current": "268435456\n",
			"a/b/memory.stat": "anon 1\nactive_file 99999999\ninactive_file 134217728\n",
		}, Memory{1 << 30, 896 * mib, "memory.max of /a/b"}},
		{"a parent has less left", "0::/a/b\n", map[string]string{
			"a/b/memory.max": "1073741824\n", "a/b/memory.current": "268435456\n",
			"a/memory.max": "2147483648\n", "a/memory.current": "2013265920\n",
		}, Memory{1 << 30, 128 * mib, "memory.max of /a"}},
		{"a high mark", "0::/a\n", map[string]string{
			"a/memory.max": "2147483648\n", "a/memory.high": "1073741824\n", "a/memory.current": "0\n",
		}, Memory{1 << 30, 1 << 30, "memory.high of /a"}},
		{"more than its limit", "0::/a\n", map[string]string{
			"a/memory.max": "1048576\n", "a/memory.current": "2097152\n",
		}, Memory{mib, 0, "memory.max of /a"}},
		{"a container sees only the root", "0::/kubepods/pod1\n", map[string]string{
			"memory.max": "1073741824\n", "memory.current": "0\n",
		}, Memory{1 << 30, 1 << 30, "memory.max of /"}},
		{"a limit above the machine's", "0::/a\n", map[string]string{
			"a/memory.max": "1099511627776\n", "a/memory.current": "0\n",
		}, Memory{16 << 30, 8 << 30, ""}},
		{"version 1", "4:cpu:/x\n3:memory:/a\n", map[string]string{
			"memory/a/memory.limit_in_bytes": "1073741824\n", "memory/a/memory.usage_in_bytes": "536870912\n",
			"memory/a/memory.stat": "inactive_file 7\ntotal_inactive_file 268435456\n",
			"cpu/x/memory.max":     "1\n",
		}, Memory{1 << 30, 768 * mib, "memory.limit_in_bytes of /memory/a"}},
		{"version 1 without a limit", "3:memory:/a\n", map[string]string{
			"memory/a/memory.limit_in_bytes": "9223372036854771712\n", "memory/a/memory.usage_in_bytes": "536870912\n",
		}, Memory{16 << 30, 8 << 30, ""}},
	} {
		root := fstest.MapFS{"proc/meminfo": {Data: []byte(info)}, "proc/self/cgroup": {Data: []byte(c.groups)}}
		for name, text := range c.files {
			root["sys/fs/cgroup/"+name] = &fstest.MapFile{Data: []byte(text)}
		}
		if got := processMemory(root); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
	// A limit is known where the machine's memory is not.
	root := fstest.MapFS{
		"proc/self/cgroup":             {Data: []byte("0::/\n")},
		"sys/fs/cgroup/memory.max":     {Data: []byte("4096")},
		"sys/fs/cgroup/memory.current": {Data: []byte("96")},
	}
	if got, want := processMemory(root), (Memory{4096, 4000, "memory.max of /"}); got != want {
		t.Errorf("without meminfo: %+v, want %+v", got, want)
	}
}
