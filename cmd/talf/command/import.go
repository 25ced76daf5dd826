package command

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"talf/checkpoints"
	"talf/internal/cli"
)

func newImport(a *app) *cobra.Command {
	var dir, out, target string
	var force, asJSON bool
	c := &cobra.Command{
		Use:   "import --head DIR --out DIR",
		Short: "Convert a draft head from EAGLE, SGLang, vLLM, speculators or llama.cpp",
		Long: `Import reads a draft head as EAGLE, SpecForge, SGLang, vLLM and the speculators
library store it, from safetensors or pytorch_model.bin, or a GGUF file, and writes it in the form
that talf's commands load. EAGLE-3 heads load without it, in any layout. No part of a pickle is executed: a file that
contains anything but tensors is refused.

--model names the target: its sizes are compared with the head's, and the head is
tied to its weights.`,
		Example: `  talf import --head DIR-eagle --model MODEL --out heads/eagle
  talf generate --model MODEL --head heads/eagle --prompt 'Once upon a time'`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cli.Need(cmd, "head", "out"); err != nil {
				return err
			}
			r, err := a.importHead(cmd.Context(), dir, out, target, force)
			if err != nil {
				return err
			}
			return a.show(r, asJSON)
		},
	}
	f := c.Flags()
	f.StringVar(&dir, "head", "", "directory or GGUF file of the head")
	f.StringVar(&out, "out", "", "directory to write, new or empty")
	modelVar(f, &target, ": the head's target")
	f.BoolVar(&force, "force", false, "tie the head to --model even if it was trained for another target")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

func (a *app) importHead(ctx context.Context, dir, out, target string, force bool) (*checkpoints.Imported, error) {
	d, err := checkpoints.FindDraft(ctx, dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = d.Close() }() // only read
	var t *checkpoints.Target
	if target != "" {
		if t, err = openTarget(target); err != nil {
			return nil, err
		}
		defer func() { _ = t.Close() }() // only read
		t.Watch = a.loader().Watch(ctx)
	}
	r, err := d.Import(ctx, out, t, force)
	var tied *checkpoints.TiedError
	if errors.As(err, &tied) {
		return nil, fmt.Errorf("%s: not trained for %s: %s (--force to tie it to that all the same)",
			dir, target, tied.Differences.Since("it was trained"))
	}
	return r, err
}
