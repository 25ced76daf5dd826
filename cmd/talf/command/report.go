package command

import (
	"io"

	"github.com/spf13/cobra"

	"talf/internal/cli"
	"talf/internal/durable"
	"talf/internal/report"
)

func newReport(a *app) *cobra.Command {
	var out string
	c := &cobra.Command{
		Use:   "report RUN…",
		Short: "Write a page about training runs, benches, evaluations and traces",
		Long: `Report writes one HTML file that needs nothing else and has no scripts: curves, speed-ups
with intervals, acceptance by depth and rank, trees of chosen rounds, settings and checksums,
several runs side by side. RUN is a directory of checkpoints, a log of bench, a file of bench or
eval --out, a trace, or a directory that holds some of them, like those of head and quickstart.
NAME=RUN names it. The page takes at most 2 MiB.`,
		Example: "  talf report talf-quickstart --out quickstart.html\n  talf report a=heads/a b=heads/b bench.jsonl --out runs.html",
		Args:    cobra.MinimumNArgs(1),
		RunE: cli.Waiting(func(_ *cobra.Command, args []string) error {
			runs, err := report.ReadAll(args)
			if err != nil {
				return err
			}
			if err := durable.Write(out, func(w io.Writer) error { return report.Write(w, runs) }); err != nil {
				return err
			}
			a.printf("%s\n", out)
			return nil
		}),
	}
	c.Flags().StringVar(&out, "out", "report.html", "the file to write")
	return c
}
