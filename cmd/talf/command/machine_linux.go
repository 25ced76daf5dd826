package command

import (
	"bufio"
	"os"
	"strconv"
	"strings"
)

// memory returns total and available bytes, or 0 if the kernel does not say.
func memory() (total, available uint64) {
	readProc("/proc/meminfo", func(name, value string) {
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

// processor returns the processor's name, or "" if the kernel does not say.
func processor() (name string) {
	readProc("/proc/cpuinfo", func(key, value string) {
		if key == "model name" {
			name = value
		}
	})
	return name
}

// readProc calls f for every "key: value" of a file.
func readProc(path string, f func(key, value string)) {
	file, err := os.Open(path)
	if err != nil {
		return
	}
	defer file.Close()
	s := bufio.NewScanner(file)
	for s.Scan() {
		if key, value, ok := strings.Cut(s.Text(), ":"); ok {
			f(strings.TrimSpace(key), strings.TrimSpace(value))
		}
	}
}
