package command

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"talf/infer/bench"
	"talf/infer/bench/paper"
	"talf/infer/bench/replay"
	"talf/internal/cli"
	"talf/internal/durable"
)

func newBenchRecord(a *app) *cobra.Command {
	var o benchOptions
	var out string
	rc := replay.Default()
	c := &cobra.Command{
		Use:   "record MODEL --prompts FILE --out FILE",
		Short: "Record what a model and its draft models say, for bench replay",
		Long: `Record decodes every prompt and keeps what the model wrote, the candidates that the
model and its draft models gave, and what passes cost by their rows. At every position
each draft model is asked for its --nodes best nodes, so that bench replay can try trees
of other shapes and sizes without any model. The methods of --method run too, and the
other rows that they ask for are recorded as well: those of chains that go deeper, and of
methods that learn from the model's rows of rejected nodes or of the prompt.`,
		Example: `  talf bench record MODEL --head heads/talf --prompts prompts.jsonl --out answers.rec
  talf bench record MODEL --head heads/talf --draft lm=DIR --prompts maths=gsm8k.jsonl --method linear --method goose --temperature 0,1 --out answers.rec`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cli.Need(cmd, "out"); err != nil {
				return err
			}
			if err := o.checkGiven(cmd); err != nil {
				return err
			}
			if err := rc.Validate(); err != nil {
				return usageError(err)
			}
			f, err := durable.Create(out) // before the work, so that no other run does it too
			if err != nil {
				return err
			}
			defer func() { _ = f.Discard() }() // there was an error
			return a.record(cmd.Context(), &o, rc, out, f)
		},
	}
	f := c.Flags()
	o.rigOptions.flags(f)
	o.drawFlags(f, "temperatures to record at (default 0)")
	f.StringArrayVar(&o.methods, "method", nil, "`method` whose rows are recorded too (may be repeated): "+methodNames())
	f.IntVar(&rc.Width, "width", rc.Width, "candidates of a row")
	f.IntVar(&rc.Nodes, "nodes", rc.Nodes, "nodes of each draft model at every position")
	cli.CountVar(f, &o.warmup, "warmup", bench.Default().Warmup, "first prompts of each set that do not count")
	f.StringVar(&out, "out", "", "file for the recording")
	return c
}

func (a *app) record(ctx context.Context, o *benchOptions, rc replay.Config, out string, f *durable.File) error {
	o.once = true
	r, err := a.openRig(ctx, &o.rigOptions)
	if err != nil {
		return err
	}
	defer r.close()
	c := o.config(r)
	c.Warmup = o.warmup
	if err := a.plan(&c, o, nil, &paper.Kit{Sources: r.Sources}); err != nil {
		return err
	}
	done := a.benchProgress(&c, "record")
	rec, err := replay.Record(ctx, r.Engine, c, r.Sources, rc)
	done()
	if err != nil {
		return err
	}
	rec.Device, rec.Layers = r.Model.Device().Name(), o.decode.machine.Layers
	settings, err := r.Settings(map[string]any{})
	if err != nil {
		return err
	}
	if err := rec.Identify(settings); err != nil {
		return err
	}
	if err := f.Fill(rec.Write); err != nil {
		return fmt.Errorf("%s: %w", out, err)
	}
	a.printf("%s: %d answers\n\n", out, len(rec.Texts))
	t := rec.CostTable()
	return t.Write(a.out, false)
}
