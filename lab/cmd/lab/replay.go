package main

import (
	"context"

	"github.com/spf13/cobra"

	"talf/cmd/talf/command"
	"talf/infer/bench/rig"
	"talf/lab/replay"
)

func newReplay(s *command.Session) *cobra.Command {
	var o tables
	var cost string
	c := &cobra.Command{
		Use:   "replay FILE",
		Short: "Try methods on a recording, without a model",
		Long: `Replay runs methods on a recording of lab record. Acceptance is the same as in decoding,
because a verdict needs only the text, which every method leaves as it is. Times are the
recorded costs of passes by their rows; --cost replaces those of the model. Building and
verifying trees takes no time here. A row that the recording lacks counts as empty, which
can only make a tree smaller; the column missed shows the share of such rows.

Methods that draw children, and verifiers other than greedy and target, need the model.`,
		Example: `  lab replay answers.rec --method salf:th=0.2 --method salf:th=0.4 --markdown
  lab replay answers.rec --paper salf:t4 --paper dynatree:fig8 --cost passes.json --plot sweep.svg`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := s.CheckRecorded(cmd); err != nil {
				return err
			}
			r, err := play(cmd.Context(), s, args[0], cost, &o)
			if err != nil {
				return err
			}
			return s.Report(r)
		},
	}
	f := c.Flags()
	s.RecordedFlags(f, &o)
	f.StringVar(&cost, "cost", "", "file of lab decode --out that says what passes of the model cost")
	return c
}

// play replays the recording at path.
func play(ctx context.Context, s *command.Session, path, cost string, o *tables) (*rig.Report, error) {
	rec, err := replay.Open(path)
	if err != nil {
		return nil, err
	}
	if cost != "" {
		if err := rec.ReadCosts(cost); err != nil {
			return nil, err
		}
	}
	at := s.Temperatures()
	if at == nil {
		at = rec.Temperatures()
	}
	c := rec.Config(at, s.MaxTokens())
	player := replay.New(rec)
	o.recorded = rec.Temperatures()
	if err := s.Plan(&c, player.Sources()); err != nil {
		return nil, err
	}
	done := s.Progress(&c, "replay")
	report, err := player.Run(ctx, c)
	done()
	if err != nil {
		return nil, err
	}
	return &rig.Report{Report: report, Device: rec.Device + ", replayed", DType: "as recorded", Layers: rec.Layers}, nil
}
