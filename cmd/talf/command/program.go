package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"talf/infer/bench"
	"talf/infer/bench/rig"
	"talf/infer/decode"
	"talf/infer/prompts"
	"talf/internal/cli"
	"talf/internal/plot"
	"talf/internal/version"
	"talf/train/dist"
)

// A Program is a command line with talf's streams, log, signals and exit codes: talf itself, or one
// that compares methods with more than a user needs, such as lab/cmd/lab.
type Program struct {
	Use, Short, Long, Example string
	// Commands make its subcommands.
	Commands []func(*Session) *cobra.Command
	own      []func(*app) *cobra.Command // of talf
}

// Main executes the process's command line and returns its exit code. If the program crashes, a
// report stays behind.
func (p *Program) Main() int {
	report := cli.BeginCrashReport(os.Stderr, cli.CrashDir(), version.Read().String(),
		cli.CommandLine(p.Tree(), os.Args[1:], "prompt", "stop", "system", "template"))
	defer report.End()
	return p.run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr, report)
}

// Run executes one command line and returns its exit code.
func (p *Program) Run(args []string, in io.Reader, stdout, stderr io.Writer) int {
	return p.run(args, in, stdout, stderr, nil)
}

// Tree returns all commands for reading: their names, descriptions and flags.
func (p *Program) Tree() *cobra.Command { return p.root(&app{out: io.Discard, err: io.Discard}) }

func (p *Program) run(args []string, in io.Reader, stdout, stderr io.Writer, report *cli.CrashReport) int {
	return cli.Run(stdout, stderr, report, func(ctx context.Context, out, errw io.Writer) cli.Outcome {
		a := &app{in: in, out: out, err: errw, program: report != nil}
		root := p.root(a)
		if cli.Completing(args) {
			complete(root)
		}
		root.SetArgs(args)
		root.SetIn(in)
		root.SetOut(out)
		root.SetErr(errw)
		cmd, err := root.ExecuteContextC(ctx)
		if err == nil {
			err = a.misspelt()
		}
		if wrong := (decode.OptionError{}); errors.As(err, &wrong) {
			err = usageError(err)
		}
		return cli.Outcome{
			Err: err, Command: cmd.CommandPath(), Resume: a.resume,
			Foremost: errors.Is(err, dist.ErrLost), // it says more than what stopped the other ranks
		}
	})
}

// Tables choose methods for a comparison, and lay out its figures.
type Tables interface {
	// Flags adds the flags that choose them.
	Flags(f *pflag.FlagSet)
	// Chosen reports whether any are, and finds mistakes in the flags.
	Chosen() (bool, error)
	// Plan adds what they run to c, which so far has the methods of x, and names what they lack.
	Plan(c *bench.Config, x bench.Axes) (without []string, err error)
	// Lay lays them out over the report of such a run.
	Lay(r *bench.Report) *rig.Layout
}

// noTables are those of talf bench.
type noTables struct{}

func (noTables) Flags(*pflag.FlagSet)                             {}
func (noTables) Chosen() (bool, error)                            { return false, nil }
func (noTables) Plan(*bench.Config, bench.Axes) ([]string, error) { return nil, nil }
func (noTables) Lay(*bench.Report) *rig.Layout                    { return nil }

// A Session is a command that compares methods: the flags of talf bench, and what it does with them.
type Session struct {
	a *app
	o benchOptions
}

// Out is where the command prints.
func (s *Session) Out() io.Writer { return s.a.out }

// Printf prints there.
func (s *Session) Printf(format string, args ...any) error {
	_, err := fmt.Fprintf(s.a.out, format, args...)
	return err
}

// Bench returns talf bench, which runs and prints tables in place of its own if some are chosen.
func (s *Session) Bench(tables Tables) *cobra.Command { return newBenchOf(s.a, tables) }

// ModelFlags adds the flags of models and prompts. temperature says what --temperature is for.
func (s *Session) ModelFlags(f *pflag.FlagSet, temperature string) {
	s.o.rigOptions.flags(f)
	s.o.drawFlags(f, temperature)
	s.o.warmupFlag(f)
}

// MethodFlag adds --method, which has no default. doc says what it is for.
func (s *Session) MethodFlag(f *pflag.FlagSet, doc string) {
	f.StringArrayVar(&s.o.methods, "method", nil, doc+methodsHelp())
}

// RecordedFlags adds the flags of what runs on a recording: methods, tables, budgets, temperatures and
// lengths, and those of what is printed.
func (s *Session) RecordedFlags(f *pflag.FlagSet, tables Tables) {
	s.o.tables = tables
	s.o.methodFlags(f, "draft `method` with its parameters (may be repeated): ")
	cli.NumbersVar(f, &s.o.temperatures, "temperature", nil, "temperatures of the recording to compare at (default: all)")
	f.IntVar(&s.o.decode.MaxTokens, "max-tokens", 0, "maximum number of tokens in an answer (default: the recording's)")
	s.o.printing.flags(f)
}

// CheckModels finds what is missing of models and prompts.
func (s *Session) CheckModels(cmd *cobra.Command) error { return s.o.checkGiven(cmd) }

// CheckRecorded finds mistakes in the flags of RecordedFlags.
func (s *Session) CheckRecorded(cmd *cobra.Command) error {
	if err := s.o.tablesOnly(cmd); err != nil {
		return err
	}
	return s.CheckPrint()
}

// Open loads models and prompts, whose texts end where the target would read all of them again, and
// returns a run without methods on them. The caller calls end.
func (s *Session) Open(ctx context.Context) (r *rig.Rig, c bench.Config, end func(), err error) {
	s.o.once = true
	open, err := s.a.openRig(ctx, &s.o.rigOptions)
	if err != nil {
		return nil, c, nil, err
	}
	c = s.o.config(open)
	c.Warmup = s.o.warmup
	return open.Rig, c, open.close, nil
}

// Layers is the number of layers that the model is deepened to, 0 if it is not.
func (s *Session) Layers() int { return s.o.decode.machine.Layers }

// Temperatures and MaxTokens are what the flags say; nil and 0 if they say nothing.
func (s *Session) Temperatures() []float64 { return s.o.temperatures }
func (s *Session) MaxTokens() int          { return s.o.decode.MaxTokens }

// Plan adds the methods and tables of the flags to c, at c's temperatures.
func (s *Session) Plan(c *bench.Config, sources []bench.Source) error {
	s.o.temperatures = c.Temperatures
	return s.a.plan(c, &s.o, sources)
}

// Progress shows the progress of a run of c. The caller calls done when it has finished.
func (s *Session) Progress(c *bench.Config, name string) (done func()) {
	return s.a.benchProgress(c, name)
}

// Report lays out, draws, writes and prints r as the flags say.
func (s *Session) Report(r *rig.Report) error {
	r.Instead = s.o.tables.Lay(r.Report)
	return s.a.reportBench(r, &s.o)
}

// Loader loads models, and shows its progress.
func (s *Session) Loader() *decode.Loader { return s.a.loader() }

// Prompts reads a file of prompts, whose JSON objects template makes texts of.
func (s *Session) Prompts(path, template string) (*prompts.Set, error) {
	return s.a.parsePrompts(&promptSource{path: path, template: template}, nil)
}

// Stage begins a stage that is called what and counts in unit.
func (s *Session) Stage(what, unit string) *cli.Progress { return s.a.progress(what, unit) }

// PrintFlags adds the flags of what is printed, and with a text about it --plot.
func (s *Session) PrintFlags(f *pflag.FlagSet, plot string) {
	s.o.printing.flags(f)
	if plot != "" {
		f.StringVar(&s.o.picture, "plot", "", plot+" to a file that ends in .png or .svg")
	}
}

// CheckPrint finds mistakes in the flags of PrintFlags.
func (s *Session) CheckPrint() error {
	return errors.Join(s.o.printing.check(), checkPlot(s.o.picture))
}

// Print draws figures, and writes and prints r as the flags say; table prints it as text.
func (s *Session) Print(r any, figures []plot.Figure, table func(markdown bool) error) error {
	if s.o.picture != "" && len(figures) == 0 {
		s.a.log.Warn("there is nothing to plot")
		s.o.picture = ""
	}
	return errors.Join(saveFigures(s.o.picture, figures...), s.o.print(s.a, r, table))
}

// Usage makes err a mistake in the command line.
func Usage(err error) error { return usageError(err) }
