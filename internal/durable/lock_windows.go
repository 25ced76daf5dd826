package durable

import (
	"errors"

	"golang.org/x/sys/windows"
)

const noFollow = 0

// busy reports whether another process has the lock.
func busy(err error) bool { return errors.Is(err, windows.ERROR_LOCK_VIOLATION) }

// lockless reports whether the file system has no locks.
func lockless(err error) bool {
	return errors.Is(err, windows.ERROR_NOT_SUPPORTED) || errors.Is(err, windows.ERROR_INVALID_FUNCTION)
}

// alive reports whether a process of this machine is running.
func alive(pid int) bool {
	p, err := windows.OpenProcess(windows.PROCESS_QUERY_LIMITED_INFORMATION, false, uint32(pid))
	if err != nil {
		return errors.Is(err, windows.ERROR_ACCESS_DENIED)
	}
	var code uint32
	const running = 259 // STILL_ACTIVE
	err = windows.GetExitCodeProcess(p, &code)
	return errors.Join(err, windows.CloseHandle(p)) != nil || code == running
}
