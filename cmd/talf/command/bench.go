package command

import (
	"context"
	"errors"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"talf/infer/bench"
	"talf/infer/bench/heads"
	"talf/infer/bench/rig"
	"talf/internal/cli"
	"talf/internal/durable"
)

// A benchOptions holds bench's flags. A Session uses some of them.
type benchOptions struct {
	rigOptions
	methods   []string
	verifiers []string
	tables    Tables
	budgets   []int
	warmup    int
	repeat    int
	ranks     int
	compare   bool // with plain decoding's output
	parts     bool
	log       string
	picture   string
	printing
}

func newBench(a *app) *cobra.Command {
	c := newBenchOf(a, noTables{})
	c.AddCommand(newBenchPerplexity(a))
	return c
}

func newBenchOf(a *app, tables Tables) *cobra.Command {
	o := benchOptions{tables: tables}
	c := &cobra.Command{
		Use:   "bench MODEL --head CKPT --prompts FILE",
		Short: "Compare draft methods, heads and verifiers with plain decoding",
		Long: `Bench decodes every prompt with every method, draft model, verifier and budget at
every temperature. They take turns in one process. It prints acceptance lengths, speeds
and acceptance by depth: τ is the mean number of tokens per pass of the model, its own
token included, up to the end of an answer. Means and standard deviations are over
prompts, for each set and for all together. Where contexts reach 512 tokens, τ is told by their
length, too.

` + bench.Definition + `

` + bench.Rows + `

Bench fails if an output that should equal plain decoding's does not, unless --check=false is
given. Sampled outputs of verifiers other than target share only its distribution.

Prompt files are the same as for generate, chat templates included. Each file is a set
with figures of its own, and only the first turn of a conversation is answered. Prompts
too long for the model lose their beginning; a warning says how many. --prompt-tokens
keeps only the beginning of every text, so that the model writes the rest.

METHOD@VERIFIER gives a method its own verifier; --verify gives one to all the others. A
budget limits the nodes of a tree, root included, whatever the method's parameters say.

--log keeps every measurement as it is made, so that the same command can continue after
an interruption.

--parts runs every pass again, those of the model and those of the draft model each on
their own, and shows where the time of a round goes. The time outside the passes of the
two models is what separates the speed-up from the one that the passes would allow. With
--repeat, every pass counts with its shortest time, which leaves out most of what other
programs do to the machine. Methods whose trees depend on the clock are compared by means.

--ranks N also gives each head its own n-th ranked token, n = 1..N, at every position of
the text that --over names, and compares its next guess with the model's: accuracy, and the
expected calibration error over 10 bins of equal width and over 10 of equal numbers.`,
		Example: `  talf bench MODEL --head heads/talf --prompts prompts.jsonl
  talf bench MODEL --head eagle=heads/eagle --head talf=heads/talf --method beam --method salf:th=0.4 --temperature 0,1 --prompts stories.txt --prompt-tokens 16 --ranks 5 --out bench.json
  talf bench MODEL --head heads/talf --prompts maths=gsm8k.jsonl --prompts code=humaneval.jsonl --limit 20 --log bench.jsonl --plot bench.svg`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.check(cmd); err != nil {
				return err
			}
			r, err := a.bench(cmd.Context(), &o)
			if r == nil {
				return err
			}
			return errors.Join(err, a.reportBench(r, &o))
		},
	}
	f := c.Flags()
	o.rigOptions.flags(f)
	o.drawFlags(f, "temperatures to compare at (default 0)")
	o.decode.output.Flags(f.StringVar, f.BoolVar)
	o.methodFlags(f, "draft `method` with its parameters, optionally followed by @ and a verifier (may be repeated): ")
	f.StringArrayVar(&o.verifiers, "verify", nil, "`verifier` for methods that name none (may be repeated): "+verifierNames())
	d := bench.Default()
	o.warmupFlag(f)
	f.IntVar(&o.repeat, "repeat", d.Repeat, "how often to run everything")
	cli.CountVar(f, &o.ranks, "ranks", 0, "also measure heads on their own ranked tokens up to this rank")
	o.overFlag(f)
	f.BoolVar(&o.compare, "check", d.Check, "fail if an output that should equal plain decoding's does not")
	f.BoolVar(&o.parts, "parts", false, "run all passes again, one model at a time, and show where the time of a round goes")
	f.StringVar(&o.log, "log", "", "file that keeps every measurement as it is made, to continue from")
	o.printing.flags(f)
	return c
}

// methodFlags are the flags of what runs: methods, tables and budgets.
func (o *benchOptions) methodFlags(f *pflag.FlagSet, method string) {
	f.StringArrayVar(&o.methods, "method", []string{"beam", "optimal", "salf"}, method+methodsHelp())
	o.tables.Flags(f)
	f.IntSliceVar(&o.budgets, "budget", nil, "largest trees to compare with, root included (0: the method's own limit)")
	f.StringVar(&o.picture, "plot", "", "draw the figures to a file that ends in .png or .svg")
}

func (o *benchOptions) warmupFlag(f *pflag.FlagSet) {
	cli.CountVar(f, &o.warmup, "warmup", bench.Default().Warmup, "first prompts of each set that are run but not counted")
}

// check finds mistakes that show without a model.
func (o *benchOptions) check(cmd *cobra.Command) error {
	if err := o.tablesOnly(cmd); err != nil {
		return err
	}
	if err := o.checkGiven(cmd); err != nil {
		return err
	}
	var err error
	if o.decode.Format, err = o.decode.output.Format(); err == nil {
		err = cli.Usage(o.decode.Format.Check())
	}
	return errors.Join(err, o.printing.check(), checkPlot(o.picture), durable.Writable(o.log))
}

// tablesOnly drops the default methods if tables are chosen.
func (o *benchOptions) tablesOnly(cmd *cobra.Command) error {
	some, err := o.tables.Chosen()
	if some && !cmd.Flags().Changed("method") {
		o.methods = nil
	}
	return cli.Usage(err)
}

func (a *app) bench(ctx context.Context, o *benchOptions) (*rig.Report, error) {
	o.once = o.parts // what it records
	r, err := a.openRig(ctx, &o.rigOptions)
	if err != nil {
		return nil, err
	}
	defer r.close()
	c := o.config(r)
	c.Warmup, c.Check, c.Repeat, c.Parts = o.warmup, o.compare, o.repeat, o.parts
	if err := errors.Join(r.Hold(&c, o.decode.Format), a.plan(&c, o, r.Sources)); err != nil {
		return nil, err
	}
	log, err := a.openLog(o, r.Rig, &c)
	if err != nil {
		return nil, err
	}
	done := a.benchProgress(&c, "bench")
	report, err := bench.Run(ctx, r.Engine, c)
	done()
	if closed := log.Close(); err == nil {
		err = closed
	}
	if report == nil {
		return nil, err
	}
	out := &rig.Report{
		Report: report, Device: r.Model.Device().Name(), DType: r.Model.TypeName(),
		ChatTemplate: r.Chats, Split: r.Part(), Layers: o.decode.machine.Layers, Interrupted: err != nil,
		Instead: o.tables.Lay(report),
	}
	if o.ranks > 0 && err == nil {
		out.RankText, err = r.ByRank(ctx, o.over, &c, o.ranks, a.ranksCut, func(head string, items [][]heads.Item, texts []heads.Text) error {
			lines, err := heads.RankLines(head, items, texts)
			out.ByRank = append(out.ByRank, lines...)
			return err
		})
		out.Interrupted = err != nil
	}
	return out, err
}
