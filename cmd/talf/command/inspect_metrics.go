package command

import (
	"github.com/spf13/cobra"

	"talf/internal/cli"
	"talf/train/history"
)

func newInspectMetrics(a *app) *cobra.Command {
	var asJSON bool
	var picture string
	c := &cobra.Command{
		Use:   "metrics DIR…",
		Short: "Show how training went: loss, held-out loss and the estimate of τ",
		Long: `Metrics reads the log beside the checkpoints of one or several runs and sums it up
between evaluations. τ̂ is how many tokens a target pass would give, as the held-out
trees let expect without decoding; it is a lower bound.`,
		Example: "  talf inspect metrics heads/talf\n  talf inspect metrics heads/eagle heads/talf --plot runs.svg",
		Args:    cobra.MinimumNArgs(1),
		RunE: cli.Waiting(func(_ *cobra.Command, args []string) error {
			if err := checkPlot(picture); err != nil {
				return err
			}
			var runs []history.Run
			for _, path := range args {
				r, err := history.Read(path)
				if err != nil {
					return err
				}
				runs = append(runs, r)
			}
			if err := saveFigures(picture, history.Figures(runs...)...); err != nil {
				return err
			}
			if asJSON {
				return a.printJSON(runs)
			}
			for _, r := range runs {
				a.printf("%s", r)
			}
			return nil
		}),
	}
	c.Flags().StringVar(&picture, "plot", "", "draw losses and τ̂ to this .png or .svg")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}
