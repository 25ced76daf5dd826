// Package cli provides what a program with subcommands needs around them: output that notices
// when nobody reads it, signals, exit codes, plain messages about mistakes in a command line,
// values of flags, and progress.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"talf/internal/hint"
	"talf/internal/mapped"
)

// Exit codes. ExitCrash is the one that Go's runtime chooses when it ends a program, which
// cannot be changed; a mistake in the command line therefore has another.
const (
	ExitOK          = 0
	ExitFailure     = 1
	ExitCrash       = 2  // a bug, or no memory
	ExitUsage       = 64 // EX_USAGE of sysexits.h
	ExitInterrupted = 130
	ExitUnread      = 141 // what a shell makes of SIGPIPE
)

// ErrInterrupted is the cause of a context that a signal cancelled.
var ErrInterrupted = errors.New("interrupted")

// errUnread is the cause of a context that ended because the reader of the output is gone.
var errUnread = errors.New("nobody reads what is printed")

// An Outcome is how a command line ended.
type Outcome struct {
	Err     error
	Command string // the command's path, whose help a usage error names
	Resume  string // how to continue after an interruption; "": there is nothing to continue
	// Foremost is set if Err says more than that something was interrupted.
	Foremost bool
}

// Run calls f with guarded output and a context that ends on a signal, or when nobody reads the
// output any more. It reports f's outcome in a few lines on stderr and returns the exit code. If
// f panics, the report, which may be nil, is kept.
func Run(stdout, stderr io.Writer, report *CrashReport, f func(ctx context.Context, stdout, stderr io.Writer) Outcome) (code int) {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	gone := func() { cancel(errUnread) }
	out, errw := &stream{w: stdout, gone: gone}, &stream{w: stderr, gone: gone}
	h := &claims{hangups: make(chan struct{}, 1)}
	ctx = context.WithValue(ctx, claimsKey{}, h)
	stop := watch(errw, cancel, h)
	defer stop()
	defer func() {
		if r := recover(); r != nil {
			Mute(errw, false)
			stack := debug.Stack()
			with := "the command line and the lines below"
			if path := report.keep(fmt.Sprintf("panic: %v\n\n%s", r, stack)); path != "" {
				with = "the file " + path
			}
			_, _ = fmt.Fprintf(errw, "talf: internal error: %v\ntalf: this is a bug: please report it with %s\n%s", r, with, stack)
			code = ExitCrash
		}
	}()
	o := guarded(ctx, out, errw, f)
	if o.Err == nil {
		o.Err = out.failed()
	}
	return o.report(ctx, errw)
}

// guarded calls f. A mapped file that is cut short while it is in use is f's error, not a crash.
func guarded(ctx context.Context, stdout, stderr io.Writer, f func(ctx context.Context, stdout, stderr io.Writer) Outcome) (o Outcome) {
	defer mapped.Guard(&o.Err)()
	return f(ctx, stdout, stderr)
}

// report prints the outcome as a few clear lines.
func (o Outcome) report(ctx context.Context, w io.Writer) int {
	if o.Err == nil {
		return ExitOK
	}
	var usage UsageError
	switch {
	case errors.As(o.Err, &usage):
		_, _ = fmt.Fprintf(w, "talf: %s\ntalf: see '%s --help'\n", oneLine(o.Err), o.Command)
		return ExitUsage
	case o.Foremost:
	case errors.Is(context.Cause(ctx), errUnread):
		return ExitUnread
	case errors.Is(context.Cause(ctx), ErrInterrupted) || errors.Is(o.Err, ErrInterrupted):
		_, _ = fmt.Fprintln(w, "talf: interrupted")
		if o.Resume != "" {
			_, _ = fmt.Fprintln(w, "talf: "+o.Resume)
		}
		return ExitInterrupted
	}
	_, _ = fmt.Fprintln(w, "talf: "+oneLine(o.Err))
	return ExitFailure
}

// oneLine adds hints, and keeps an error readable if the errors that it wraps contain line breaks.
func oneLine(err error) string {
	return strings.Join(strings.Fields(hint.Text(err)), " ")
}

// watch cancels on the first signal, so that a command can save its work, and quits at once on
// the second, so that nobody has to wait for that.
func watch(w io.Writer, cancel context.CancelCauseFunc, h *claims) (stop func()) {
	sig := make(chan os.Signal, 2)
	signal.Notify(sig, interruptSignals()...)
	keepOnBrokenPipes()
	done := make(chan struct{})
	go func() {
		for waiting := true; waiting; {
			select {
			case s := <-sig:
				waiting = h.take(s)
			case <-done:
				return
			}
		}
		cancel(ErrInterrupted)
		_, _ = fmt.Fprintln(w, "\ntalf: stopping (press Ctrl-C again to quit at once)")
		for {
			select {
			case s := <-sig:
				// Closing a terminal sends two: its own and its shell's.
				if s != syscall.SIGHUP {
					os.Exit(ExitInterrupted)
				}
			case <-done:
				return
			}
		}
	}()
	return func() {
		signal.Stop(sig)
		close(done)
	}
}

// Wait returns what f returns, or ctx's error if that comes first. It is for an f that
// waits for something that ctx cannot end, such as a terminal; f then keeps waiting.
func Wait[T any](ctx context.Context, f func() (T, error)) (T, error) {
	type result struct {
		v   T
		err error
		bug any
	}
	c := make(chan result, 1)
	go func() {
		var r result
		defer func() {
			r.bug = recover()
			c <- r
		}()
		r.v, r.err = f()
	}()
	select {
	case r := <-c:
		if r.bug != nil {
			panic(r.bug) // where Run reports it
		}
		return r.v, r.err
	case <-ctx.Done():
		var none T
		return none, ctx.Err()
	}
}

// Waiting is run for a command that has nothing to end: it reads, prints, and writes a small file at most. Once the command's
// context has ended, run is left alone.
func Waiting(run func(*cobra.Command, []string) error) func(*cobra.Command, []string) error {
	return func(c *cobra.Command, args []string) error {
		_, err := Wait(c.Context(), func() (struct{}, error) { return struct{}{}, run(c, args) })
		return err
	}
}
