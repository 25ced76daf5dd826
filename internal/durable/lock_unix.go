//go:build unix

package durable

import (
	"errors"

	"golang.org/x/sys/unix"
)

const noFollow = unix.O_NOFOLLOW

// busy reports whether another process has the lock.
func busy(err error) bool { return errors.Is(err, unix.EWOULDBLOCK) }

// lockless reports whether the file system has no locks.
func lockless(err error) bool {
	return errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.ENOTSUP) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOLCK)
}

// alive reports whether a process of this machine is running.
func alive(pid int) bool {
	err := unix.Kill(pid, 0)
	return pid > 0 && (err == nil || errors.Is(err, unix.EPERM))
}
