package main

import (
	"io"

	"github.com/spf13/cobra"

	"talf/cmd/talf/command"
	"talf/internal/cli"
	"talf/internal/durable"
	"talf/lab/report"
)

func newReport(s *command.Session) *cobra.Command {
	var out string
	c := &cobra.Command{
		Use:   "report RUN…",
		Short: "Write a page about training runs, benches, evaluations and traces",
		Long: `Report writes one HTML file that needs nothing else and has no scripts: curves, speed-ups
with intervals, acceptance by depth and rank, costs of passes, trees of chosen rounds, settings
and checksums, several runs side by side. RUN is a directory of checkpoints, a log of talf bench, a
file of talf bench, talf eval or lab decode --out, a trace, or a directory that holds some of them,
like those of talf head and talf quickstart. NAME=RUN names it. The page takes at most 2 MiB.`,
		Example: "  lab report talf-quickstart --out quickstart.html\n  lab report a=heads/a b=heads/b bench.jsonl --out runs.html",
		Args:    cobra.MinimumNArgs(1),
		RunE: cli.Waiting(func(_ *cobra.Command, args []string) error {
			runs, err := report.ReadAll(args)
			if err != nil {
				return err
			}
			if err := durable.Write(out, func(w io.Writer) error { return report.Write(w, runs) }); err != nil {
				return err
			}
			return s.Printf("%s\n", out)
		}),
	}
	c.Flags().StringVar(&out, "out", "report.html", "the file to write")
	return c
}
