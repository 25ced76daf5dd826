package vfs

import (
	"os"

	"golang.org/x/sys/windows"
)

// syncDir does nothing: Windows has no handle for flushing a directory, and NTFS journals
// renames.
func syncDir(string) error { return nil }

func flock(f *os.File) error {
	return windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, new(windows.Overlapped))
}
