package mapped

import (
	"bufio"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// ReleaseProgram drops the pages of the running program's file from memory. Those that are in use come back from
// the file system's cache with the next access: after a program has read its flags and a model, most are not. Parts
// in which something was written, by relocation or by a debugger, stay as they are.
func ReleaseProgram() {
	path, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return
	}
	f, err := os.Open("/proc/self/smaps")
	if err != nil {
		return
	}
	defer func() { _ = f.Close() }() // read only
	var from, to uint64
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		word := strings.Fields(lines.Text())
		switch {
		case len(word) == 0:
		case !strings.HasSuffix(word[0], ":"): // the first line of a mapping
			from, to = 0, 0
			if len(word) < 6 || !strings.HasSuffix(lines.Text(), " "+path) || word[1] != "r-xp" && word[1] != "r--p" {
				continue
			}
			lo, hi, _ := strings.Cut(word[0], "-")
			var errLo, errHi error
			from, errLo = strconv.ParseUint(lo, 16, 64)
			to, errHi = strconv.ParseUint(hi, 16, 64)
			if errLo != nil || errHi != nil {
				from, to = 0, 0
			}
		case word[0] == "Anonymous:" && word[1] == "0" && from < to:
			// If the advice is refused, the only cost is memory.
			_, _, _ = unix.Syscall(unix.SYS_MADVISE, uintptr(from), uintptr(to-from), unix.MADV_DONTNEED)
		}
	}
}
