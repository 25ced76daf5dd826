package command

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"talf/infer/bench"
	"talf/infer/bench/paper"
	"talf/internal/plot"
	"talf/internal/table"
)

// An evalOptions holds the flags of one evaluation.
type evalOptions struct {
	rigOptions
	boot    paper.Bootstrap
	ranks   int
	warmup  int
	picture string
}

// An evalReport is a figure or table of the papers, with confidence intervals.
type evalReport struct {
	Name   string `json:"name"`
	Doc    string `json:"doc"`
	Device string `json:"device"`
	// Temperature is that of the answers that methods were measured on.
	Temperature float64            `json:"temperature"`
	Bootstrap   paper.Bootstrap    `json:"bootstrap"`
	Methods     []paper.MethodEval `json:"methods,omitempty"`
	Ranks       []paper.RankEval   `json:"ranks,omitempty"`

	tables  []table.Table
	figures []plot.Figure
}

func newEval(a *app) *cobra.Command {
	c := &cobra.Command{
		Use:   "eval",
		Short: "Evaluate draft heads as the SALF and TALF papers do",
		Long: `Eval measures what Figure 2 and Tables 3 and 4 of the SALF and TALF papers show, on
the model, heads and prompts at hand, one command for each, as a table and a plot, with
bootstrap confidence intervals: whole prompts are drawn, for the tokens of one depend on
each other.`,
		Example: `  talf eval fig2b --model DIR --head eagle=heads/eagle --head talf=heads/talf --prompts held-out.txt --plot fig2b.svg
  talf eval table3 --model DIR --head k1=heads/k1 --head k2=heads/k2 --head k4=heads/k4 --prompts prompts.jsonl`,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	for _, e := range paper.Evaluations().Lines {
		c.AddCommand(newEvaluation(a, e))
	}
	return c
}

// drawing are the flags that say how tokens are drawn.
var drawing = []string{"temperature", "seed"}

func newEvaluation(a *app, e paper.Evaluation) *cobra.Command {
	o := evalOptions{boot: paper.DefaultBootstrap()}
	var p printing
	long := "It measures the " + e.Doc + "."
	if e.Exhibit == "" {
		long += `

At every position of the texts the head is given its own n-th most likely token, and its
next guess is compared with the model's: how often it is the same, and how far the
probability it gives to the model's choice is from that.`
	}
	c := &cobra.Command{
		Use:     e.Name + " --model DIR --head CKPT --prompts FILE",
		Short:   e.Doc,
		Long:    long,
		Example: "  talf eval " + e.Name + " --model DIR --head talf=heads/talf --prompts maths=gsm8k.jsonl --plot " + e.Name + ".png",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.checkGiven(cmd); err != nil {
				return err
			}
			if len(o.heads) == 0 {
				return usagef("missing --head")
			}
			if n := len(o.temperatures); n != 1 {
				return usagef("--temperature: %d temperatures, want one", n)
			}
			for _, name := range drawing {
				if e.Exhibit == "" && cmd.Flags().Changed(name) {
					return usagef("--%s: %s draws nothing", name, e.Name)
				}
			}
			if err := errors.Join(p.check(), checkPlot(o.picture)); err != nil {
				return err
			}
			if err := o.boot.Validate(); err != nil {
				return usageError{err}
			}
			r, err := a.eval(cmd.Context(), e, &o)
			if err != nil {
				return err
			}
			err = saveFigures(o.picture, r.figures...)
			return errors.Join(err, p.print(a, r, func(markdown bool) error {
				a.printf("%s; ", r.Device)
				if e.Exhibit != "" {
					a.printf("temperature %g; ", r.Temperature)
				}
				a.printf("[ ] are %g%% confidence intervals\n\n", 100*r.Bootstrap.Level)
				return table.Write(a.out, r.tables, markdown)
			}))
		},
	}
	o.flags(c)
	f := c.Flags()
	f.IntVar(&o.boot.Reps, "resamples", o.boot.Reps, "samples of the bootstrap")
	f.Float64Var(&o.boot.Level, "confidence", o.boot.Level, "level of confidence of the intervals")
	f.StringVar(&o.picture, "plot", "", "draw to a file that ends in .png or .svg")
	if e.Exhibit == "" {
		f.IntVar(&o.ranks, "ranks", 5, "ranks to condition on, from 1")
		for _, name := range drawing {
			f.Lookup(name).Hidden = true
		}
	} else {
		f.Lookup("temperature").Usage = "temperature to decode at"
		countVar(f, &o.warmup, "warmup", bench.Default().Warmup, "first prompts of a set that are run and not counted")
	}
	p.flags(f)
	return c
}

func (a *app) eval(ctx context.Context, e paper.Evaluation, o *evalOptions) (*evalReport, error) {
	r, err := a.openRig(ctx, &o.rigOptions)
	if err != nil {
		return nil, err
	}
	defer func() { r.close() }()
	out := &evalReport{Name: e.Name, Doc: e.Doc, Device: r.model.Device().Name(), Bootstrap: o.boot}
	if e.Exhibit == "" {
		bar := a.progress("eval", "heads")
		defer bar.end()
		texts := a.rankTexts(r)
		for i, h := range r.heads {
			items, err := paper.ByRank(ctx, r.model, h.head, texts, o.ranks)
			if err != nil {
				return nil, err
			}
			ranks, err := paper.EvalRanks(h.name, items, texts, o.boot)
			if err != nil {
				return nil, err
			}
			out.Ranks = append(out.Ranks, ranks...)
			bar.set(int64(i+1), int64(len(r.heads)), "")
		}
		out.tables, out.figures = paper.RankTables(out.Ranks), paper.RankFigures(out.Ranks)
		return out, nil
	}
	exhibits, err := paper.Select([]string{e.Exhibit})
	if err != nil {
		return nil, err
	}
	c := o.config(r)
	c.Warmup, c.Temperatures = o.warmup, nil // methods bring their exhibits'
	exhibits[0].Temperatures, out.Temperature = o.temperatures, o.temperatures[0]
	kit := &paper.Kit{Sources: r.sources, MaxTokens: c.MaxTokens}
	if err := a.addPapers(&c, exhibits, kit); err != nil {
		return nil, err
	}
	if err := c.Validate(); err != nil {
		return nil, usageError{err}
	}
	var got []bench.Measurement
	c.Keep = func(m *bench.Measurement) error {
		got = append(got, *m)
		return nil
	}
	bar := a.progress("eval", "answers")
	c.Progress = func(done, total int) { bar.set(int64(done), int64(total), "") }
	report, err := bench.Run(ctx, r.engine, c)
	bar.end()
	if err != nil {
		return nil, err
	}
	if out.Methods, err = exhibits[0].View(report, kit).Evaluate(&c, got, o.boot); err != nil {
		return nil, err
	}
	out.tables, out.figures = e.Tables(out.Methods), e.Figures(out.Methods)
	return out, nil
}
