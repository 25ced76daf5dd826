package topology

import (
	"io/fs"
	"strconv"
	"strings"
)

// A Memory is what this process may have.
type Memory struct {
	Total     uint64 // bytes; 0: not known
	Available uint64 // bytes that can be taken now
	// Limit says what sets Available if the machine does not, as in "memory.max of
	// /kubepods/pod1".
	Limit string
}

// unlimited is more than any machine has. Version 1 of control groups says "no limit" with nearly
// 2⁶³.
const unlimited = 1 << 60

// processMemory returns the machine's memory, lowered to what the process's control groups and their
// parents allow. memory.high counts as a limit: the kernel slows a process that is above it until it
// stands still. Files in the cache that were not used lately count as available, as in
// MemAvailable.
func processMemory(root fs.FS) Memory {
	var m Memory
	m.Total, m.Available = memory(root)
	eachGroup(root, "memory", func(dir string, version int) {
		names, use, cached := []string{"memory.max", "memory.high"}, "memory.current", "inactive_file"
		if version == 1 {
			names, use, cached = []string{"memory.limit_in_bytes"}, "memory.usage_in_bytes", "total_inactive_file"
		}
		for _, name := range names {
			limit, ok := readNumber(root, dir+"/"+name)
			if !ok || limit >= unlimited {
				continue
			}
			if m.Total == 0 || limit < m.Total {
				m.Total = limit
			}
			used, _ := readNumber(root, dir+"/"+use)
			stat, _ := fs.ReadFile(root, dir+"/memory.stat")
			for line := range strings.Lines(string(stat)) {
				key, value, _ := strings.Cut(strings.TrimSpace(line), " ")
				if n, err := strconv.ParseUint(value, 10, 64); err == nil && key == cached {
					used -= min(used, n)
				}
			}
			if left := limit - min(limit, used); m.Limit == "" && m.Available == 0 || left < m.Available {
				m.Available = left
				group := dir[len("sys/fs/cgroup"):]
				if group == "" {
					group = "/"
				}
				m.Limit = name + " of " + group
			}
		}
	})
	return m
}

// readNumber reads a file of one number. "max" is none.
func readNumber(root fs.FS, name string) (uint64, bool) {
	b, err := fs.ReadFile(root, name)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64)
	return n, err == nil
}
