package command

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"talf/infer/bench"
	"talf/infer/bench/paper"
	"talf/infer/bench/replay"
	"talf/internal/durable"
	"talf/internal/table"
)

func newBenchRecord(a *app) *cobra.Command {
	var o benchOptions
	var out string
	rc := replay.Default()
	c := &cobra.Command{
		Use:   "record --model DIR --prompts FILE --out FILE",
		Short: "Record what a model and its draft models say, for bench replay",
		Long: `Record decodes every prompt and keeps what the model wrote, the candidates that it
and its draft models gave, and what passes cost by their rows. At every position
each draft model is asked for its --nodes best nodes, so that bench replay can try
trees of other shapes and sizes without any model. Rows off these are recorded for
the methods of --method, which are run too: chains that go deeper, and methods that
learn from the model's rows of rejected nodes or of the prompt.`,
		Example: `  talf bench record --model DIR --head heads/talf --prompts prompts.jsonl --out answers.rec
  talf bench record --model DIR --head heads/talf --draft lm=DIR --prompts maths=gsm8k.jsonl --method linear --method goose --temperature 0,1 --out answers.rec`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := need(cmd, "out"); err != nil {
				return err
			}
			if err := o.checkGiven(cmd); err != nil {
				return err
			}
			if err := canWrite(out); err != nil {
				return err
			}
			if err := rc.Validate(); err != nil {
				return usageError{err}
			}
			return a.record(cmd.Context(), &o, rc, out)
		},
	}
	o.flags(c)
	f := c.Flags()
	f.StringArrayVar(&o.methods, "method", nil, "`method` whose rows are recorded too (may be repeated): "+methodNames())
	f.IntVar(&rc.Width, "width", rc.Width, "candidates of a row")
	f.IntVar(&rc.Nodes, "nodes", rc.Nodes, "nodes of each draft model at every position")
	countVar(f, &o.warmup, "warmup", bench.Default().Warmup, "first prompts of each set that do not count")
	f.StringVar(&out, "out", "", "file for the recording")
	return c
}

func (a *app) record(ctx context.Context, o *benchOptions, rc replay.Config, out string) error {
	r, err := a.openRig(ctx, &o.rigOptions)
	if err != nil {
		return err
	}
	defer func() { r.close() }()
	c := o.config(r)
	c.Warmup = o.warmup
	if c.Methods, err = benchMethods(o, r.sources); err != nil {
		return usageError{err}
	}
	if err := c.Validate(); err != nil {
		return usageError{err}
	}
	bar := a.progress("record", "answers")
	c.Progress = func(done, total int) { bar.set(int64(done), int64(total), "") }
	rec, err := replay.Record(ctx, r.engine, c, r.sources, rc)
	bar.end()
	if err != nil {
		return err
	}
	rec.Model, rec.Device, rec.Layers = r.model.Hash(), r.model.Device().Name(), o.decode.machine.layers
	if err := durable.Write(out, func(w io.Writer) error { return rec.Write(w) }); err != nil {
		return fmt.Errorf("%s: %w", out, err)
	}
	a.printf("%s: %d answers\n\n", out, len(rec.Texts))
	return costTable(rec).Write(a.out, false)
}

// costTable gives what passes cost, model by model.
func costTable(r *replay.Recording) *table.Table {
	t := &table.Table{Header: []string{"model", "rows recorded", "ms of a pass by its rows"}}
	for i := range r.Channels {
		c := &r.Channels[i]
		rows, costs := 0, ""
		for _, n := range c.Rows {
			rows += len(n.Parent)
		}
		for k, x := range c.Costs {
			if k > 0 && x.Rows < 2*c.Costs[k-1].Rows && k < len(c.Costs)-1 && x.Rows&(x.Rows-1) != 0 {
				continue
			}
			costs += fmt.Sprintf(" %d: %.2f", x.Rows, 1e3*x.Seconds)
		}
		t.Cells = append(t.Cells, []string{c.Name, fmt.Sprint(rows), costs})
	}
	return t
}

func newBenchReplay(a *app) *cobra.Command {
	var o benchOptions
	var p printing
	var cost string
	c := &cobra.Command{
		Use:   "replay FILE",
		Short: "Try methods on a recording, without a model",
		Long: `Replay runs methods on what bench record kept. Acceptance is that of decoding: a
verdict needs only the text, which every method leaves as it is. Times are made of
the recorded costs of passes by their rows, or those of --cost for the model's;
building trees and verdicts cost nothing here. A row that the recording lacks is
taken for empty, which can only make a tree smaller: the column missed says how many
of the rows asked for these are.

Methods whose children are drawn at random, and verifiers other than greedy and
target, need the model.`,
		Example: `  talf bench replay answers.rec --method salf:th=0.2 --method salf:th=0.4 --markdown
  talf bench replay answers.rec --paper salf:t4 --paper dynatree:fig8 --cost passes.json --plot sweep.svg`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := p.check(); err != nil {
				return err
			}
			if err := checkPlot(o.picture); err != nil {
				return err
			}
			if len(o.papers) > 0 && !cmd.Flags().Changed("method") {
				o.methods = nil
			}
			r, err := a.replay(cmd, args[0], cost, &o)
			if err != nil {
				return err
			}
			err = saveFigures(o.picture, r.figures()...)
			return errors.Join(err, p.print(a, r, func(markdown bool) error { return a.printBench(r, markdown) }))
		},
	}
	f := c.Flags()
	f.StringArrayVar(&o.methods, "method", []string{"beam", "optimal", "salf"}, "draft `method` with its parameters (may be repeated): "+methodNames())
	f.StringArrayVar(&o.papers, "paper", nil, "run a publication's `table`, as bench does (may be repeated)")
	f.StringVar(&o.datastore, "datastore", "", "datastore for rest in the tables of publications")
	f.IntSliceVar(&o.budgets, "budget", nil, "largest trees to compare with, root counted (0: as the method says)")
	numbersVar(f, &o.temperatures, "temperature", nil, "temperatures of the recording to compare at (default: all)")
	f.IntVar(&o.decode.MaxTokens, "max-tokens", 0, "maximum number of tokens in an answer (default: the recording's)")
	f.StringVar(&cost, "cost", "", "what passes of the model cost: a file of bench decode --out")
	f.StringVar(&o.picture, "plot", "", "draw the figures: a file that ends in .png or .svg")
	p.flags(f)
	return c
}

func (a *app) replay(cmd *cobra.Command, path, cost string, o *benchOptions) (*benchReport, error) {
	papers, err := paper.Select(o.papers)
	if err != nil {
		return nil, usageError{err}
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // only read
	rec, err := replay.Read(bufio.NewReader(f))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if cost != "" {
		if err := readCosts(cost, &rec.Channels[0]); err != nil {
			return nil, err
		}
	}
	c := bench.Default()
	c.Sets, c.Seeds, c.Warmup, c.Temperatures = rec.Sets(), rec.Seeds(), rec.Warmup, o.temperatures
	if c.Temperatures == nil {
		c.Temperatures = rec.Temperatures()
		o.temperatures = c.Temperatures
	}
	if c.MaxTokens = o.decode.MaxTokens; c.MaxTokens == 0 {
		c.MaxTokens = rec.MaxTokens
	}
	player := replay.New(rec)
	if c.Methods, err = benchMethods(o, player.Sources()); err != nil {
		return nil, usageError{err}
	}
	kit := &paper.Kit{Sources: player.Sources(), Datastore: o.datastore, MaxTokens: c.MaxTokens, Temperatures: o.temperatures}
	for i := range papers {
		papers[i].Temperatures = slices.DeleteFunc(slices.Clone(kit.At(&papers[i])), func(t float64) bool { return !slices.Contains(rec.Temperatures(), t) })
		if len(papers[i].Temperatures) == 0 {
			return nil, usagef("--paper %s: the recording has none of its temperatures", papers[i].Name)
		}
	}
	if len(c.Methods) == 0 && len(papers) > 0 {
		c.Temperatures = nil // theirs
	}
	if err := a.addPapers(&c, papers, kit); err != nil {
		return nil, err
	}
	c.Tokenizer = rec.Tokenizer
	if err := c.Validate(); err != nil {
		return nil, usageError{err}
	}
	bar := a.progress("replay", "answers")
	c.Progress = func(done, total int) { bar.set(int64(done), int64(total), "") }
	report, err := player.Run(cmd.Context(), c)
	bar.end()
	if err != nil {
		return nil, err
	}
	out := &benchReport{Report: report, Device: rec.Device + ", replayed", DType: "as recorded", Layers: rec.Layers}
	for i := range papers {
		out.views = append(out.views, papers[i].View(report, kit))
	}
	return out, nil
}

// readCosts takes what passes cost from a report of bench decode: the first
// model's, of the longest context.
func readCosts(path string, c *replay.Channel) error {
	var r machineReport
	found, err := durable.ReadJSON(path, &r)
	if err != nil {
		return err
	}
	if !found {
		return fmt.Errorf("%s: there is no such file", path)
	}
	context := 0
	for _, p := range r.Passes {
		if p.Model == r.Passes[0].Model && !p.Prompt {
			context = max(context, p.Context)
		}
	}
	var costs []replay.Cost
	for _, p := range r.Passes {
		if p.Model == r.Passes[0].Model && !p.Prompt && p.Context == context && p.Rows > 0 && p.Median >= 0 {
			costs = append(costs, replay.Cost{Rows: p.Rows, Seconds: p.Median / 1e3, Passes: 1})
		}
	}
	if len(costs) == 0 {
		return errors.New(path + ": it has no passes: want a file of bench decode --out")
	}
	c.SetCosts(costs)
	return nil
}
