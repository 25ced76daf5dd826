package topology

import (
	"bufio"
	"io/fs"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/cpu"
)

// memory reads a machine's memory from the files of a Linux system.
func memory(root fs.FS) (total, available uint64) {
	readPairs(root, "proc/meminfo", func(name, value string) {
		kib, err := strconv.ParseUint(strings.TrimSuffix(value, " kB"), 10, 64)
		if err != nil {
			return
		}
		switch name {
		case "MemTotal":
			total = kib << 10
		case "MemAvailable":
			available = kib << 10
		}
	})
	return total, available
}

// processor reads the name of the processor from the files of a Linux system.
func processor(root fs.FS) (name string) {
	readPairs(root, "proc/cpuinfo", func(key, value string) {
		if key == "model name" {
			name = value
		}
	})
	return name
}

// readPairs calls f for every "key: value" of a file.
func readPairs(root fs.FS, name string, f func(key, value string)) {
	file, err := root.Open(name)
	if err != nil {
		return
	}
	defer func() { _ = file.Close() }()
	s := bufio.NewScanner(file)
	for s.Scan() {
		if key, value, ok := strings.Cut(s.Text(), ":"); ok {
			f(strings.TrimSpace(key), strings.TrimSpace(value))
		}
	}
}

// Features lists the instruction sets that matter to the kernels or to the reader of a
// bug report.
func Features() []string {
	var has []string
	add := func(name string, ok bool) {
		if ok {
			has = append(has, name)
		}
	}
	switch runtime.GOARCH {
	case "amd64":
		add("avx2", cpu.X86.HasAVX2)
		add("fma", cpu.X86.HasFMA)
		add("f16c", cpu.X86.HasF16C)
		add("avx512f", cpu.X86.HasAVX512F)
		add("avx512bw", cpu.X86.HasAVX512BW)
		add("avx512dq", cpu.X86.HasAVX512DQ)
		add("avx512vl", cpu.X86.HasAVX512VL)
		add("avxvnni", cpu.X86.HasAVXVNNI)
		add("avx512vnni", cpu.X86.HasAVX512VNNI)
		add("avx512bf16", cpu.X86.HasAVX512BF16)
		add("amx-bf16", cpu.X86.HasAMXBF16)
		add("amx-int8", cpu.X86.HasAMXInt8)
	case "arm64":
		add("asimd", cpu.ARM64.HasASIMD)
		add("asimddp", cpu.ARM64.HasASIMDDP)
		add("sve", cpu.ARM64.HasSVE)
		add("sve2", cpu.ARM64.HasSVE2)
	}
	return has
}
