package command

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"talf/infer/bench"
	"talf/infer/bench/heads"
	"talf/internal/cli"
	"talf/internal/stats"
)

// An evalOptions holds the flags of one evaluation.
type evalOptions struct {
	rigOptions
	boot    stats.Bootstrap
	ranks   int
	warmup  int
	picture string
	printing
}

func newEval(a *app) *cobra.Command {
	c := &cobra.Command{
		Use:   "eval",
		Short: "Evaluate draft heads as the SALF and TALF papers do",
		Long: `Eval measures what Figure 2 and Tables 3 and 4 of the SALF and TALF papers show, on the
model, heads and prompts at hand. Each has a command of its own that prints a table and
draws a plot with bootstrap confidence intervals. The bootstrap draws whole prompts,
because the tokens of a prompt depend on each other.`,
		Example: `  talf eval fig2b MODEL --head eagle=heads/eagle --head talf=heads/talf --prompts held-out.txt --plot fig2b.svg
  talf eval table3 MODEL --head k1=heads/k1 --head k2=heads/k2 --head k4=heads/k4 --prompts prompts.jsonl`,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	for _, e := range heads.Evaluations().Lines {
		c.AddCommand(newEvaluation(a, e))
	}
	return c
}

func newEvaluation(a *app, e heads.Evaluation) *cobra.Command {
	o := evalOptions{boot: stats.DefaultBootstrap()}
	long := "It measures the " + e.Doc + "."
	if !e.Decodes() {
		long += `

At every position of the text that --over names, the head is given its own n-th most likely token, and its
next guess is compared with the model's: how often the two agree, and how well the
probability that the head gives to the model's choice is calibrated.`
	}
	c := &cobra.Command{
		Use:     e.Name + " MODEL --head CKPT --prompts FILE",
		Short:   e.Doc,
		Long:    long,
		Example: "  talf eval " + e.Name + " MODEL --head talf=heads/talf --prompts maths=gsm8k.jsonl --plot " + e.Name + ".png",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.check(cmd); err != nil {
				return err
			}
			r, err := a.eval(cmd.Context(), e, &o)
			if err != nil {
				return err
			}
			err = saveFigures(o.picture, r.Figures()...)
			return errors.Join(err, o.print(a, r, func(markdown bool) error { return r.Write(a.out, markdown) }))
		},
	}
	f := c.Flags()
	o.rigOptions.flags(f)
	if !e.Decodes() {
		o.overFlag(f)
		f.IntVar(&o.ranks, "ranks", 5, "ranks to condition on, from 1")
	} else {
		o.drawFlags(f, "temperature to decode at")
		cli.CountVar(f, &o.warmup, "warmup", bench.Default().Warmup, "first prompts of a set that are run but not counted")
	}
	f.IntVar(&o.boot.Reps, "resamples", o.boot.Reps, "samples of the bootstrap")
	f.Float64Var(&o.boot.Level, "confidence", o.boot.Level, "level of confidence of the intervals")
	f.StringVar(&o.picture, "plot", "", "draw to a file that ends in .png or .svg")
	o.printing.flags(f)
	return c
}

// check finds mistakes that show without a model.
func (o *evalOptions) check(cmd *cobra.Command) error {
	if err := o.checkGiven(cmd); err != nil {
		return err
	}
	if len(o.heads) == 0 {
		return usagef("missing --head")
	}
	if n := len(o.temperatures); n != 1 {
		return usagef("--temperature: %d temperatures, want one", n)
	}
	if err := errors.Join(o.printing.check(), checkPlot(o.picture)); err != nil {
		return err
	}
	if err := o.boot.Validate(); err != nil {
		return usageError(err)
	}
	return nil
}

func (a *app) eval(ctx context.Context, e heads.Evaluation, o *evalOptions) (*heads.Report, error) {
	r, err := a.openRig(ctx, &o.rigOptions)
	if err != nil {
		return nil, err
	}
	defer r.close()
	out := e.NewReport(r.Model.Device().Name(), o.boot)
	out.Split = r.Part()
	if !e.Decodes() {
		bar := a.progress("eval", "heads")
		defer bar.End()
		measured := 0
		c := o.config(r)
		out.Text, err = r.ByRank(ctx, o.over, &c, o.ranks, a.ranksCut, func(head string, items [][]heads.Item, texts []heads.Text) error {
			err := out.AddRanks(head, items, texts)
			measured++
			bar.Set(int64(measured), int64(len(o.heads)), "")
			return err
		})
		return out, err
	}
	c := o.config(r)
	c.Warmup = o.warmup
	if err := out.Plan(&c, r.Sources); err != nil {
		return nil, usageError(err)
	}
	defer a.benchProgress(&c, "eval")()
	return out, out.Run(ctx, r.Engine, c)
}
