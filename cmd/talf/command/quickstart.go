package command

import (
	"context"

	"github.com/spf13/cobra"

	"talf/checkpoints"
	"talf/compute/devices"
	"talf/internal/cli"
	"talf/internal/demo"
	"talf/internal/quickstart"
	"talf/model"
	"talf/preprocess"
	"talf/train"
	"talf/train/dist"
)

func newQuickstart(a *app) *cobra.Command {
	c := quickstart.Config{Plan: quickstart.Default(), Tools: &quickTools{stageTools{a}}, Unpack: demo.Unpack}
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "quickstart",
		Short: "Label, train, decode and measure, all on a small model that talf carries",
		Long: `Quickstart runs the whole pipeline in a few minutes. It unpacks a small language model
and writes fresh text, labels the text with the model's token trees, trains a draft
head with the losses eagle and talf, and decodes prompts that the head has not seen.
Then it prints how the head compares with an untrained one and with plain decoding, on
the model itself and where a pass costs what one of a larger model costs.

You can interrupt it at any point: run it again and it continues. Everything is kept in
--dir; remove that directory to start over.`,
		Example: "  talf quickstart\n  talf quickstart --dir try --json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			a.resume = "run talf quickstart --dir " + c.Dir + " again to continue"
			r, err := quickstart.Run(cmd.Context(), c)
			if err != nil {
				return err
			}
			return a.show(r, asJSON)
		},
	}
	cmd.Flags().StringVar(&c.Dir, "dir", "talf-quickstart", "directory to keep files in")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the table as JSON")
	return cmd
}

// quickTools run quickstart's stages as the commands of the same names would.
type quickTools struct{ stageTools }

func (q *quickTools) Label(ctx context.Context, c preprocess.Config, dir string) error {
	_, err := q.a.preprocess(ctx, c, dir, placement{machineOptions: defaultMachine(), cublas: true}, &regeneration{}, chatOptions{})
	return err
}

func (q *quickTools) Train(ctx context.Context, c train.Config, f quickstart.TrainFiles) error {
	o := trainOptions{cfg: c, kind: checkpoints.KindHead, model: f.Model, out: f.Out, data: cli.Files{f.Labels}, init: f.Init, resume: true}
	_, err := q.a.train(ctx, &o, devices.CPU, dist.Alone{})
	return err
}

func (q *quickTools) Open(ctx context.Context, dir string, layers int) (*model.Model, func(), error) {
	m := defaultMachine()
	m.Layers = layers
	return q.a.loader().Model(ctx, dir, &m.Machine)
}

func (q *quickTools) Answers() (set func(done, total int), end func()) {
	bar := q.a.progress("decode", "answers")
	return func(done, total int) { bar.Set(int64(done), int64(total), "") }, bar.End
}
