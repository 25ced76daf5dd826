package servetest

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"

	"talf/internal/limits/costtest"
)

// Resident returns the memory of this process in bytes after a collection, 0 if the system does not
// say. Under the race detector it is what the Go runtime keeps for the program: the detector notes who
// used a byte in shadow memory of its own and does not return that with the byte, so that each page
// that was ever used stays resident several times.
func Resident() (bytes int) {
	debug.FreeOSMemory()
	if costtest.RaceDetector {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int(m.Sys - m.HeapReleased)
	}
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	var size, pages int
	if _, err := fmt.Sscan(string(text), &size, &pages); err != nil {
		return 0
	}
	return pages * os.Getpagesize()
}

// Files returns how many files and connections this process has open, 0 if the system does not say.
func Files() int {
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0
	}
	return len(all)
}
