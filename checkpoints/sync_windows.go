package checkpoints

import (
	"os"

	"golang.org/x/sys/windows"
)

// syncDir does nothing: Windows has no handle of a directory to flush, and NTFS
// journals renames.
func syncDir(string) error { return nil }

// lock takes the exclusive lock of an open file; it ends when the file is closed.
func lock(f *os.File) error {
	return windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, new(windows.Overlapped))
}
