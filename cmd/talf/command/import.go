package command

import (
	"fmt"

	"github.com/spf13/cobra"

	"talf/internal/cli"
)

// An imported describes what import wrote.
type imported struct {
	Out     string   `json:"out"`
	Layout  string   `json:"layout"` // in which the head was found
	File    string   `json:"file"`
	Tensors int      `json:"tensors"`
	Target  string   `json:"target,omitempty"` // weight hash that it is tied to
	Notes   []string `json:"notes,omitempty"`
}

func newImport(a *app) *cobra.Command {
	var dir, out, target string
	var force, asJSON bool
	c := &cobra.Command{
		Use:   "import --head DIR --out DIR",
		Short: "Convert a draft head from EAGLE, SGLang, vLLM or speculators",
		Long: `Import reads an EAGLE-1 or EAGLE-2 draft head as EAGLE, SGLang, vLLM and the
speculators library store it, from safetensors or pytorch_model.bin, and writes it
in the form that talf's commands load. No part of a pickle is executed: a file that
contains anything but tensors is refused.

--model names the target: its sizes are compared with the head's, and the head is
tied to its weights. EAGLE-3 heads are not decoded yet: inspect describes them, and
export converts them between other systems' layouts.`,
		Example: `  talf import --head DIR-eagle --model DIR --out heads/eagle
  talf generate --model DIR --head heads/eagle --prompt 'Once upon a time'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cli.Need(cmd, "head", "out"); err != nil {
				return err
			}
			r, err := importHead(dir, out, target, force)
			if err != nil {
				return err
			}
			if asJSON {
				return a.printJSON(r)
			}
			for _, n := range r.Notes {
				a.printf("note: %s\n", n)
			}
			a.printf("%s: %d tensors from %s in the layout of %s", r.Out, r.Tensors, r.File, r.Layout)
			if r.Target != "" {
				a.printf(", for target %.12s", r.Target)
			}
			a.printf("\n")
			return nil
		},
	}
	f := c.Flags()
	f.StringVar(&dir, "head", "", "directory of the head")
	f.StringVar(&out, "out", "", "directory to write, new or empty")
	f.StringVar(&target, "model", "", "directory of the head's target")
	f.BoolVar(&force, "force", false, "tie the head to --model even if it was trained for another target")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

func importHead(dir, out, target string, force bool) (*imported, error) {
	d, err := openDraft(dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = d.Close() }() // only read
	hash := d.Target
	if target != "" {
		t, err := openTarget(target)
		if err != nil {
			return nil, err
		}
		defer func() { _ = t.set.Close() }() // only read
		if err := t.fits(d); err != nil {
			return nil, err
		}
		hash = t.hash()
		if d.Target != "" && d.Target != hash && !force {
			return nil, fmt.Errorf("%s: trained for a target with weight hash %.12s, but %s has %.12s (--force to tie it to that all the same)",
				dir, d.Target, target, hash)
		}
	}
	if err := d.SaveHead(out, hash); err != nil {
		return nil, err
	}
	return &imported{Out: out, Layout: d.Layout, File: d.File, Tensors: len(d.Tensors), Target: hash, Notes: d.Notes}, nil
}
