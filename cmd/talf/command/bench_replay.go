package command

import (
	"context"

	"github.com/spf13/cobra"

	"talf/infer/bench/paper"
	"talf/infer/bench/replay"
	"talf/internal/cli"
)

func newBenchReplay(a *app) *cobra.Command {
	var o benchOptions
	var cost string
	c := &cobra.Command{
		Use:   "replay FILE",
		Short: "Try methods on a recording, without a model",
		Long: `Replay runs methods on a recording of bench record. Acceptance is the same as in decoding,
because a verdict needs only the text, which every method leaves as it is. Times are the
recorded costs of passes by their rows; --cost replaces those of the model. Building and
verifying trees takes no time here. A row that the recording lacks counts as empty, which
can only make a tree smaller; the column missed shows the share of such rows.

Methods that draw children, and verifiers other than greedy and target, need the model.`,
		Example: `  talf bench replay answers.rec --method salf:th=0.2 --method salf:th=0.4 --markdown
  talf bench replay answers.rec --paper salf:t4 --paper dynatree:fig8 --cost passes.json --plot sweep.svg`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.exhibitsOnly(cmd)
			if err := o.printing.check(); err != nil {
				return err
			}
			if err := checkPlot(o.picture); err != nil {
				return err
			}
			r, err := a.replay(cmd.Context(), args[0], cost, &o)
			if err != nil {
				return err
			}
			return a.reportBench(r, &o)
		},
	}
	f := c.Flags()
	o.methodFlags(f, "draft `method` with its parameters (may be repeated): ")
	cli.NumbersVar(f, &o.temperatures, "temperature", nil, "temperatures of the recording to compare at (default: all)")
	f.IntVar(&o.decode.MaxTokens, "max-tokens", 0, "maximum number of tokens in an answer (default: the recording's)")
	f.StringVar(&cost, "cost", "", "file of bench decode --out that says what passes of the model cost")
	o.printing.flags(f)
	return c
}

func (a *app) replay(ctx context.Context, path, cost string, o *benchOptions) (*paper.Report, error) {
	exhibits, err := paper.Select(o.exhibits)
	if err != nil {
		return nil, usageError(err)
	}
	rec, err := replay.Open(path)
	if err != nil {
		return nil, err
	}
	if cost != "" {
		if err := rec.ReadCosts(cost); err != nil {
			return nil, err
		}
	}
	if o.temperatures == nil {
		o.temperatures = rec.Temperatures()
	}
	c := rec.Config(o.temperatures, o.decode.MaxTokens)
	player := replay.New(rec)
	kit := &paper.Kit{Sources: player.Sources(), Datastore: o.datastore, MaxTokens: c.MaxTokens, Temperatures: o.temperatures}
	if err := kit.Only(exhibits, rec.Temperatures()); err != nil {
		return nil, usageError(err)
	}
	if err := a.plan(&c, o, exhibits, kit); err != nil {
		return nil, err
	}
	done := a.benchProgress(&c, "replay")
	report, err := player.Run(ctx, c)
	done()
	if err != nil {
		return nil, err
	}
	out := &paper.Report{Report: report, Device: rec.Device + ", replayed", DType: "as recorded", Layers: rec.Layers}
	out.Lay(exhibits, kit)
	return out, nil
}
