package command

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"talf/checkpoints"
	"talf/compute"
	"talf/infer/bench/perplexity"
	"talf/internal/cli"
	"talf/internal/limits"
)

// A perplexityOptions holds the flags of bench perplexity.
type perplexityOptions struct {
	dir, text     string
	dtypes        []string
	window, limit int
	machine       machineOptions
	printing
}

func newBenchPerplexity(a *app) *cobra.Command {
	o := perplexityOptions{machine: defaultMachine()}
	c := &cobra.Command{
		Use:   "perplexity MODEL --text FILE",
		Short: "Measure what types of weights cost in accuracy",
		Long: `Perplexity has a model predict every token of a text and compares types of weights with
the first one. The text is split into windows that do not overlap. If the tokenizer
begins texts with a token, such as BOS, every window begins with it.`,
		Example: "  talf bench perplexity MODEL --text FILE --dtype f32,bf16,q8",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cli.Need(cmd, "model", "text"); err != nil {
				return err
			}
			if err := o.check(); err != nil {
				return err
			}
			types, err := ParseDTypes(o.dtypes)
			if err != nil {
				return err
			}
			r, err := a.perplexity(cmd.Context(), types, &o)
			if err != nil {
				return err
			}
			return o.print(a, r, func(markdown bool) error {
				t := perplexity.Table(r.Perplexity)
				return t.Write(a.out, markdown)
			})
		},
	}
	f := c.Flags()
	modelVar(f, &o.dir, "")
	f.StringVar(&o.text, "text", "", "text file, or - for standard input")
	DTypesVar(f, &o.dtypes)
	cli.CountVar(f, &o.window, "context", 0, "tokens of a window (0: as many as the model can, at most 1024)")
	cli.CountVar(f, &o.limit, "limit", 0, "most tokens of the text (0: all)")
	threadsVar(f, &o.machine.Threads)
	PrecisionVar(f, &o.machine.Machine)
	preVar(f, &o.machine.Pre)
	o.printing.flags(f)
	return c
}

func (a *app) perplexity(ctx context.Context, types []compute.DType, o *perplexityOptions) (*perplexity.Report, error) {
	text, err := a.readText(ctx, o)
	if err != nil {
		return nil, err
	}
	dir, err := checkpoints.FindModel(o.dir)
	if err != nil {
		return nil, err
	}
	r := perplexity.NewReport()
	for _, dt := range types {
		o.machine.DType = checkpoints.DType(dt)
		x, err := a.perplexityOf(ctx, dir, string(text), o)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", o.text, err)
		}
		r.Add(x)
	}
	return r, nil
}

// readText reads the text, and names it for errors.
func (a *app) readText(ctx context.Context, o *perplexityOptions) ([]byte, error) {
	if o.text != "-" {
		return limits.ReadFile(o.text, limits.TextBytes)
	}
	o.text = "standard input"
	return cli.Wait(ctx, func() ([]byte, error) { return io.ReadAll(limits.Reader(a.in, limits.TextBytes, o.text)) })
}

func (a *app) perplexityOf(ctx context.Context, dir, text string, o *perplexityOptions) (perplexity.Result, error) {
	m, tok, closeModel, err := a.loader().WithTokenizer(ctx, dir, &o.machine.Machine)
	if err != nil {
		return perplexity.Result{}, err
	}
	defer closeModel()
	return perplexity.OfText(ctx, o.machine.DType.String(), m, tok, text, o.window, o.limit)
}
