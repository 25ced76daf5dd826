package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"talf/cmd/talf/command"
	"talf/infer/bench/heads"
	"talf/internal/stats"
	"talf/lab/evals"
)

func newEval(s *command.Session) *cobra.Command {
	c := &cobra.Command{
		Use:   "eval",
		Short: "Evaluate draft heads as the SALF and TALF papers do",
		Long: `Eval measures what Figure 2 and Tables 3 and 4 of the SALF and TALF papers show, on the
model, heads and prompts at hand. Each has a command of its own that prints a table and
draws a plot with bootstrap confidence intervals. The bootstrap draws whole prompts,
because the tokens of a prompt depend on each other.`,
		Example: `  lab eval fig2b MODEL --head eagle=heads/eagle --head talf=heads/talf --prompts held-out.txt --plot fig2b.svg
  lab eval table3 MODEL --head k1=heads/k1 --head k2=heads/k2 --head k4=heads/k4 --prompts prompts.jsonl`,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	for _, e := range evals.Evaluations().Lines {
		c.AddCommand(newEvaluation(s.Another(), e))
	}
	return c
}

func newEvaluation(s *command.Session, e evals.Evaluation) *cobra.Command {
	boot := stats.DefaultBootstrap()
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
		Example: "  lab eval " + e.Name + " MODEL --head talf=heads/talf --prompts maths=gsm8k.jsonl --plot " + e.Name + ".png",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkEval(cmd, s, boot); err != nil {
				return err
			}
			r, err := eval(cmd.Context(), s, e, boot)
			if err != nil {
				return err
			}
			return s.Print(r, r.Figures(), func(markdown bool) error { return r.Write(s.Out(), markdown) })
		},
	}
	f := c.Flags()
	s.ModelFlags(f)
	if e.Decodes() {
		s.DrawFlags(f, "temperature to decode at")
	} else {
		s.RanksFlags(f)
	}
	f.IntVar(&boot.Reps, "resamples", boot.Reps, "samples of the bootstrap")
	f.Float64Var(&boot.Level, "confidence", boot.Level, "level of confidence of the intervals")
	s.PrintFlags(f, "draw")
	return c
}

// checkEval finds mistakes that show without a model.
func checkEval(cmd *cobra.Command, s *command.Session, boot stats.Bootstrap) error {
	if err := s.CheckModels(cmd); err != nil {
		return err
	}
	if len(s.Heads()) == 0 {
		return command.Usage(fmt.Errorf("missing --head"))
	}
	if n := len(s.Temperatures()); n != 1 {
		return command.Usage(fmt.Errorf("--temperature: %d temperatures, want one", n))
	}
	if err := s.CheckPrint(); err != nil {
		return err
	}
	if err := boot.Validate(); err != nil {
		return command.Usage(err)
	}
	return nil
}

func eval(ctx context.Context, s *command.Session, e evals.Evaluation, boot stats.Bootstrap) (*evals.Report, error) {
	r, c, end, err := s.Open(ctx, false)
	if err != nil {
		return nil, err
	}
	defer end()
	out := e.NewReport(r.Model.Device().Name(), boot)
	out.Split = r.Part()
	if !e.Decodes() {
		bar := s.Stage("eval", "heads")
		defer bar.End()
		measured := 0
		out.Text, err = s.ByRank(ctx, r, &c, func(head string, items [][]heads.Item, texts []heads.Text) error {
			err := out.AddRanks(head, items, texts)
			measured++
			bar.Set(int64(measured), int64(len(s.Heads())), "")
			return err
		})
		return out, err
	}
	if err := out.Plan(&c, r.Sources); err != nil {
		return nil, command.Usage(err)
	}
	defer s.Progress(&c, "eval")()
	return out, out.Run(ctx, r.Engine, c)
}
