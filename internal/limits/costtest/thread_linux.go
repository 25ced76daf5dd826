package costtest

import (
	"time"

	"golang.org/x/sys/unix"
)

// threadTime returns the processor time of this thread.
func threadTime() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_THREAD, &u); err != nil {
		panic(err) // the arguments are valid
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
