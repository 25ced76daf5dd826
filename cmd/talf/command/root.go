// Package command is the command line of talf, with one file per command, which parses, checks
// and prints. The libraries do the work.
package command

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"talf/compute/cpu/kern"
	"talf/internal/cli"
	"talf/model"
	"talf/train/loss"
)

// Exit codes.
const (
	ExitOK          = cli.ExitOK
	ExitFailure     = cli.ExitFailure
	ExitCrash       = cli.ExitCrash
	ExitUsage       = cli.ExitUsage
	ExitInterrupted = cli.ExitInterrupted
	ExitUnread      = cli.ExitUnread
)

// usagef formats a mistake in the command line. usageError makes err one.
func usagef(format string, args ...any) error { return cli.Usagef(format, args...) }
func usageError(err error) error              { return cli.UsageError{Err: err} }

// An app is what all commands share: the streams and the log.
type app struct {
	in       io.Reader
	out, err io.Writer
	log      *slog.Logger
	verbose  bool
	quiet    bool
	// told, which is for tests, is called for every piece of work of a load.
	told    func(p model.Phase, done, total int64)
	program bool // the process's program is talf
	// resume says how to continue after an interruption. A command sets it once there
	// is something to continue from.
	resume string
	// misspelt returns why no help was printed: the command does not exist.
	misspelt func() error
}

// warn tells the user what could not be checked.
func (a *app) warn(why string) { a.log.Warn(why) }

// talf is the program of this repository.
var talf = &Program{
	Use:   "talf",
	Short: "Train draft heads with a tree-aware loss and decode with them",
	Long: `talf makes a language model decode faster without changing its output.

It labels text with the model's own token trees (preprocess), trains a small draft head
on them (train), and decodes: the head proposes token trees, and the model checks each
in one pass (generate, chat). Start with: talf quickstart

Exit codes: 0 success, 1 failure, 2 a crash (a bug, or no memory; the next run names the
report), 64 wrong usage, 130 interrupted (Ctrl-C, SIGTERM or a closed
terminal; finished work is saved), 141 nobody reads the output. Reports of crashes go to
the directory in TALF_CRASH_DIR, or to talf/crashes in the user's cache; they hold the
stack and the command line, without prompts.`,
	Example: "  talf quickstart\n  talf chat model.gguf\n  talf generate MODEL 'Once upon a time' --head CKPT --method salf",
	own:     commands,
}

// Main executes the process's command line and returns its exit code. If talf crashes, a report
// stays behind.
func Main() int { return talf.Main() }

// Run executes one command line and returns its exit code.
func Run(args []string, in io.Reader, stdout, stderr io.Writer) int {
	return talf.Run(args, in, stdout, stderr)
}

// Tree returns all commands for reading: their names, descriptions and flags.
func Tree() *cobra.Command { return talf.Tree() }

func newRoot(a *app) *cobra.Command { return talf.root(a) }

func (p *Program) root(a *app) *cobra.Command {
	root := &cobra.Command{
		Use: p.Use, Short: p.Short, Long: p.Long, Example: p.Example,
		PersistentPreRunE: func(*cobra.Command, []string) error {
			level := slog.LevelInfo
			if a.verbose {
				level = slog.LevelDebug
			}
			if a.quiet {
				level = slog.LevelWarn
			}
			a.log = slog.New(slog.NewTextHandler(a.err, &slog.HandlerOptions{Level: level}))
			if _, err := kern.For(kern.Best()); err != nil { // whatever the command does with it
				return usageError(err)
			}
			return nil
		},
	}
	root.PersistentFlags().BoolVarP(&a.verbose, "verbose", "v", false, "log details to stderr")
	root.PersistentFlags().BoolVarP(&a.quiet, "quiet", "q", false, "log warnings only, and show no progress")
	for _, add := range p.own {
		root.AddCommand(add(a))
	}
	for _, add := range p.Commands {
		root.AddCommand(add(&Session{a: a, o: benchOptions{tables: noTables{}}}))
	}
	a.misspelt = cli.Explain(root)
	return root
}

// complete makes shells complete the values of flags.
func complete(root *cobra.Command) {
	var losses []string
	for _, m := range loss.Methods() {
		losses = append(losses, m.Name)
	}
	cli.Complete(root, map[string][]string{
		"act-bits": {"8", "16", "auto"},
		"kv-dtype": {"f32", "bf16"},
		"loss":     losses,
		"method":   slices.Concat(methodNames()),
		"verify":   strings.Split(verifierNames(), ", "),
	}, "head")
}

// commands is the table of subcommands, in the order of the pipeline.
var commands = []func(*app) *cobra.Command{
	newQuickstart,
	newHead,
	newPreprocess,
	newTrain,
	newGenerate,
	newChat,
	newBench,
	newServe,
	newScore,
	newDatastore,
	newTokenize,
	newQuantize,
	newEval,
	newExport,
	newImport,
	newReport,
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

// progress begins a stage that is called what and counts in unit ("rows").
func (a *app) progress(what, unit string) *cli.Progress {
	return cli.NewProgress(a.err, what, unit, a.quiet)
}
