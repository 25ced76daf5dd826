package command

import (
	"context"
	"fmt"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"talf/infer/bench"
	"talf/infer/bench/paper"
	"talf/infer/bench/replay"
	"talf/internal/durable"
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
can only make a tree smaller: the column missed shows the share of such rows among those
asked for.

Methods that draw children at random, and verifiers other than greedy and target, need the
model.`,
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
	numbersVar(f, &o.temperatures, "temperature", nil, "temperatures of the recording to compare at (default: all)")
	f.IntVar(&o.decode.MaxTokens, "max-tokens", 0, "maximum number of tokens in an answer (default: the recording's)")
	f.StringVar(&cost, "cost", "", "file of bench decode --out that says what passes of the model cost")
	o.printing.flags(f)
	return c
}

func (a *app) replay(ctx context.Context, path, cost string, o *benchOptions) (*benchReport, error) {
	exhibits, err := paper.Select(o.exhibits)
	if err != nil {
		return nil, usageError{err}
	}
	rec, err := readRecording(path)
	if err != nil {
		return nil, err
	}
	if cost != "" {
		if err := readCosts(cost, &rec.Channels[0]); err != nil {
			return nil, err
		}
	}
	c := bench.Default()
	c.Sets, c.Seeds, c.Warmup, c.Tokenizer = rec.Sets(), rec.Seeds(), rec.Warmup, rec.Tokenizer
	if o.temperatures == nil {
		o.temperatures = rec.Temperatures()
	}
	c.Temperatures = o.temperatures
	if c.MaxTokens = o.decode.MaxTokens; c.MaxTokens == 0 {
		c.MaxTokens = rec.MaxTokens
	}
	player := replay.New(rec)
	kit := &paper.Kit{Sources: player.Sources(), Datastore: o.datastore, MaxTokens: c.MaxTokens, Temperatures: o.temperatures}
	for i := range exhibits {
		x := &exhibits[i]
		x.Temperatures = slices.DeleteFunc(slices.Clone(kit.At(x)), func(t float64) bool { return !slices.Contains(rec.Temperatures(), t) })
		if len(x.Temperatures) == 0 {
			return nil, usagef("--paper %s: the recording has none of its temperatures", x.Name)
		}
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
	out := &benchReport{Report: report, Device: rec.Device + ", replayed", DType: "as recorded", Layers: rec.Layers}
	out.view(exhibits, kit)
	return out, nil
}

func readRecording(path string) (*replay.Recording, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // only read
	rec, err := replay.Read(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return rec, nil
}

// readCosts takes what passes cost from a report of bench decode.
func readCosts(path string, c *replay.Channel) error {
	var r machineReport
	found, err := durable.ReadJSON(path, &r)
	if err != nil {
		return err
	}
	if !found {
		return fmt.Errorf("%s: there is no such file", path)
	}
	costs, err := replay.Costs(r.Passes)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	c.SetCosts(costs)
	return nil
}
