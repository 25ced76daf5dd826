package command

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"talf/checkpoints"
	"talf/internal/cli"
)

// An exportOptions holds the flags of export.
type exportOptions struct {
	head, out, model, verifier string
	dtype                      checkpoints.DType
	check                      bool
	c                          checkpoints.ExportConfig
}

func newExport(a *app) *cobra.Command {
	o := exportOptions{c: checkpoints.DefaultExport(), dtype: checkpoints.Auto}
	var asJSON bool
	var formats strings.Builder
	for _, f := range checkpoints.Formats() {
		fmt.Fprintf(&formats, "  %-12s %s\n", f.Name, f.Doc)
	}
	c := &cobra.Command{
		Use:   "export --head CKPT --format FORMAT --out DIR",
		Short: "Write a draft head for EAGLE, SGLang, vLLM, speculators or llama.cpp",
		Long: `Export writes a draft head in the format of another system. It first checks what
that system would refuse or misread; such a head is written only with --force.
Formats:

` + formats.String() + `
The head may be one of talf's or any that import reads, also an EAGLE-3 head. --model
names the head's target: its embedding is added to a head that has none, and its rope
is compared with the one that the reader would use. gguf needs it for its tokenizer.`,
		Example: `  talf export --head heads/talf --format eagle --bin --out DIR-eagle
  talf export --head heads/talf --format sglang --dtype bf16 --out DIR-sglang
  talf export --head heads/talf --format speculators --model MODEL --verifier org/model --check`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cli.Need(cmd, "head", "format"); err != nil {
				return err
			}
			if !o.check {
				if err := cli.Need(cmd, "out"); err != nil {
					return err
				}
			}
			dtype, ok := map[string]string{"auto": "", "f32": "F32", "bf16": "BF16"}[o.dtype.String()]
			if o.c.DType = dtype; !ok {
				return usagef("--dtype is %s, want f32, bf16 or auto", &o.dtype)
			}
			if err := o.c.Validate(); err != nil {
				return usageError(err)
			}
			r, err := o.run(cmd.Context())
			if err != nil {
				return err
			}
			return a.show(r, asJSON)
		},
	}
	f := c.Flags()
	f.StringVar(&o.head, "head", "", "checkpoint of a draft head")
	f.StringVar(&o.c.Format, "format", "", "format to write, one of those above")
	f.StringVar(&o.out, "out", "", "directory to write, new or empty")
	modelVar(f, &o.model, ": the head's target")
	f.StringVar(&o.verifier, "verifier", "", "speculators: where to find the target, a path or a Hugging Face id (default: --model)")
	f.Var(&o.dtype, "dtype", "type of the weights: f32, bf16, or auto to keep it")
	f.BoolVar(&o.c.Torch, "bin", false, "also write pytorch_model.bin, which old versions of EAGLE need")
	f.IntVar(&o.c.DraftTokens, "draft-tokens", o.c.DraftTokens, "tokens to draft per round, for speculators and the model card")
	f.BoolVar(&o.check, "check", false, "only report what the reader would refuse or misread")
	f.BoolVar(&o.c.Force, "force", false, "write the head even if the reader would refuse or misread it")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

func (o *exportOptions) run(ctx context.Context) (*checkpoints.Exported, error) {
	d, err := checkpoints.FindDraft(ctx, o.head)
	if err != nil {
		return nil, err
	}
	defer func() { _ = d.Close() }() // only read
	o.c.TargetName = o.verifier
	if o.model != "" {
		t, err := openTarget(o.model)
		if err != nil {
			return nil, err
		}
		defer func() { _ = t.Close() }() // only read
		if err := o.c.For(ctx, d, t); err != nil {
			return nil, err
		}
	}
	if o.check {
		return d.Predict(o.c)
	}
	return d.Export(ctx, o.out, o.c)
}

func openTarget(path string) (*checkpoints.Target, error) {
	dir, err := checkpoints.FindModel(path)
	if err != nil {
		return nil, err
	}
	return checkpoints.OpenTarget(dir)
}
