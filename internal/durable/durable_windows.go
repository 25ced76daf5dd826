package durable

import (
	"os"

	"golang.org/x/sys/windows"
)

// SyncDir does nothing: Windows has no handle for flushing a directory, and NTFS journals
// renames.
func SyncDir(string) error { return nil }

// Lock takes the exclusive lock of an open file, or fails at once if another process has it.
// Closing the file releases the lock.
func Lock(f *os.File) error {
	return windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, new(windows.Overlapped))
}
