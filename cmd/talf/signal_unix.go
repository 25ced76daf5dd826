//go:build unix

package main

import (
	"os"
	"syscall"
)

// interruptSignals ask for an orderly stop.
var interruptSignals = []os.Signal{os.Interrupt, syscall.SIGTERM}
