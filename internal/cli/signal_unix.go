//go:build unix

package cli

import (
	"errors"
	"os"
	"os/signal"
	"syscall"
)

// interruptSignals ask for an orderly stop. So does closing a terminal, unless nohup makes the
// process ignore it.
func interruptSignals() []os.Signal {
	all := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		all = append(all, syscall.SIGHUP)
	}
	return all
}

// keepOnBrokenPipes makes writing to a pipe that nobody reads an ordinary error. Without it the
// process would end there, before anything is saved: the Ctrl-C that stops talf in `talf train
// 2>&1 | tee log` stops tee first.
func keepOnBrokenPipes() { signal.Ignore(syscall.SIGPIPE) }

func isBrokenPipe(err error) bool { return errors.Is(err, syscall.EPIPE) }
