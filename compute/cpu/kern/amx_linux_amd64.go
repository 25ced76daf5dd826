//go:build !purego

package kern

import (
	"errors"
	"fmt"
	"syscall"
	"unsafe"
)

// Linux gives a process the 8 KiB of tiles per thread only on request (Linux
// Documentation/arch/x86/xstate.rst). The permission covers the whole process, existing and
// later threads.
const (
	archGetXcompPerm = 0x1022
	archReqXcompPerm = 0x1023
	xfeatureTiles    = 18
)

// permitTiles asks the kernel for the permission to use tiles.
func permitTiles() error {
	return askTiles(
		func() syscall.Errno {
			_, _, e := syscall.RawSyscall(syscall.SYS_ARCH_PRCTL, archReqXcompPerm, xfeatureTiles, 0)
			return e
		},
		func() (features uint64, e syscall.Errno) {
			_, _, e = syscall.RawSyscall(syscall.SYS_ARCH_PRCTL, archGetXcompPerm, uintptr(unsafe.Pointer(&features)), 0)
			return features, e
		})
}

// askTiles is permitTiles with given system calls.
func askTiles(request func() syscall.Errno, granted func() (features uint64, e syscall.Errno)) error {
	const notSupported = syscall.Errno(524) // ENOTSUPP, which user space has no name for
	switch e := request(); e {
	case 0:
	case syscall.EINVAL:
		return fmt.Errorf("it is older than Linux 5.16 (%w)", e)
	case syscall.EOPNOTSUPP, notSupported:
		return fmt.Errorf("it does not support tiles on this machine (%w)", syscall.EOPNOTSUPP)
	case syscall.ENOSPC:
		return fmt.Errorf("a thread's signal stack is too small for tiles (%w)", e)
	default:
		return e
	}
	features, e := granted()
	switch {
	case e != 0:
		return e
	case features>>xfeatureTiles&1 == 0:
		return errors.New("the request was accepted without effect")
	}
	return nil
}
