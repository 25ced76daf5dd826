package command

import (
	"cmp"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"talf/checkpoints"
	"talf/internal/cli"
	"talf/train"
	"talf/train/loss"
	"talf/train/mix"
	"talf/train/tensorboard"
)

// headOnly and lmOnly are the flags for only one --kind, textOnly those for --kind lm and --online,
// and labelOnly those for --online.
var (
	headOnly  = []string{"loss", "stage", "features", "network", "layers", "fc-bias", "draft-vocab", "online"}
	lmOnly    = []string{"window", "export"}
	textOnly  = []string{"format", "template", "answer-field", "answer-remove", "skip", "limit"}
	labelOnly = []string{"eos", "max-len", "k", "depth", "labels", "label-k", "loss-only", "keep-labels", "chat-template", "date", controlFlag}
)

// check refuses flags that do not make up a run, before anything is read.
func (o *trainOptions) check(cmd *cobra.Command) error {
	if err := cli.Need(cmd, "model", "data", "out"); err != nil {
		return err
	}
	for _, err := range []error{o.checkKind(cmd.Flags()), o.checkLength(cmd.Flags())} {
		if err != nil {
			return err
		}
	}
	o.place.Unresolved = o.print
	if err := o.place.Check(); err != nil {
		return usageError(err)
	}
	if err := cmp.Or(train.Features(o.features).Validate(), tensorboard.Known(o.logKind)); err != nil {
		return usagef("--%w", err)
	}
	if _, err := loss.Parse(o.cfg.Loss); err != nil {
		return usageError(err)
	}
	cfg := o.trainConfig(1)
	if err := cfg.Validate(); err != nil {
		return usageError(err)
	}
	for _, s := range o.stages {
		if _, err := train.ParseStage(s, cfg); err != nil {
			return usageError(err)
		}
	}
	if o.kind == checkpoints.KindHead && !o.place.Online {
		for _, s := range o.data {
			if _, _, err := mix.ParseShare(s); err != nil {
				return usagef("--data %w", err)
			}
		}
	}
	if c := o.label; o.place.Online {
		c.Files, c.Out = o.data, o.out
		if err := cmp.Or(c.Validate(), o.talk.check()); err != nil {
			return usageError(err)
		}
	}
	if o.plot == "" {
		return nil
	}
	return checkPlot(o.plot, o.out)
}

func (o *trainOptions) checkKind(f *pflag.FlagSet) error {
	head := o.kind == checkpoints.KindHead
	if !head && o.kind != checkpoints.KindLM {
		return usagef("--kind is %q, want %s or %s", o.kind, checkpoints.KindHead, checkpoints.KindLM)
	}
	if !head && o.init == initLinear {
		return usagef("--init %s is for heads", initLinear)
	}
	return cmp.Or(cli.OnlyFor(f, "heads", head, headOnly), cli.OnlyFor(f, "--kind lm", !head, lmOnly),
		cli.OnlyFor(f, "--online", o.place.Online, labelOnly), cli.OnlyFor(f, "--online and --kind lm", o.place.Online || !head, textOnly))
}

func (o *trainOptions) checkLength(f *pflag.FlagSet) error {
	switch {
	case len(o.stages) > 0 && (f.Changed("loss") || f.Changed("steps") || f.Changed("epochs")):
		return usagef("--stage and --loss, --steps or --epochs exclude each other")
	case o.epochs != 0 && f.Changed("steps"):
		return usagef("--steps and --epochs exclude each other")
	case !(o.epochs >= 0 && o.epochs < 1e6):
		return usagef("--epochs is %v, want 0 or more", o.epochs)
	}
	return nil
}

// trainConfig returns the configuration of a run on the given number of ranks, whose steps have
// the batches of all of them.
func (o *trainOptions) trainConfig(ranks int) train.Config {
	c := o.cfg
	c.Accum *= ranks
	if o.place.DType == "bf16" {
		c.DType = train.BF16
	}
	return c
}
