package cli

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/windows"
)

// interruptSignals ask for an orderly stop.
func interruptSignals() []os.Signal { return []os.Signal{os.Interrupt} }

// keepOnBrokenPipes does nothing: on Windows writing to a pipe that nobody reads is an ordinary
// error.
func keepOnBrokenPipes() {}

func isBrokenPipe(err error) bool {
	return errors.Is(err, syscall.ERROR_BROKEN_PIPE) || errors.Is(err, windows.ERROR_NO_DATA)
}
