package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"talf/cmd/talf/command"
	"talf/internal/cli"
	"talf/internal/durable"
	"talf/lab/replay"
)

func newRecord(s *command.Session) *cobra.Command {
	var out string
	rc := replay.Default()
	c := &cobra.Command{
		Use:   "record MODEL --prompts FILE --out FILE",
		Short: "Record what a model and its draft models say, for lab replay",
		Long: `Record decodes every prompt and keeps what the model wrote, the candidates that the
model and its draft models gave, and what passes cost by their rows. At every position
each draft model is asked for its --nodes best nodes, so that lab replay can try trees
of other shapes and sizes without any model. The methods of --method run too, and the
other rows that they ask for are recorded as well: those of chains that go deeper, and of
methods that learn from the model's rows of rejected nodes or of the prompt.`,
		Example: `  lab record MODEL --head heads/talf --prompts prompts.jsonl --out answers.rec
  lab record MODEL --head heads/talf --draft lm=DIR --prompts maths=gsm8k.jsonl --method linear --method goose --temperature 0,1 --out answers.rec`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cli.Need(cmd, "out"); err != nil {
				return err
			}
			if err := s.CheckModels(cmd); err != nil {
				return err
			}
			if err := rc.Validate(); err != nil {
				return command.Usage(err)
			}
			f, err := durable.Create(out) // before the work, so that no other run does it too
			if err != nil {
				return err
			}
			defer func() { _ = f.Discard() }() // there was an error
			return record(cmd.Context(), s, rc, out, f)
		},
	}
	f := c.Flags()
	s.ModelFlags(f, "temperatures to record at (default 0)")
	s.MethodFlag(f, "`method` whose rows are recorded too (may be repeated): ")
	f.IntVar(&rc.Width, "width", rc.Width, "candidates of a row")
	f.IntVar(&rc.Nodes, "nodes", rc.Nodes, "nodes of each draft model at every position")
	f.StringVar(&out, "out", "", "file for the recording")
	return c
}

func record(ctx context.Context, s *command.Session, rc replay.Config, out string, f *durable.File) error {
	r, c, end, err := s.Open(ctx)
	if err != nil {
		return err
	}
	defer end()
	if err := s.Plan(&c, r.Sources); err != nil {
		return err
	}
	done := s.Progress(&c, "record")
	rec, err := replay.Record(ctx, r.Engine, c, r.Sources, rc)
	done()
	if err != nil {
		return err
	}
	rec.Device, rec.Layers = r.Model.Device().Name(), s.Layers()
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
	if _, err := fmt.Fprintf(s.Out(), "%s: %d answers\n\n", out, len(rec.Texts)); err != nil {
		return err
	}
	t := rec.CostTable()
	return t.Write(s.Out(), false)
}
