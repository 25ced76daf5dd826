package main

import (
	"github.com/spf13/cobra"

	"talf/cmd/talf/command"
	"talf/infer/bench"
	"talf/internal/cli"
	"talf/lab/rounds"
)

func newRounds(s *command.Session) *cobra.Command {
	repeat := bench.Default().Repeat
	c := &cobra.Command{
		Use:   "rounds MODEL --method METHOD --prompts FILE",
		Short: "Show where the time of a round of decoding goes",
		Long: `Rounds decodes every prompt with every method, runs every pass again, those of the model and
those of the draft model each on their own, and shows where the time of a round goes. The
time outside the passes of the two models is what separates the speed-up from the one that
the passes would allow. With --repeat, every pass counts with its shortest time, which
leaves out most of what other programs do to the machine. Methods whose trees depend on the
clock are compared by means.`,
		Example: "  lab rounds MODEL --head heads/talf --method salf:paper,N=8 --prompts prompts.jsonl --repeat 5",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := s.CheckModels(cmd); err != nil {
				return err
			}
			if err := s.CheckPrint(); err != nil {
				return err
			}
			r, c, end, err := s.Open(cmd.Context())
			if err != nil {
				return err
			}
			defer end()
			if err := s.Plan(&c, r.Sources); err != nil {
				return err
			}
			var w rounds.Watch
			c.Repeat, c.Watch, c.Keep = repeat, &w, w.Keep
			done := s.Progress(&c, "rounds")
			report, err := bench.Run(cmd.Context(), r.Engine, c)
			done()
			if err != nil {
				return err
			}
			rows := w.Rows(report)
			return s.Print(map[string]any{"device": r.Model.Device().Name(), "rows": rows}, nil, func(markdown bool) error {
				t := rounds.Table(rows)
				return t.Write(s.Out(), markdown)
			})
		},
	}
	f := c.Flags()
	s.ModelFlags(f, "temperatures to decode at (default 0)")
	s.MethodFlag(f, "draft `method` with its parameters (may be repeated): ")
	cli.CountVar(f, &repeat, "repeat", repeat, "how often to run everything")
	s.PrintFlags(f, "")
	return c
}
