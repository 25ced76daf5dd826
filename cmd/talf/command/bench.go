package command

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"talf/infer/bench"
	"talf/infer/bench/paper"
	"talf/internal/table"
)

// A benchOptions holds bench's flags.
type benchOptions struct {
	rigOptions
	verifiers []string
	papers    []string
	datastore string
	budgets   []int
	warmup    int
	repeat    int
	ranks     int
	check     bool
	parts     bool
	log       string
	picture   string
}

func newBench(a *app) *cobra.Command {
	var o benchOptions
	var p printing
	c := &cobra.Command{
		Use:   "bench --model DIR --head CKPT --prompts FILE",
		Short: "Compare draft methods, heads and verifiers with plain decoding",
		Long: `Bench decodes every prompt with every method, draft model, verifier and budget at
every temperature, in turn, in one process, and prints accepted lengths, speeds and
acceptance by depth: τ is the mean number of tokens per pass of the model, its own
token counted, nothing past the end of an answer. Means and deviations are over
prompts, per set and over all. Without --check=false it fails where an output that
should be plain decoding's is not; sampled outputs of verifiers other than target
have only its distribution and are not compared.

Prompt files are those of generate, chat template included; each is a set with
figures of its own, and of several turns the first is answered. Prompts too long for
the model lose their beginning, and are counted. --prompt-tokens keeps only the
beginning of every text, so that the model writes the rest.

METHOD@VERIFIER gives a method a verifier of its own, --verify one to all others. A
budget bounds the nodes of a tree, root counted, whatever the method's parameters
say.

The column loops is the share of outputs with a stretch of at least 24 tokens in
which a block of at most 32 comes three times or more: every method drafts these
well, and weak models write them.

--paper runs the methods of a publication's table on the model and prompts at hand,
at its temperatures, and prints the figures in its layout; several tables share one
run, in which every method runs once. Heads are told apart by their names: eagle,
hass and talf stand for the losses of those names.

With --log, every measurement is kept as it is made, and the same command goes on
where an interrupted one stopped.

--parts runs every pass again, the model's and the draft model's each among its own
alone, and tells where the time of a round goes: what is lost outside the two
models' passes is what the speed-up lacks of the one that these allow. With --repeat,
every pass counts with the shortest time that it took, which leaves out most of what
other programs did to the machine; of methods whose trees follow the clock, means
are compared with means.

--ranks N also gives each head its own n-th ranked token, n = 1..N, at every
position of the texts, and compares its next guess with the model's: accuracy, and
the expected calibration error over 10 bins of equal width.`,
		Example: `  talf bench --model DIR --head heads/talf --prompts prompts.jsonl
  talf bench --model DIR --head eagle=heads/eagle --head talf=heads/talf --method beam --method salf:th=0.4 --temperature 0,1 --prompts stories.txt --prompt-tokens 16 --ranks 5 --out bench.json
  talf bench --model DIR --head heads/talf --prompts maths=gsm8k.jsonl --prompts code=humaneval.jsonl --limit 20 --log bench.jsonl --plot bench.svg
  talf bench --paper list
  talf bench --model DIR --head heads/talf --draft lm=DIR --prompts maths=gsm8k.jsonl --paper salf:t4 --paper traversal --markdown`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if slices.Contains(o.papers, "list") {
				return a.printPapers()
			}
			if len(o.papers) > 0 && !cmd.Flags().Changed("method") {
				o.methods = nil
			}
			if err := o.checkGiven(cmd); err != nil {
				return err
			}
			if err := p.check(); err != nil {
				return err
			}
			if err := errors.Join(checkPlot(o.picture), canWrite(o.log)); err != nil {
				return err
			}
			r, err := a.bench(cmd.Context(), &o)
			if r == nil {
				return err
			}
			err = errors.Join(err, saveFigures(o.picture, r.figures()...))
			return errors.Join(err, p.print(a, r, func(markdown bool) error { return a.printBench(r, markdown) }))
		},
	}
	c.AddCommand(newBenchDecode(a), newBenchKernels(a), newBenchPerplexity(a), newBenchRecord(a), newBenchReplay(a))
	o.flags(c)
	d := bench.Default()
	f := c.Flags()
	f.StringArrayVar(&o.methods, "method", []string{"beam", "optimal", "salf"}, "draft `method` with its parameters, and @ a verifier (may be repeated): "+methodNames())
	f.StringArrayVar(&o.verifiers, "verify", nil, "`verifier` for methods that name none (may be repeated): "+verifierNames())
	f.StringArrayVar(&o.papers, "paper", nil, "run a publication's `table`, ablation or sweep and print it in its layout, such as goose:t2, goose, all; list lists them (may be repeated)")
	f.StringVar(&o.datastore, "datastore", "", "datastore for rest in the tables of publications, made by talf datastore build")
	f.IntSliceVar(&o.budgets, "budget", nil, "largest trees to compare with, root counted (0: as the method says)")
	countVar(f, &o.warmup, "warmup", d.Warmup, "first prompts of each set that are run and not counted")
	f.IntVar(&o.repeat, "repeat", d.Repeat, "how often to run everything")
	countVar(f, &o.ranks, "ranks", 0, "also measure heads on their own ranked tokens up to this rank")
	f.BoolVar(&o.check, "check", d.Check, "fail where an output that should be plain decoding's is not")
	f.BoolVar(&o.parts, "parts", false, "run all passes again, each model's alone, and tell where the time of a round goes")
	f.StringVar(&o.log, "log", "", "file that keeps every measurement as it is made, to go on from")
	f.StringVar(&o.picture, "plot", "", "draw the figures: a file that ends in .png or .svg")
	p.flags(f)
	return c
}

// printPapers lists what --paper runs.
func (a *app) printPapers() error {
	t := table.Table{Header: []string{"table", "what", "methods"}}
	for _, p := range paper.Exhibits().Lines {
		t.Cells = append(t.Cells, []string{p.Name, p.Doc, fmt.Sprint(len(p.Variants))})
	}
	return t.Write(a.out, false)
}

func (a *app) bench(ctx context.Context, o *benchOptions) (*benchReport, error) {
	papers, err := paper.Select(o.papers)
	if err != nil {
		return nil, usageError{err}
	}
	r, err := a.openRig(ctx, &o.rigOptions)
	if err != nil {
		return nil, err
	}
	defer func() { r.close() }()
	c := o.config(r)
	c.Warmup, c.Check, c.Repeat, c.Parts = o.warmup, o.check, o.repeat, o.parts
	if c.Methods, err = benchMethods(o, r.sources); err != nil {
		return nil, usageError{err}
	}
	kit := &paper.Kit{Sources: r.sources, Datastore: o.datastore, MaxTokens: c.MaxTokens, Temperatures: o.temperatures}
	if len(c.Methods) == 0 && len(papers) > 0 {
		c.Temperatures = nil // theirs
	}
	if err := a.addPapers(&c, papers, kit); err != nil {
		return nil, err
	}
	if err := c.Validate(); err != nil {
		return nil, usageError{err}
	}
	log, err := a.openLog(o, r, &c)
	if err != nil {
		return nil, err
	}
	bar := a.progress("bench", "answers")
	c.Progress = func(done, total int) { bar.set(int64(done), int64(total), "") }
	report, err := bench.Run(ctx, r.engine, c)
	bar.end()
	if closed := log.Close(); err == nil {
		err = closed
	}
	if report == nil {
		return nil, err
	}
	out := &benchReport{
		Report: report, Device: r.model.Device().Name(), DType: r.model.Options().DType.String(),
		ChatTemplate: r.chats, Layers: o.decode.machine.layers, Interrupted: err != nil,
	}
	for i := range papers {
		out.views = append(out.views, papers[i].View(report, kit))
	}
	if o.ranks > 0 && err == nil {
		texts := a.rankTexts(r)
		for _, h := range r.heads {
			items, err := paper.ByRank(ctx, r.model, h.head, texts, o.ranks)
			if err != nil {
				out.Interrupted = true
				return out, err
			}
			out.ByRank = append(out.ByRank, paper.RankLines(h.name, items)...)
		}
	}
	return out, err
}
