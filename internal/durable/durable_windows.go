package durable

import (
	"os"

	"golang.org/x/sys/windows"
)

// SyncDir does nothing: Windows has no handle of a directory to flush, and NTFS
// journals renames.
func SyncDir(string) error { return nil }

// Lock takes the exclusive lock of an open file, or fails at once where another
// process has it. The lock ends when the file is closed.
func Lock(f *os.File) error {
	return windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, new(windows.Overlapped))
}
