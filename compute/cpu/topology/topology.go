// Package topology reads what a machine offers a process: the processors that it may
// use, with cores, NUMA nodes and the quota of its control groups, and memory.
package topology

import (
	"cmp"
	"fmt"
	"io/fs"
	"math"
	"path"
	"strconv"
	"strings"
)

// A Topology is the part of a machine's processors that a process may use, as far as the system
// tells. Outside Linux only CPUs is known.
type Topology struct {
	CPUs  int     `json:"cpus"`       // logical CPUs that it may run on
	Cores int     `json:"cores"`      // their cores: the threads of a core share its units
	Nodes int     `json:"numa_nodes"` // the cores' NUMA nodes
	Node  int     `json:"node_cores"` // cores of the node with the most of them
	Quota float64 `json:"quota"`      // CPU time per second that its control groups grant, in CPUs; 0: no limit
}

// Threads returns how many workers compute fastest: one for each core of one NUMA
// node, but no more than the quota feeds. At the end of every operation all workers
// wait for the slowest, so a worker that shares a core, reads another node's memory or
// is stopped for the rest of a quota period delays all of them.
func (t Topology) Threads() int {
	n := cmp.Or(t.Node, t.Cores, t.CPUs)
	if t.Quota > 0 {
		n = int(min(float64(n), t.Quota))
	}
	return max(1, n)
}

// String returns, for example, "8 CPUs of 4 cores, at most 3.5 at a time".
func (t Topology) String() string {
	s := fmt.Sprintf("%d CPUs of %d cores", t.CPUs, t.Cores)
	if t.Nodes > 1 {
		s += fmt.Sprintf(" in %d NUMA nodes", t.Nodes)
	}
	if t.Quota > 0 {
		s += fmt.Sprintf(", at most %g at a time", t.Quota)
	}
	return s
}

// read reads the topology of a process that may run on the CPUs for which allowed is true, from
// the files of a Linux system. Information from missing or malformed files is left out.
func read(root fs.FS, cpus int, allowed func(cpu int) bool) Topology {
	t := Topology{CPUs: cpus, Cores: cpus, Nodes: 1, Node: cpus, Quota: readQuota(root)}
	const system = "sys/devices/system/"
	online, ok := readCPUs(root, system+"cpu/online")
	if !ok {
		return t
	}
	coreOf := make(map[int]int) // a core by its first CPU
	cores := make(map[int]bool)
	for _, c := range online {
		if !allowed(c) {
			continue
		}
		core := c
		if threads, ok := readCPUs(root, fmt.Sprintf("%scpu/cpu%d/topology/thread_siblings_list", system, c)); ok {
			core = threads[0]
		}
		coreOf[c], cores[core] = core, true
	}
	if len(coreOf) == 0 {
		return t
	}
	t.CPUs, t.Cores, t.Nodes, t.Node = len(coreOf), len(cores), 0, 0
	nodes, _ := fs.Glob(root, system+"node/node[0-9]*")
	for _, n := range nodes {
		list, _ := readCPUs(root, n+"/cpulist")
		own := make(map[int]bool)
		for _, c := range list {
			if core, ok := coreOf[c]; ok {
				own[core] = true
			}
		}
		if len(own) > 0 {
			t.Nodes++
			t.Node = max(t.Node, len(own))
		}
	}
	if t.Nodes == 0 {
		t.Nodes, t.Node = 1, t.Cores
	}
	return t
}

// readCPUs reads a list such as 0-3,8. It reports false for an empty one.
func readCPUs(root fs.FS, name string) ([]int, bool) {
	b, err := fs.ReadFile(root, name)
	if err != nil {
		return nil, false
	}
	return parseCPUs(strings.TrimSpace(string(b)))
}

// mostCPUs is more than any system has.
const mostCPUs = 1 << 16

func parseCPUs(list string) (cpus []int, ok bool) {
	for _, s := range strings.Split(list, ",") {
		from, to, isRange := strings.Cut(s, "-")
		if !isRange {
			to = from
		}
		lo, err1 := strconv.Atoi(from)
		hi, err2 := strconv.Atoi(to)
		if err1 != nil || err2 != nil || lo < 0 || hi < lo || hi >= mostCPUs || len(cpus) >= mostCPUs {
			return nil, false
		}
		for c := lo; c <= hi; c++ {
			cpus = append(cpus, c)
		}
	}
	return cpus, true
}

// readQuota returns the smallest quota of the process's control groups and their
// parents, in CPUs; 0 if there is none. The Go runtime rounds it up, to at least two.
func readQuota(root fs.FS) float64 {
	least := math.Inf(1)
	eachGroup(root, "cpu", func(dir string, version int) {
		read := quota2
		if version == 1 {
			read = quota1
		}
		if q := read(root, dir); q > 0 {
			least = min(least, q)
		}
	})
	if math.IsInf(least, 1) {
		return 0
	}
	return least
}

// eachGroup calls f with the directories of the process's control groups of a controller and of
// their parents, in version 2 and version 1 of control groups. Some of them may not exist.
func eachGroup(root fs.FS, controller string, f func(dir string, version int)) {
	b, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return
	}
	const mount = "sys/fs/cgroup"
	for line := range strings.Lines(string(b)) {
		field := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(field) != 3 {
			continue
		}
		dirs, version := []string{mount, mount + "/unified"}, 2
		if field[1] != "" {
			if !strings.Contains(","+field[1]+",", ","+controller+",") {
				continue
			}
			dirs, version = []string{mount + "/" + field[1], mount + "/" + controller}, 1
		}
		for _, dir := range dirs {
			// In a container the path may be the host's. Then only the root exists.
			for group := path.Clean("/" + field[2]); ; group = path.Dir(group) {
				f(dir+strings.TrimSuffix(group, "/"), version)
				if group == "/" {
					break
				}
			}
		}
	}
}

// quota2 reads the quota of a group of version 2, quota1 of version 1.
func quota2(root fs.FS, dir string) float64 {
	b, _ := fs.ReadFile(root, dir+"/cpu.max")
	if f := strings.Fields(string(b)); len(f) == 2 {
		return perPeriod(f[0], f[1])
	}
	return 0
}

func quota1(root fs.FS, dir string) float64 {
	q, _ := fs.ReadFile(root, dir+"/cpu.cfs_quota_us")
	p, _ := fs.ReadFile(root, dir+"/cpu.cfs_period_us")
	return perPeriod(strings.TrimSpace(string(q)), strings.TrimSpace(string(p)))
}

// perPeriod divides a quota by its period. No quota ("max" or negative) is 0.
func perPeriod(quota, period string) float64 {
	q, err1 := strconv.ParseInt(quota, 10, 64)
	p, err2 := strconv.ParseInt(period, 10, 64)
	if err1 != nil || err2 != nil || q <= 0 || p <= 0 {
		return 0
	}
	return float64(q) / float64(p)
}
