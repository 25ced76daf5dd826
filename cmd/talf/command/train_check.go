package command

import (
	"cmp"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"talf/checkpoints"
	"talf/compute/devices"
	"talf/internal/cli"
	"talf/train"
	"talf/train/loss"
	"talf/train/mix"
	"talf/train/tensorboard"
)

// headOnly and lmOnly are the flags for only one --kind, textOnly those for --kind lm and --online,
// and labelOnly those for --online.
var (
	headOnly  = []string{"loss", "stage", "features", "network", "layers", "fc-bias", "draft-vocab", "init", "online"}
	lmOnly    = []string{"window", "export"}
	textOnly  = []string{"format", "template", "answer-field", "answer-remove", "skip", "limit"}
	labelOnly = []string{"eos", "max-len", "k", "depth", "labels", "label-k", "loss-only", "keep-labels", "chat-template", "date", controlFlag}
)

// check refuses flags that do not make up a run, before anything is read.
func (o *trainOptions) check(cmd *cobra.Command) error {
	if err := cli.Need(cmd, "model", "data", "out"); err != nil {
		return err
	}
	for _, err := range []error{o.checkKind(cmd.Flags()), o.checkLength(cmd.Flags()), o.checkDevice()} {
		if err != nil {
			return err
		}
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
	if o.kind == checkpoints.KindHead && !o.online {
		for _, s := range o.data {
			if _, _, err := mix.ParseShare(s); err != nil {
				return usagef("--data %w", err)
			}
		}
	}
	if c := o.label; o.online {
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
	return cmp.Or(cli.OnlyFor(f, "heads", head, headOnly), cli.OnlyFor(f, "--kind lm", !head, lmOnly),
		cli.OnlyFor(f, "--online", o.online, labelOnly), cli.OnlyFor(f, "--online and --kind lm", o.online || !head, textOnly))
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

func (o *trainOptions) checkDevice() error {
	switch d := o.device.Resolve(); { // --print-config prints what was given
	case o.math != mathF32 && o.math != mathBF16:
		return usagef("--math is %q, want %s or %s", o.math, mathF32, mathBF16)
	case o.dtype != "f32" && o.dtype != "bf16":
		return usagef("--dtype is %q, want f32 or bf16", o.dtype)
	case o.math == mathBF16 && o.device.String() == string(devices.CPU):
		return usagef("--math bf16 is for CUDA devices")
	case o.math == mathBF16 && !d.Remote():
		return usagef("--math bf16 is for CUDA devices, and --device auto found none")
	case o.dtype == "bf16" && d.Remote():
		return usagef("--dtype bf16 is for the CPU: on %s --math bf16 multiplies in bfloat16", d)
	case o.profile != "" && d.Remote():
		return usagef("--profile times operations one by one, but those of %s run asynchronously: train on the CPU", d)
	}
	return nil
}

// trainConfig returns the configuration of a run on the given number of ranks, whose steps have
// the batches of all of them.
func (o *trainOptions) trainConfig(ranks int) train.Config {
	c := o.cfg
	c.Accum *= ranks
	if o.dtype == "bf16" {
		c.DType = train.BF16
	}
	return c
}

// deviceFor returns the device that each of the ranks trains on. Several ranks train on CPUs,
// which is what auto selects for them; any other device is refused before each of them fills it.
func (o *trainOptions) deviceFor(ranks int) (devices.Name, error) {
	d := o.device
	switch {
	case ranks == 1:
	case o.online:
		return d, usagef("--online: each of %d ranks would label all of the text: use preprocess, or start one process", ranks)
	case d.Remote() || o.math == mathBF16:
		return d, usagef("--device %s --math %s: %d ranks train on CPUs, where their gradients are added: leave both out, or start one process", &d, o.math, ranks)
	case d == devices.Auto:
		return devices.CPU, nil
	}
	return d, nil
}
