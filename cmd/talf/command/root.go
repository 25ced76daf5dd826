// Package command is the command line of talf: one file a command, which parses,
// checks and prints. The libraries do the work.
package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"talf/train/dist"
)

// Exit codes.
const (
	ExitOK          = 0
	ExitFailure     = 1
	ExitUsage       = 2
	ExitInterrupted = 130
	ExitUnread      = 141 // what a shell makes of SIGPIPE
)

// errInterrupted is the cause of a context that a signal cancelled. errUnread is the
// cause where the reader of the output is gone.
var (
	errInterrupted = errors.New("interrupted")
	errUnread      = errors.New("nobody reads what is printed")
)

// A usageError is the caller's mistake in writing the command line.
type usageError struct{ err error }

func (e usageError) Error() string { return e.err.Error() }
func (e usageError) Unwrap() error { return e.err }

func usagef(format string, args ...any) error {
	return usageError{fmt.Errorf(format, args...)}
}

// An app is what all commands share: the streams and the log.
type app struct {
	in       io.Reader
	out, err io.Writer
	log      *slog.Logger
	verbose  bool
	quiet    bool
	// resume says how to continue after an interruption. A command sets it once there
	// is something to continue from.
	resume string
	// misspelt says why no help was printed: the command does not exist.
	misspelt error
}

// Run executes one command line and returns its exit code.
func Run(args []string, in io.Reader, stdout, stderr io.Writer) (code int) {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	gone := func() { cancel(errUnread) }
	out, errw := &stream{w: stdout, gone: gone}, &stream{w: stderr, gone: gone}
	a := &app{in: in, out: out, err: errw}
	stop := a.watch(cancel)
	defer stop()
	defer func() {
		if r := recover(); r != nil {
			_, _ = fmt.Fprintf(errw, "talf: internal error: %v\ntalf: this is a bug: please report it with the command line and the lines below\n%s", r, debug.Stack())
			code = ExitFailure
		}
	}()

	root := newRoot(a)
	root.SetArgs(args)
	root.SetIn(in)
	root.SetOut(out)
	root.SetErr(errw)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		err = a.misspelt
	}
	if err == nil {
		err = out.failed()
	}
	return a.report(ctx, cmd, err)
}

// report prints the outcome of a command as at most a few clear lines.
func (a *app) report(ctx context.Context, cmd *cobra.Command, err error) int {
	if err == nil {
		return ExitOK
	}
	var usage usageError
	switch {
	case errors.As(err, &usage):
		_, _ = fmt.Fprintf(a.err, "talf: %s\ntalf: see '%s --help'\n", oneLine(err), cmd.CommandPath())
		return ExitUsage
	case errors.Is(err, dist.ErrLost): // it says more than what stopped the others
	case errors.Is(context.Cause(ctx), errUnread):
		return ExitUnread
	case errors.Is(context.Cause(ctx), errInterrupted) || errors.Is(err, errInterrupted):
		_, _ = fmt.Fprintln(a.err, "talf: interrupted")
		if a.resume != "" {
			_, _ = fmt.Fprintln(a.err, "talf: "+a.resume)
		}
		return ExitInterrupted
	}
	_, _ = fmt.Fprintln(a.err, "talf: "+oneLine(err))
	return ExitFailure
}

// oneLine keeps an error readable where wrapped ones hold line breaks.
func oneLine(err error) string {
	return strings.Join(strings.Fields(err.Error()), " ")
}

// watch cancels on the first signal, so that a stage can save its work, and quits at once
// on the second, so that nobody has to wait for that.
func (a *app) watch(cancel context.CancelCauseFunc) (stop func()) {
	sig := make(chan os.Signal, 2)
	signal.Notify(sig, interruptSignals()...)
	keepOnBrokenPipes()
	done := make(chan struct{})
	go func() {
		select {
		case <-sig:
		case <-done:
			return
		}
		cancel(errInterrupted)
		_, _ = fmt.Fprintln(a.err, "\ntalf: stopping: what is done is being saved (press Ctrl-C again to quit at once)")
		for {
			select {
			case s := <-sig:
				// A terminal that is closed sends two: one of its own and its shell's.
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

// waitFor returns what f returns, or ctx's error if that comes first. It is for an f that
// waits for something that ctx cannot end, such as a terminal; f then keeps waiting.
func waitFor[T any](ctx context.Context, f func() (T, error)) (T, error) {
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

// Tree returns all commands for reading: what they are called, do and take.
func Tree() *cobra.Command { return newRoot(&app{out: io.Discard, err: io.Discard}) }

func newRoot(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:   "talf",
		Short: "Train draft heads with a tree-aware loss and decode with them",
		Long: `talf makes a language model decode faster without changing its output.

It labels text with the model's own token trees (preprocess), trains a small draft head
on them (train), and decodes: the head proposes token trees, and the model checks each
in one pass (generate, chat). Start with: talf quickstart

Exit codes: 0 success, 1 failure, 2 wrong usage, 130 interrupted (Ctrl-C, SIGTERM or a
closed terminal; finished work is saved), 141 nobody reads the output.`,
		Example:       "  talf quickstart\n  talf generate --model DIR --head CKPT --method salf --prompt 'Once upon a time'",
		Args:          cobra.ArbitraryArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		PersistentPreRun: func(*cobra.Command, []string) {
			level := slog.LevelInfo
			if a.verbose {
				level = slog.LevelDebug
			}
			if a.quiet {
				level = slog.LevelWarn
			}
			a.log = slog.New(slog.NewTextHandler(a.err, &slog.HandlerOptions{Level: level}))
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cmd.Help()
			}
			return unknownCommand(cmd, args[0])
		},
	}
	root.SuggestionsMinimumDistance = 2
	root.PersistentFlags().BoolVarP(&a.verbose, "verbose", "v", false, "log details to stderr")
	root.PersistentFlags().BoolVarP(&a.quiet, "quiet", "q", false, "log warnings only, and show no progress")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		// The flags of a mistyped command are unknown only because it is.
		if args := cmd.Flags().Args(); cmd == root && len(args) > 0 {
			return unknownCommand(cmd, args[0])
		}
		return usageError{flagError(err)}
	})
	help := root.HelpFunc()
	root.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		// "talf trian --help" is the help of the root, to cobra.
		if rest := cmd.Flags().Args(); len(rest) > 0 && cmd.HasAvailableSubCommands() && cmd.Name() != "help" {
			if cmd == root || cmd.Args(cmd, rest) != nil {
				a.misspelt = unknownCommand(cmd, rest[0])
				return
			}
		}
		help(cmd, args)
	})
	for _, add := range commands {
		c := add(a)
		usageArgs(c)
		root.AddCommand(c)
	}
	complete(root)
	root.InitDefaultHelpCmd()
	for _, c := range root.Commands() {
		if c.Name() == "help" {
			c.Args = func(_ *cobra.Command, args []string) error {
				if found, _, err := root.Find(args); err == nil && found == root && len(args) > 0 {
					return unknownCommand(root, args[0])
				}
				return nil
			}
		}
	}
	return root
}

// commands is the table of subcommands, in the order of the pipeline.
var commands = []func(*app) *cobra.Command{
	newQuickstart,
	newPreprocess,
	newTrain,
	newGenerate,
	newChat,
	newBench,
	newScore,
	newDatastore,
	newTokenize,
	newQuantize,
	newEval,
	newExport,
	newImport,
	newInspect,
	newDoctor,
	newVersion,
}

// printJSON writes v to stdout as indented JSON.
func (a *app) printJSON(v any) error {
	enc := json.NewEncoder(a.out)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// printf writes to stdout.
func (a *app) printf(format string, args ...any) {
	_, _ = fmt.Fprintf(a.out, format, args...)
}
