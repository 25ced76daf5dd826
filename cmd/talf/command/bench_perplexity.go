package command

import (
	"context"
	"fmt"
	"os"

	"talf/infer/decode"

	"talf/infer/bench/micro"

	"github.com/spf13/cobra"
)

func newBenchPerplexity(a *app) *cobra.Command {
	var p printing
	var dir, text string
	var dtypes []string
	var window, limit int
	o := defaultMachine()
	cmd := &cobra.Command{
		Use:   "perplexity --model DIR --text FILE",
		Short: "Measure what types of weights cost in accuracy",
		Long: `Perplexity has a model predict every token of a text, in windows that do not
overlap and begin with the model's begin token if it has one, and compares types
of weights with the first one.`,
		Example: "  talf bench perplexity --model DIR --text FILE --dtype f32,bf16,q8",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := need(cmd, "model", "text"); err != nil {
				return err
			}
			if err := p.check(); err != nil {
				return err
			}
			types, err := parseDTypes(dtypes)
			if err != nil {
				return err
			}
			b, err := os.ReadFile(text)
			if err != nil {
				return err
			}
			path, err := findModel(dir)
			if err != nil {
				return err
			}
			r := newMachineReport()
			for _, dt := range types {
				o.dtype = dtypeFlag(dt)
				x, err := a.perplexity(cmd.Context(), path, string(b), &o, window, limit)
				if err != nil {
					return fmt.Errorf("%s: %w", text, err)
				}
				r.Perplexity = append(r.Perplexity, x)
				last := &r.Perplexity[len(r.Perplexity)-1]
				last.Above = last.Perplexity/r.Perplexity[0].Perplexity - 1
			}
			return p.print(a, r, func(markdown bool) error {
				t := micro.PerplexityTable(r.Perplexity)
				return t.Write(a.out, markdown)
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&dir, "model", "", "model directory in Hugging Face layout")
	f.StringVar(&text, "text", "", "text file")
	f.StringSliceVar(&dtypes, "dtype", []string{"f32", "bf16", "q8"}, "types that weights are kept as")
	countVar(f, &window, "context", 0, "tokens of a window (0: the model's most, at most 1024)")
	countVar(f, &limit, "limit", 0, "most tokens of the text (0: all)")
	threadsVar(f, &o.threads)
	o.precision(f)
	p.flags(f)
	return cmd
}

func (a *app) perplexity(ctx context.Context, dir, text string, o *machineOptions, window, limit int) (micro.Perplexity, error) {
	m, closeModel, err := openModelAs(a.log, dir, o)
	if err != nil {
		return micro.Perplexity{}, err
	}
	defer closeModel()
	tok, err := decode.LoadTokenizer(dir, m)
	if err != nil {
		return micro.Perplexity{}, err
	}
	ids, err := tok.Encode(text, false)
	if err != nil {
		return micro.Perplexity{}, err
	}
	if limit > 0 {
		ids = ids[:min(limit, len(ids))]
	}
	if window == 0 {
		window = min(1024, m.Spec().MaxPos)
	}
	return micro.MeasurePerplexity(ctx, o.dtype.String(), m, ids, window, m.Spec().BOS)
}
